//! Finds the groups that match a query. Pure.
//!
//! First the query is compiled: names become their indexes in these groups, or match nothing. After that, a run of
//! processes costs as much as one process, and no text is compared.

use gantry_types::placement::StringTable;

use super::attribute::{Columns, GroupAttribute, ProcessAttribute};
use super::group::{Group, Groups, Run};
use super::query::{Numbers, Pattern, Query, Restriction, Term, Value};
use crate::event::StateName;

/// The groups that match a query.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Matches {
    /// The matches, in the order of the groups.
    pub found: Vec<Found>,
    /// The cost: how many runs of processes were examined.
    pub looked_at: u64,
}

/// A group that matches a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// Its index among the groups.
    pub at: usize,
    /// The attributes to report: those of every matching pattern.
    pub columns: Columns,
}

/// Finds the groups that match `query`.
#[must_use]
pub fn find(groups: &Groups, query: &Query) -> Matches {
    let patterns: Vec<Compiled<'_>> =
        query.patterns.iter().map(|pattern| Compiled::new(pattern, &groups.names)).collect();
    let mut matches = Matches::default();
    for (at, group) in groups.groups.iter().enumerate() {
        let fitting = patterns.iter().filter(|pattern| pattern.fits(group, &mut matches.looked_at));
        if let Some(columns) = fitting.map(|pattern| pattern.columns).reduce(Columns::union) {
            matches.found.push(Found { at, columns });
        }
    }
    matches
}

/// A pattern with the indexes of these groups.
struct Compiled<'a> {
    columns: Columns,
    group: Vec<(GroupAttribute, GroupTest<'a>)>,
    restrictions: Vec<ProcessTest>,
}

/// A condition for a group's attribute.
enum GroupTest<'a> {
    Name(Option<u32>),
    Text(&'a str),
    Numbers(&'a Numbers),
    State(crate::info::AppState),
    /// It never holds.
    Never,
}

/// The conditions for one process.
#[derive(Default)]
struct ProcessTest {
    host: Option<Set>,
    exec: Option<Set>,
    state: Option<StateName>,
    pid: Option<Vec<(u32, u32)>>,
    rank: Option<Vec<(u32, u32)>>,
    never: bool,
}

/// A set of name indexes, as bits.
struct Set(Vec<u64>);

impl Set {
    fn new(names: &StringTable, fitting: impl Iterator<Item = u32>) -> Self {
        let mut bits = vec![0_u64; names.len().div_ceil(64)];
        for number in fitting {
            if let Some(word) = bits.get_mut(number as usize / 64) {
                *word |= 1 << (number % 64);
            }
        }
        Self(bits)
    }

    fn has(&self, number: u32) -> bool {
        self.0.get(number as usize / 64).is_some_and(|word| word & (1 << (number % 64)) != 0)
    }
}

impl<'a> Compiled<'a> {
    fn new(pattern: &'a Pattern, names: &StringTable) -> Self {
        let group = pattern.group.iter().filter_map(|(attribute, term)| {
            let Term::Is(value) = term else { return None };
            let test = match (attribute, value) {
                (GroupAttribute::App, Value::Text(text)) => GroupTest::Text(text),
                (_, Value::Text(text)) => GroupTest::Name(names.find(text)),
                (_, Value::Numbers(numbers)) => GroupTest::Numbers(numbers),
                (_, Value::Group(state)) => GroupTest::State(*state),
                (_, Value::Hosts(_) | Value::Process(_)) => GroupTest::Never,
            };
            Some((*attribute, test))
        });
        Self {
            columns: pattern.columns(),
            group: group.collect(),
            restrictions: pattern.restrictions.iter().map(|it| ProcessTest::new(it, names)).collect(),
        }
    }

    fn fits(&self, group: &Group, looked_at: &mut u64) -> bool {
        self.group.iter().all(|(attribute, test)| test.fits(*attribute, group))
            && self.restrictions.iter().all(|restriction| {
                group.runs.iter().any(|run| {
                    *looked_at += 1;
                    restriction.fits(run)
                })
            })
    }
}

impl GroupTest<'_> {
    fn fits(&self, attribute: GroupAttribute, group: &Group) -> bool {
        use super::query::Number;
        match (self, attribute) {
            (Self::Name(name), GroupAttribute::Submitter) => *name == Some(group.submitter),
            (Self::Name(name), GroupAttribute::Wlm) => *name == Some(group.wlm),
            (Self::Text(text), GroupAttribute::App) => group.app.as_str() == *text,
            (Self::State(state), GroupAttribute::State) => group.state == *state,
            (Self::Numbers(numbers), GroupAttribute::Pgid) => numbers.contains(Number(group.pgid)),
            (Self::Numbers(numbers), GroupAttribute::Totalprocs) => {
                numbers.contains(Number(group.totalprocs))
            }
            (Self::Numbers(numbers), GroupAttribute::Session) => !numbers.is_disjoint(&group.sessions),
            (Self::Numbers(numbers), GroupAttribute::ExitCode) => {
                group.exit_code.is_some_and(|code| numbers.contains(Number(code)))
            }
            _ => false,
        }
    }
}

impl ProcessTest {
    fn new(restriction: &Restriction, names: &StringTable) -> Self {
        let mut test = Self::default();
        for (attribute, term) in restriction {
            let Term::Is(value) = term else { continue };
            match (attribute, value) {
                (ProcessAttribute::Host, Value::Hosts(hosts)) => {
                    test.host = Some(Set::new(names, hosts.iter().filter_map(|host| names.find(host))));
                }
                (ProcessAttribute::Exec, Value::Text(wanted)) => {
                    let fitting = (0..).zip(names.iter()).filter(|(_, name)| is_exec(name, wanted));
                    test.exec = Some(Set::new(names, fitting.map(|(number, _)| number)));
                }
                (ProcessAttribute::State, Value::Process(state)) => test.state = Some(*state),
                (ProcessAttribute::Pid, Value::Numbers(numbers)) => test.pid = Some(spans(numbers)),
                (ProcessAttribute::Rank, Value::Numbers(numbers)) => test.rank = Some(spans(numbers)),
                _ => test.never = true,
            }
        }
        test
    }

    /// Whether at least one process of the run matches.
    fn fits(&self, run: &Run) -> bool {
        if self.never
            || self.state.is_some_and(|state| state != run.state)
            || self.host.as_ref().is_some_and(|hosts| !hosts.has(run.host))
            || self.exec.as_ref().is_some_and(|execs| !execs.has(run.exec))
        {
            return false;
        }
        match (&self.pid, &self.rank) {
            (None, None) => true,
            (Some(_), _) if run.pid == 0 => false,
            (Some(pids), None) => steps(pids, run.pid, run.count).next().is_some(),
            (None, Some(ranks)) => steps(ranks, run.rank, run.count).next().is_some(),
            // Both must hold for the same process.
            (Some(pids), Some(ranks)) => {
                overlap(steps(pids, run.pid, run.count), steps(ranks, run.rank, run.count))
            }
        }
    }
}

/// Whether `wanted` names the program `path`: the whole path, or its last part if `wanted` has no slash.
fn is_exec(path: &str, wanted: &str) -> bool {
    path == wanted || (!wanted.contains('/') && path.rsplit('/').next() == Some(wanted))
}

fn spans(numbers: &Numbers) -> Vec<(u32, u32)> {
    numbers.ranges().map(|range| (range.start().0, range.end().0)).collect()
}

/// Which offsets in a row of `count` numbers from `first` are in these spans: first and last of each piece,
/// ascending.
fn steps(spans: &[(u32, u32)], first: u32, count: u32) -> impl Iterator<Item = (u32, u32)> + '_ {
    let last = first + (count - 1);
    let from = spans.partition_point(|span| span.1 < first);
    let inside = spans[from..].iter().take_while(move |span| span.0 <= last);
    inside.map(move |span| (span.0.max(first) - first, span.1.min(last) - first))
}

/// Whether the two lists of pieces overlap.
fn overlap(mut left: impl Iterator<Item = (u32, u32)>, mut right: impl Iterator<Item = (u32, u32)>) -> bool {
    let (mut a, mut b) = (left.next(), right.next());
    while let (Some(one), Some(other)) = (a, b) {
        if one.0.max(other.0) <= one.1.min(other.1) {
            return true;
        }
        if one.1 < other.1 {
            a = left.next();
        } else {
            b = right.next();
        }
    }
    false
}

#[cfg(test)]
mod tests;
