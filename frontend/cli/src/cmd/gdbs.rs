//! Orders to the daemons that run the gdbs, and their answers.

use std::collections::BTreeMap;
use std::time::Duration;

use gantry_frontend::event::{RankInfo, StateName};
use gantry_gdb::answer::{Answer, Lack, State, Words};
use gantry_gdb::order::{Order, What};
use gantry_gdb::{decode, encode, tags};
use gantry_types::error::Kind;
use gantry_types::id::Rank;
use gantry_types::rank_set::RankSet;

use super::debug_files::DebugFiles;
use super::look::Hand;
use super::stay::describe;
use crate::exit::Fault;
use crate::stack::daemons::{Daemons, Missing};

/// The connection to the daemons.
pub(super) struct Gdbs {
    daemons: Daemons,
    hand: Hand,
    number: u64,
    timeout: Duration,
    ranks: RankSet,
    /// Ranks that cannot answer any more, and why.
    over: Vec<(Answer, RankSet)>,
    /// The nodes that have not answered, as reported to the user.
    missing: Missing,
    debug_files: DebugFiles,
    /// The ranks whose nodes were asked what they lack.
    asked: RankSet,
}

/// Answers of ranks, nodes without one, and notes.
type Exchanged = (Vec<(Answer, RankSet)>, Missing, Vec<String>);

/// The daemons' answers.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) answers: Vec<(Answer, RankSet)>,
    /// Reasons why nodes have not answered, if they differ from the last reported ones, and other notes.
    pub(super) news: Vec<String>,
}

impl Gdbs {
    /// The daemons beside `ranks`, the ranks of the app that `hand` acts on.
    pub(super) fn new(daemons: Daemons, hand: Hand, ranks: RankSet, timeout: Duration) -> Self {
        let (debug_files, asked) = (DebugFiles::default(), RankSet::new());
        let missing = Missing::new();
        Self { daemons, hand, number: 0, timeout, ranks, over: Vec::new(), missing, debug_files, asked }
    }

    /// Sends an order and collects the answers of all daemons. Ranks that cannot answer any more have a state that says why.
    pub(super) async fn order(&mut self, what: What, patience: Duration) -> Result<Said, Fault> {
        let (mut answers, missing, mut news) = match self.exchange(what, patience).await {
            // The app ended meanwhile, and its daemons with it. All its ranks are silent then.
            Err(fault) if fault.0.kind() == Kind::Gone && self.has_ended().await => Default::default(),
            exchanged => exchanged?,
        };
        // A daemon tells of all its ranks.
        let told = answers.iter().chain(&self.over);
        let silent = told.fold(self.ranks.clone(), |left, (_, ranks)| left.difference(ranks));
        if !silent.is_empty() {
            let explained = self.explain(&silent, !missing.is_empty()).await;
            if missing.is_empty() && self.missing.is_empty() {
                news.extend(explained.iter().filter_map(|(state, ranks)| match state {
                    State::Ended(why) | State::Away(why) => Some(format!("ranks {ranks}: {why}")),
                    _ => None,
                }));
            }
            let over = |(state, ranks)| (Answer { state, reply: None }, ranks);
            self.over.extend(explained.into_iter().map(over));
        }
        answers.extend(self.over.iter().cloned());
        if missing != self.missing {
            news.extend(missing.iter().map(|(host, why)| format!("no answer from {host}: {why}")));
            self.missing = missing;
        }
        Ok(Said { answers, news })
    }

    /// The daemons' answers to an order, the nodes without one, and notes.
    async fn exchange(&mut self, what: What, patience: Duration) -> Result<Exchanged, Fault> {
        let notes = match &what {
            What::Tell { ranks, .. } | What::Ask { ranks, .. } => self.send_symbols(ranks).await?,
            _ => Vec::new(),
        };
        self.tell(what, patience).await?;
        let timeout = self.timeout.saturating_add(patience);
        let (answers, missing) = self.daemons.ask_by_bytes(tags::ANSWER, decode::<Answer>, timeout).await?;
        Ok((answers, missing, notes))
    }

    async fn has_ended(&self) -> bool {
        let is_over = |rank: &RankInfo| matches!(rank.state, StateName::Lost | StateName::Exited);
        self.hand.info().await.is_ok_and(|info| info.ranks.iter().all(is_over))
    }

    /// Why these ranks do not answer: they have ended, their node is lost, or their daemon has ended. A daemon that is
    /// late may answer later.
    async fn explain(&self, silent: &RankSet, is_late: bool) -> Vec<(State, RankSet)> {
        // When the app is gone, the next order fails with the reason.
        let Ok(info) = self.hand.info().await else { return Vec::new() };
        let is_over = |rank: &&RankInfo| {
            let has_ended = matches!(rank.state, StateName::Lost | StateName::Exited);
            silent.contains(rank.rank) && (has_ended || !is_late)
        };
        let mut explained: BTreeMap<State, RankSet> = BTreeMap::new();
        for rank in info.ranks.iter().filter(is_over) {
            explained.entry(describe_end(rank)).or_default().insert(rank.rank);
        }
        explained.into_iter().collect()
    }

    /// The raw output of a rank's gdb, starting at byte `from`. `None`: the rank has no gdb.
    pub(super) async fn words(&mut self, rank: Rank, from: u64) -> Result<Option<Words>, Fault> {
        self.tell(What::Words { rank, from }, Duration::ZERO).await?;
        let (pieces, _) = self.daemons.ask_by_bytes(tags::ANSWER, decode::<Words>, self.timeout).await?;
        Ok(pieces.into_iter().next().map(|(piece, _)| piece))
    }

    /// Before ranks get their gdbs: sends debug information that this machine has and their nodes lack. Returns notes.
    async fn send_symbols(&mut self, ranks: &RankSet) -> Result<Vec<String>, Fault> {
        let new = ranks.difference(&self.asked);
        if new.is_empty() {
            return Ok(Vec::new());
        }
        self.asked = self.asked.union(&new);
        self.tell(What::Lack { ranks: new }, Duration::ZERO).await?;
        let (lacks, _) = self.daemons.ask_by_bytes(tags::ANSWER, decode::<Lack>, self.timeout).await?;
        let deleted = describe_deleted(&lacks);
        let late = self.debug_files.find(lacks.into_iter().filter_map(|(lack, _)| lack.program)).await;
        let late = late.iter().map(|path| format!("{path} is on a file system that does not answer"));
        let mut notes: Vec<String> = late.collect();
        let found = self.debug_files.take_new();
        // Without symbols there is still much to see.
        let sent =
            if found.is_empty() { Ok(true) } else { self.daemons.send_files(found, self.timeout).await };
        match sent {
            Ok(true) => {}
            Ok(false) => notes.push("another tool has this app".to_owned()),
            Err(fault) => notes.push(fault.0.message().to_owned()),
        }
        let notes = notes.into_iter();
        let notes = notes.map(|why| format!("this machine's symbols were not sent to the nodes: {why}"));
        Ok(notes.chain(deleted).collect())
    }

    async fn tell(&mut self, what: What, patience: Duration) -> Result<(), Fault> {
        self.number += 1;
        let patience_ms = u32::try_from(patience.as_millis()).unwrap_or(u32::MAX);
        let order = Order { number: self.number, patience_ms, what };
        self.daemons.tell(tags::ORDER, &encode(&order), self.timeout).await
    }
}

/// Notes about libraries that gdb cannot read.
fn describe_deleted(lacks: &[(Lack, RankSet)]) -> Vec<String> {
    let mut of_library: BTreeMap<&str, RankSet> = BTreeMap::new();
    for (lack, ranks) in lacks {
        for path in &lack.deleted {
            let all = of_library.entry(path).or_default();
            *all = all.union(ranks);
        }
    }
    let describe = |(path, ranks)| {
        format!(
            "ranks {ranks}: {path} was deleted or replaced after it was loaded: its frames in gdb may be wrong"
        )
    };
    of_library.into_iter().map(describe).collect()
}

/// Why a rank cannot be asked any more.
fn describe_end(rank: &RankInfo) -> State {
    match rank.state {
        StateName::Lost => State::Ended(format!("its node {} is lost", rank.host)),
        StateName::Exited => State::Ended(describe(&rank.ending)),
        state => State::Away(format!("{}, and gantry's daemon on {} has ended", state.as_str(), rank.host)),
    }
}
