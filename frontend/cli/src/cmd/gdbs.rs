//! Orders to the daemons that run the gdbs, and their answers.

use std::time::Duration;

use gantry_gdb::answer::{Answer, Words};
use gantry_gdb::order::{Order, What};
use gantry_gdb::tags;
use gantry_types::id::Rank;
use gantry_types::rank_set::RankSet;

use crate::exit::Fault;
use crate::stack::daemons::{Daemons, Missing};

/// The connection to the daemons.
pub(super) struct Gdbs {
    daemons: Daemons,
    number: u64,
    timeout: Duration,
    /// The nodes that have not answered, as reported to the user.
    missing: Missing,
}

/// The daemons' answers.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) answers: Vec<(Answer, RankSet)>,
    /// Reasons why nodes have not answered, if they differ from the last reported ones.
    pub(super) news: Vec<String>,
}

impl Gdbs {
    pub(super) fn new(daemons: Daemons, timeout: Duration) -> Self {
        Self { daemons, number: 0, timeout, missing: Missing::new() }
    }

    /// Sends an order and collects the answers of all daemons.
    pub(super) async fn order(&mut self, what: What, patience: Duration) -> Result<Said, Fault> {
        self.tell(what, patience).await?;
        let timeout = self.timeout + patience;
        let (answers, missing) = self.daemons.ask_by_bytes(tags::ANSWER, Answer::decode, timeout).await?;
        let mut news = Vec::new();
        if missing != self.missing {
            news = missing.iter().map(|(host, why)| format!("no answer from {host}: {why}")).collect();
            self.missing = missing;
        }
        Ok(Said { answers, news })
    }

    /// The raw output of a rank's gdb, starting at byte `from`. `None`: the rank has no gdb.
    pub(super) async fn words(&mut self, rank: Rank, from: u64) -> Result<Option<Words>, Fault> {
        self.tell(What::Words { rank, from }, Duration::ZERO).await?;
        let (pieces, _) = self.daemons.ask_by_bytes(tags::ANSWER, Words::decode, self.timeout).await?;
        Ok(pieces.into_iter().next().map(|(piece, _)| piece))
    }

    async fn tell(&mut self, what: What, patience: Duration) -> Result<(), Fault> {
        self.number += 1;
        let patience_ms = u32::try_from(patience.as_millis()).unwrap_or(u32::MAX);
        let order = Order { number: self.number, patience_ms, what };
        self.daemons.tell(tags::ORDER, &order.encode(), self.timeout).await
    }
}
