//! Queries: a disjunction of patterns. Each pattern is a conjunction of conditions on a group and on some of its
//! processes.

use gantry_types::rank_set::{IdSet, SetId};

use super::attribute::{Columns, GroupAttribute, ProcessAttribute};
use super::hosts::parse_hosts;
use crate::event::StateName;
use crate::info::AppState;

/// How many patterns a query may have, and restrictions a pattern.
pub(super) const MAX_PARTS: usize = 1_000;

/// The value that asks for an attribute instead of restricting it.
pub(super) const ASK: &str = "*";

/// A number of a group or a process: a pgid, a pid, a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Number(pub u32);

impl SetId for Number {
    fn from_number(number: u32) -> Self {
        Self(number)
    }

    fn number(self) -> u32 {
        self.0
    }
}

/// Numbers in the squashed form `1-10,15,17,20-25`.
pub type Numbers = IdSet<Number>;

/// A query: the matching groups, and the attributes to report.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query {
    /// A group matches if at least one of these matches.
    pub patterns: Vec<Pattern>,
}

/// Conditions on a group; all must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pattern {
    /// Conditions on the group as a whole.
    pub group: Vec<(GroupAttribute, Term)>,
    /// Each must hold for some process of the group, not necessarily the same one.
    pub restrictions: Vec<Restriction>,
    /// Report all attributes.
    pub everything: bool,
}

/// Conditions on one process; all must hold.
pub(super) type Restriction = Vec<(ProcessAttribute, Term)>;

/// The value of an attribute in a query. In both cases the answer reports the attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Term {
    /// `*`: any value matches.
    Asked,
    /// Only this value matches.
    Is(Value),
}

/// A value that restricts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// Exactly this text. For a program: its path, or the last part of it where this has no slash.
    Text(String),
    /// One of these numbers.
    Numbers(Numbers),
    /// One of these hosts.
    Hosts(Vec<String>),
    /// This state of a group.
    Group(AppState),
    /// This state of a process.
    Process(StateName),
}

impl Term {
    /// Parses a value of a group's attribute.
    ///
    /// # Errors
    /// The attribute cannot have such a value.
    pub fn of_group(attribute: GroupAttribute, text: &str) -> Result<Self, String> {
        if text == ASK {
            return Ok(Self::Asked);
        }
        let value = match attribute {
            GroupAttribute::Submitter | GroupAttribute::Wlm | GroupAttribute::App => plain(text)?,
            GroupAttribute::Pgid
            | GroupAttribute::Totalprocs
            | GroupAttribute::Session
            | GroupAttribute::ExitCode => Value::Numbers(parse_numbers(text)?),
            GroupAttribute::State => Value::Group(by_name(text, &GROUP_STATES, AppState::as_str)?),
        };
        Ok(Self::Is(value))
    }

    /// Parses a value of a process's attribute.
    ///
    /// # Errors
    /// The attribute cannot have such a value.
    pub fn of_process(attribute: ProcessAttribute, text: &str) -> Result<Self, String> {
        if text == ASK {
            return Ok(Self::Asked);
        }
        let value = match attribute {
            ProcessAttribute::Exec => plain(text)?,
            ProcessAttribute::Host => Value::Hosts(parse_hosts(text)?),
            ProcessAttribute::Pid | ProcessAttribute::Rank => Value::Numbers(parse_numbers(text)?),
            ProcessAttribute::State => Value::Process(by_name(text, &PROCESS_STATES, StateName::as_str)?),
        };
        Ok(Self::Is(value))
    }
}

impl Query {
    /// Whether a process attribute has the value `*`.
    #[must_use]
    pub fn asks_of_processes(&self) -> bool {
        self.patterns.iter().any(Pattern::asks_of_processes)
    }
}

impl Pattern {
    /// The attributes to report for a matching group: every attribute of the query, with a value or with `*`.
    #[must_use]
    pub fn columns(&self) -> Columns {
        if self.everything {
            return Columns::all();
        }
        let mut columns = Columns::default();
        self.group.iter().for_each(|(attribute, _)| columns.add_group(*attribute));
        self.restrictions.iter().flatten().for_each(|(attribute, _)| columns.add_process(*attribute));
        columns
    }

    /// Whether an attribute has the value `*`.
    #[must_use]
    pub fn asks(&self) -> bool {
        self.group.iter().any(|(_, term)| *term == Term::Asked) || self.asks_of_processes()
    }

    /// Whether a process attribute has the value `*`.
    #[must_use]
    pub fn asks_of_processes(&self) -> bool {
        self.restrictions.iter().flatten().any(|(_, term)| *term == Term::Asked)
    }
}

const GROUP_STATES: [AppState; 4] = [AppState::Starting, AppState::Held, AppState::Running, AppState::Ended];

const PROCESS_STATES: [StateName; 5] =
    [StateName::Starting, StateName::Held, StateName::Running, StateName::Exited, StateName::Lost];

fn by_name<T: Copy>(text: &str, all: &[T], name: impl Fn(T) -> &'static str) -> Result<T, String> {
    all.iter().copied().find(|it| name(*it) == text).ok_or_else(|| {
        let names: Vec<&str> = all.iter().copied().map(name).collect();
        format!("'{}' is not one of {}", shorten(text), names.join(", "))
    })
}

fn plain(text: &str) -> Result<Value, String> {
    match text.is_empty() {
        true => Err("an empty value".to_owned()),
        false => Ok(Value::Text(text.to_owned())),
    }
}

/// Parses numbers in the squashed form, which has no spaces.
///
/// # Errors
/// The text is malformed or empty.
pub(super) fn parse_numbers(text: &str) -> Result<Numbers, String> {
    if text.is_empty() || text.contains(char::is_whitespace) {
        return Err(format!("'{}' is not a list of numbers such as 1-10,15", shorten(text)));
    }
    text.parse().map_err(|error| format!("'{}' is not a list of numbers: {error}", shorten(text)))
}

/// The beginning of an invalid text, for an error.
pub(super) fn shorten(text: &str) -> String {
    text.chars().take(40).collect()
}
