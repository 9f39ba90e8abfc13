//! Collects the answers to one command: which ranks have answered, which are pending, and the merged result.

use gantry_gdb::answer::{Answer, Reply, State};
use gantry_types::rank_set::RankSet;
use serde::Serialize;

use crate::compare::{Comparison, Unpaired, compare};
use crate::fold::{Class, fold};
use crate::statistic::{Statistic, describe, value_of};

/// A command and the answers received so far.
#[derive(Debug, Clone)]
pub struct Round {
    asked: RankSet,
    /// The ranks that have not answered.
    pending: RankSet,
    replies: Vec<(Reply, RankSet)>,
}

/// The merged answers of the ranks.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    /// The ranks that got the command.
    #[serde(serialize_with = "crate::sets::as_text")]
    pub ranks: RankSet,
    /// Ranks with the same answer. The odd ones come first.
    pub classes: Vec<Said>,
    /// Ranks that run, or have not finished the command.
    #[serde(serialize_with = "crate::sets::as_text")]
    pub running: RankSet,
    /// The statistic of the printed numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub statistic: Option<Statistic>,
}

/// The answer of some ranks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Said {
    /// The ranks.
    #[serde(serialize_with = "crate::sets::as_text")]
    pub ranks: RankSet,
    /// The answer. Numbers that differ are ranges: `[0;63]`.
    pub text: String,
    /// The answer is an error message.
    pub is_error: bool,
    /// What the user can do about the error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl Round {
    /// A new command for these ranks.
    #[must_use]
    pub fn new(asked: RankSet) -> Self {
        Self { pending: asked.clone(), asked, replies: Vec::new() }
    }

    /// Takes the answers to one of its orders. Each order returns all replies, so they replace the earlier ones.
    pub fn take(&mut self, answers: &[(Answer, RankSet)]) {
        let mut done = RankSet::new();
        self.replies.clear();
        for (answer, ranks) in answers {
            let ranks = ranks.intersection(&self.asked);
            if ranks.is_empty() {
                continue;
            }
            match (&answer.reply, &answer.state) {
                (Some(reply), _) => self.replies.push((reply.clone(), ranks.clone())),
                // The rank or its daemon has ended, and cannot reply.
                (None, State::Ended(how) | State::Away(how)) => {
                    let reply = Reply { said: how.clone(), ..Reply::default() };
                    self.replies.push((reply, ranks.clone()));
                }
                _ => continue,
            }
            done = done.union(&ranks);
        }
        self.pending = self.asked.difference(&done);
    }

    /// The ranks that got the command.
    #[must_use]
    pub fn asked(&self) -> &RankSet {
        &self.asked
    }

    /// The ranks that have not answered yet.
    #[must_use]
    pub fn pending(&self) -> &RankSet {
        &self.pending
    }

    /// Whether the command prints values for which a statistic makes sense.
    #[must_use]
    pub fn prints(line: &str) -> bool {
        let word = line.split([' ', '/']).next().unwrap_or_default();
        ["print", "p", "inspect"].contains(&word)
    }

    /// Whether ranks have printed different values. Errors are no values.
    #[must_use]
    pub fn has_different_values(&self) -> bool {
        let mut values = self.values().map(|(value, _)| value);
        values.next().is_some_and(|first| values.any(|value| value != first))
    }

    /// Compares the values that two sets of ranks have printed. Errors are no values.
    ///
    /// # Errors
    /// The sets cannot be paired.
    pub fn compare(&self, one: &RankSet, other: &RankSet) -> Result<Comparison, Unpaired> {
        let of_ranks = |(value, ranks): (&str, &RankSet)| {
            ranks.iter().map(|rank| (rank, value.to_owned())).collect::<Vec<_>>()
        };
        compare(one, other, &self.values().flat_map(of_ranks).collect())
    }

    /// The printed values, and the ranks that have each.
    fn values(&self) -> impl Iterator<Item = (&str, &RankSet)> {
        let good = self.replies.iter().filter(|(reply, _)| reply.error.is_none());
        good.map(|(reply, ranks)| (value_of(&reply.said).unwrap_or(&reply.said), ranks))
    }

    /// Merges the answers of all ranks.
    #[must_use]
    pub fn outcome(&self, line: &str) -> Outcome {
        let texts = |is_error: bool| {
            let of_kind = self.replies.iter().filter(move |(reply, _)| reply.error.is_some() == is_error);
            of_kind.map(|(reply, ranks)| (text_of(reply), hint_of(reply), ranks)).collect::<Vec<_>>()
        };
        let mut classes = Vec::new();
        for is_error in [true, false] {
            let texts = texts(is_error);
            let mut hints: Vec<Option<&str>> = texts.iter().map(|(_, hint, _)| *hint).collect();
            hints.sort_unstable();
            hints.dedup();
            for hint in hints {
                let of_hint = texts.iter().filter(|(_, it, _)| *it == hint);
                let folded = fold(of_hint.map(|(text, _, ranks)| (text.as_str(), *ranks)));
                let said =
                    |Class { ranks, text }| Said { ranks, text, is_error, hint: hint.map(str::to_owned) };
                classes.extend(folded.into_iter().map(said));
            }
        }
        classes.sort_by_key(|said| (said.ranks.len(), said.ranks.first()));
        let good = self.replies.iter().filter(|(reply, _)| reply.error.is_none());
        let statistic = Self::prints(line)
            .then(|| describe(good.map(|(reply, ranks)| (reply.said.as_str(), ranks))))
            .flatten();
        Outcome { ranks: self.asked.clone(), classes, running: self.pending.clone(), statistic }
    }
}

impl Outcome {
    /// Whether the command failed for any rank.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.classes.iter().any(|class| class.is_error)
    }
}

fn text_of(reply: &Reply) -> String {
    let said = reply.said.trim_matches('\n');
    match &reply.error {
        // gdb has printed the error already when the user made a mistake.
        Some(error) if !said.contains(error.as_str()) && !said.is_empty() => format!("{said}\n{error}"),
        Some(error) => error.clone(),
        None => said.to_owned(),
    }
}

fn hint_of(reply: &Reply) -> Option<&str> {
    reply.hint.as_deref()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(said: &str, error: Option<&str>) -> Answer {
        let reply = Reply { said: said.to_owned(), error: error.map(str::to_owned), hint: None };
        Answer { state: State::Running, reply: Some(reply) }
    }

    fn set(text: &str) -> RankSet {
        text.parse().unwrap()
    }

    #[test]
    fn answers_come_together() {
        let mut round = Round::new(set("0-5"));
        assert_eq!(round.pending(), &set("0-5"));
        let none = Answer { state: State::Running, reply: None };
        let ended = Answer { state: State::Ended("it has ended".to_owned()), reply: None };
        round.take(&[(answer("$1 = 1\n", None), set("0,9")), (none.clone(), set("1-5"))]);
        assert_eq!(round.pending(), &set("1-5"));
        let answers = [
            (answer("$1 = 1\n", None), set("0,9")),
            (answer("$1 = 4\n", None), set("1-2")),
            (answer("", Some("No symbol \"x\".")), set("3")),
            (none, set("4")),
            (ended, set("5")),
        ];
        round.take(&answers);
        let outcome = round.outcome("print x");
        let texts: Vec<String> =
            outcome.classes.iter().map(|it| format!("{} {} {}", it.ranks, it.is_error, it.text)).collect();
        assert_eq!(texts, ["3 true No symbol \"x\".", "5 false it has ended", "0-2 false $1 = [1;4]"]);
        assert_eq!((outcome.running.clone(), outcome.has_failed()), (set("4"), true));
        assert_eq!(outcome.statistic, None);
    }

    #[test]
    fn what_is_printed_has_a_statistic() {
        let mut round = Round::new(set("0-3"));
        round.take(&[(answer("$1 = 1\n", None), set("0-2")), (answer("$1 = 4\n", None), set("3"))]);
        let statistic = round.outcome("p rank").statistic.unwrap();
        assert_eq!((statistic.max.value, statistic.odd), (4.0, set("3")));
        assert_eq!(round.outcome("output rank").statistic, None);
        assert!(round.has_different_values());
        // The number of a value in gdb's history is no part of it.
        round.take(&[(answer("$1 = 4\n", None), set("0-2")), (answer("$2 = 4\n", None), set("3"))]);
        assert!(!round.has_different_values());
        assert!(Round::prints("print/x a") && !Round::prints("ptype a"));
    }
}
