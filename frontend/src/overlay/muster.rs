//! Agents that a launcher starts with its ranks: their hosts and their number are not known before.
//!
//! Each agent reports its ranks and the total number of ranks. When all ranks are accounted for, so are all agents.
//! Pure.

use gantry_shared::wire::message::Brought;
use gantry_shared::wire::message::{AgentHello, RankReport};
use gantry_types::error::Failure;
use gantry_types::rank_set::RankSet;

use crate::error::Error;

/// Most ranks of an app.
const MAX_RANKS: u32 = 1 << 24;

/// Most addresses at which an agent may say that it listens. Other agents try them all.
const MAX_ADDRESSES: usize = 16;

/// The agents that have reported so far.
#[derive(Debug, Default)]
pub(super) struct Roll {
    size: Option<u32>,
    present: RankSet,
    /// The ranks that each host has reported.
    by_host: Vec<(String, RankSet)>,
}

/// Whether an agent's description of itself may be forwarded to other agents.
///
/// # Errors
/// The reason, if it may not.
pub(super) fn check_hello(hello: &AgentHello) -> std::result::Result<(), String> {
    match hello.listen.len() {
        0..=MAX_ADDRESSES => Ok(()),
        count => Err(format!("it listens at {count} addresses; no more than {MAX_ADDRESSES} are tried")),
    }
}

/// Why an agent's report is refused.
#[derive(Debug)]
pub(super) enum Refusal {
    /// Only this agent is refused. Others are still waited for.
    Agent(String),
    /// The launch has failed.
    Launch(Error),
}

impl Roll {
    /// Whether all ranks have been reported.
    pub(super) fn is_complete(&self) -> bool {
        self.size.is_some_and(|size| u64::from(size) == self.present.len())
    }

    /// Takes the report of the agent of `host`: its ranks.
    pub(super) fn take(
        &mut self,
        host: &str,
        brought: Option<Brought>,
    ) -> std::result::Result<Vec<RankReport>, Refusal> {
        let Some(Brought { size, ranks }) = brought else {
            return Err(Refusal::Agent("only agents with ranks are expected".to_owned()));
        };
        let ranks = ranks.map_err(|failure| Refusal::Launch(node_failed(host, failure)))?;
        let protocol = |what: String| Refusal::Launch(Error::Protocol(format!("{host}: {what}")));
        let all = *self.size.get_or_insert(size);
        if size != all || size > MAX_RANKS {
            return Err(protocol(format!("its launcher reports {size} ranks, other nodes report {all}")));
        }
        for report in &ranks {
            if report.rank.0 >= size {
                return Err(protocol(format!("rank {} of {size}", report.rank)));
            }
            if !self.present.insert(report.rank) {
                let of = |(_, ranks): &&(String, RankSet)| ranks.contains(report.rank);
                let rank = report.rank;
                return Err(protocol(match self.by_host.iter().find(of) {
                    Some((other, _)) => format!("it reports rank {rank}, and so does {other}"),
                    None => format!("it reports rank {rank} twice"),
                }));
            }
        }
        self.by_host.push((host.to_owned(), ranks.iter().map(|report| report.rank).collect()));
        if ranks.is_empty() {
            return Err(Refusal::Agent("it has no ranks".to_owned()));
        }
        Ok(ranks)
    }

    /// What is missing, for people.
    pub(super) fn find_missing(&self) -> Vec<String> {
        match self.size {
            None => Vec::new(),
            Some(size) => vec![format!("ranks {}", RankSet::first_n(size).difference(&self.present))],
        }
    }
}

fn node_failed(host: &str, failure: Failure) -> Error {
    Error::Node { hosts: vec![host.to_owned()], failure }
}

#[cfg(test)]
mod tests {
    use gantry_types::error::Kind;
    use gantry_types::id::{Pid, Rank};

    use super::*;

    fn brought(size: u32, ranks: &[u32]) -> Option<Brought> {
        let report = |rank: &u32| RankReport {
            rank: Rank(*rank),
            pid: Pid::new(9).unwrap(),
            exe: "/bin/app".into(),
            held: None,
        };
        Some(Brought { size, ranks: Ok(ranks.iter().map(report).collect()) })
    }

    #[test]
    fn all_ranks_are_all_agents() {
        let mut roll = Roll::default();
        assert!(!roll.is_complete() && roll.find_missing().is_empty());
        assert_eq!(roll.take("b", brought(4, &[2, 3])).unwrap().len(), 2);
        assert_eq!(roll.find_missing(), ["ranks 0-1"]);
        roll.take("a", brought(4, &[0, 1])).unwrap();
        assert!(roll.is_complete());
    }

    #[test]
    fn words_that_do_not_fit_end_the_launch() {
        let check = |second: Option<Brought>, expected: &str| {
            let mut roll = Roll::default();
            roll.take("a", brought(4, &[0, 1])).unwrap();
            match roll.take("b", second) {
                Err(Refusal::Launch(error)) => assert!(error.to_string().contains(expected), "{error}"),
                other => panic!("{other:?}"),
            }
        };
        check(brought(5, &[2]), "5 ranks, other nodes report 4");
        check(brought(4, &[1]), "b: it reports rank 1, and so does a");
        check(brought(4, &[2, 2]), "b: it reports rank 2 twice");
        check(brought(4, &[4]), "rank 4 of 4");
        let failure = Failure::new(Kind::NotFound, "no such program");
        check(Some(Brought { size: 4, ranks: Err(failure) }), "no such program");
    }

    #[test]
    fn an_agent_that_listens_at_too_many_addresses_is_turned_away() {
        let hello = |count| AgentHello {
            host: "a".to_owned(),
            pid: Pid::new(9).unwrap(),
            listen: vec!["127.0.0.1:9".parse().unwrap(); count],
            brought: None,
        };
        assert!(check_hello(&hello(0)).is_ok() && check_hello(&hello(16)).is_ok());
        assert!(check_hello(&hello(17)).is_err());
    }

    #[test]
    fn agents_without_ranks_are_turned_away() {
        let mut roll = Roll::default();
        assert!(matches!(roll.take("a", None), Err(Refusal::Agent(_))));
        assert!(matches!(roll.take("a", brought(4, &[])), Err(Refusal::Agent(_))));
    }
}
