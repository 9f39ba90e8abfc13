//! Names of sets of ranks: `0,8-15`, `all`, `stopped`, `at solve`, `class 2`, and names defined by the user.

use std::collections::BTreeMap;

use gantry_gdb::answer::State;
use gantry_types::rank_set::{ParseSetError, RankSet};

/// The maximum number of user-defined names.
pub const MAX_NAMES: usize = 1000;

/// Words that name a set by themselves, with their meaning.
pub const WORDS: [(&str, &str); 6] = [
    ("all", "every rank"),
    ("stopped", "ranks that gdb has stopped"),
    ("running", "ranks that go on"),
    ("held", "ranks before their first instruction that have no gdb yet"),
    ("ended", "ranks that have ended"),
    ("focus", "the current set"),
];

/// Why a text does not name a set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoSet {
    /// Not a set of numbers.
    #[error("'{text}' is no set of ranks: {why}")]
    Text {
        /// The text.
        text: String,
        /// The parse error.
        why: ParseSetError,
    },
    /// There is no such rank.
    #[error("there is no rank {strange}: the ranks are {all}")]
    Strange {
        /// The ranks that do not exist.
        strange: RankSet,
        /// The ranks that exist.
        all: RankSet,
    },
    /// No set has that name.
    #[error(
        "there is no set '{0}': write ranks as 0,8-15, or all, stopped, running, held, ended, 'at FUNCTION', 'class NUMBER', or a name of 'group'"
    )]
    Unknown(String),
    /// The last answer had fewer classes.
    #[error("there is no class {number}: the last answer has {count}")]
    NoClass {
        /// The requested class.
        number: usize,
        /// The number of classes.
        count: usize,
    },
    /// The set is empty at the moment.
    #[error("no rank is in '{0}'")]
    Empty(String),
    /// The name is not allowed: it already means something else.
    #[error("'{0}' cannot be a name: take letters that are no word of gantry's")]
    BadName(String),
    /// There are too many names.
    #[error("there are {MAX_NAMES} names already")]
    TooMany,
}

/// The sets that names can refer to.
#[derive(Debug, Clone, Default)]
pub struct Sets {
    pub(crate) all: RankSet,
    pub(crate) focus: RankSet,
    names: BTreeMap<String, RankSet>,
    pub(crate) states: Vec<(State, RankSet)>,
    pub(crate) classes: Vec<RankSet>,
}

impl Sets {
    pub(crate) fn new(all: RankSet) -> Self {
        Self { focus: all.clone(), all, names: BTreeMap::new(), states: Vec::new(), classes: Vec::new() }
    }

    /// Returns the ranks that a text names. The text is a list of terms, separated by commas.
    ///
    /// # Errors
    /// The text does not name a set.
    pub fn resolve(&self, text: &str) -> Result<RankSet, NoSet> {
        let mut ranks = RankSet::new();
        for term in text.split(',').map(str::trim).filter(|term| !term.is_empty()) {
            ranks = ranks.union(&self.term(term)?);
        }
        let strange = ranks.difference(&self.all);
        match (strange.is_empty(), ranks.is_empty()) {
            (false, _) => Err(NoSet::Strange { strange, all: self.all.clone() }),
            (true, true) => Err(NoSet::Empty(text.trim().to_owned())),
            (true, false) => Ok(ranks),
        }
    }

    fn term(&self, term: &str) -> Result<RankSet, NoSet> {
        if term.starts_with(|letter: char| letter.is_ascii_digit()) {
            return term.parse().map_err(|why| NoSet::Text { text: term.to_owned(), why });
        }
        if let Some(ranks) = self.names.get(term) {
            return Ok(ranks.clone());
        }
        match term.split_once(char::is_whitespace) {
            Some(("at", function)) => {
                let function = function.trim();
                return Ok(self.of_states(|state| match state {
                    State::Stopped(stop) => stop.function == function,
                    _ => false,
                }));
            }
            Some(("class", number)) => {
                let none = || NoSet::Unknown(term.to_owned());
                let number: usize = number.trim().parse().map_err(|_| none())?;
                let class = number.checked_sub(1).and_then(|at| self.classes.get(at));
                return class.cloned().ok_or(NoSet::NoClass { number, count: self.classes.len() });
            }
            _ => {}
        }
        Ok(match term {
            "all" => self.all.clone(),
            "focus" => self.focus.clone(),
            "stopped" => self.of_states(|state| matches!(state, State::Stopped(_))),
            "running" => {
                self.of_states(|state| matches!(state, State::Running | State::Free | State::Coming))
            }
            "held" => self.of_states(|state| *state == State::Held),
            "ended" => self.of_states(|state| matches!(state, State::Ended(_))),
            _ => return Err(NoSet::Unknown(term.to_owned())),
        })
    }

    /// The last known state of the ranks.
    #[must_use]
    pub fn states(&self) -> &[(State, RankSet)] {
        &self.states
    }

    /// The ranks whose state satisfies the predicate.
    pub(crate) fn of_states(&self, is_meant: impl Fn(&State) -> bool) -> RankSet {
        let meant = self.states.iter().filter(|(state, _)| is_meant(state));
        meant.fold(RankSet::new(), |all, (_, ranks)| all.union(ranks))
    }

    /// Gives a set a name.
    ///
    /// # Errors
    /// The name already means something else, there are too many names, or the text does not name a set.
    pub fn name(&mut self, name: &str, text: &str) -> Result<RankSet, NoSet> {
        let is_taken = WORDS.iter().any(|(word, _)| *word == name) || ["at", "class"].contains(&name);
        let is_good = name.starts_with(|letter: char| letter.is_ascii_alphabetic())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
        if is_taken || !is_good {
            return Err(NoSet::BadName(name.to_owned()));
        }
        if self.names.len() >= MAX_NAMES && !self.names.contains_key(name) {
            return Err(NoSet::TooMany);
        }
        let ranks = self.resolve(text)?;
        self.names.insert(name.to_owned(), ranks.clone());
        Ok(ranks)
    }

    /// The names defined by the user.
    pub fn names(&self) -> impl Iterator<Item = (&str, &RankSet)> {
        self.names.iter().map(|(name, ranks)| (name.as_str(), ranks))
    }
}

/// Serializes a set in the notation that people write.
pub(crate) fn as_text<S: serde::Serializer>(ranks: &RankSet, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(ranks)
}

#[cfg(test)]
mod tests {
    use gantry_gdb::answer::Stop;

    use super::*;

    fn sets() -> Sets {
        let mut sets = Sets::new(RankSet::first_n(8));
        let stop = Stop { function: "solve".to_owned(), ..Stop::default() };
        sets.states = [
            (State::Stopped(stop), "0-2"),
            (State::Stopped(Stop::default()), "3"),
            (State::Running, "4"),
            (State::Ended("x".to_owned()), "5"),
            (State::Held, "6-7"),
        ]
        .map(|(state, ranks)| (state, ranks.parse().unwrap()))
        .to_vec();
        sets.classes = vec!["3".parse().unwrap(), "0-2".parse().unwrap()];
        sets
    }

    #[test]
    fn sets_have_names() {
        let mut sets = sets();
        sets.focus = "1".parse().unwrap();
        sets.name("mine", "0,7").unwrap();
        let check =
            |text: &str, expected: &str| assert_eq!(sets.resolve(text).unwrap().to_string(), expected);
        check("all", "0-7");
        check(" 0, 2-3 ", "0,2-3");
        check("stopped", "0-3");
        check("at solve", "0-2");
        check("at  solve,running", "0-2,4");
        check("class 1", "3");
        check("ended,held", "5-7");
        check("mine,focus", "0-1,7");
        assert_eq!(sets.names().collect::<Vec<_>>(), [("mine", &"0,7".parse().unwrap())]);
    }

    #[test]
    fn what_means_no_rank_is_refused() {
        let mut sets = sets();
        let check = |text: &str, expected: &str| {
            assert!(sets.resolve(text).unwrap_err().to_string().contains(expected), "{text}")
        };
        check("9", "there is no rank 9: the ranks are 0-7");
        check("3-1", "ends before it starts");
        check("nobody", "there is no set 'nobody'");
        check("class 3", "there is no class 3: the last answer has 2");
        check("class x", "no set");
        check("at main", "no rank is in 'at main'");
        check("", "no rank is in ''");
        for bad in ["all", "at", "1a", "", "a b", "ä"] {
            assert_eq!(sets.name(bad, "0"), Err(NoSet::BadName(bad.to_owned())));
        }
    }
}
