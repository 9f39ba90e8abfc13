//! A node's channel that takes any input, for fuzzing: orders of the tool, words of a daemon, and what nodes below say.
//! It keeps its own count of every flow, and checks that nothing goes up without credit.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use gantry_shared::wire::channel::{
    CHANNEL_WINDOW_BYTES, CHUNK_BYTES, ChannelNotice, ChannelOrder, DaemonFlow, FIRST_MADE, FromDaemon,
    MAX_MESSAGE_BYTES, Member, MemberSet, PART_WINDOW_BYTES, ToDaemon, cost_of,
};
use gantry_shared::wire::flow::{FlowId, Word};
use gantry_shared::wire::message::Blob;
use gantry_types::filter::Filter;
use gantry_types::id::{DaemonId, NodeId, RequestId, SessionId};
use gantry_types::rank_set::NodeSet;
use tokio::sync::mpsc;

use super::{Effect, Hub};

const SESSION: SessionId = SessionId(1);
const DAEMON: DaemonId = DaemonId(1);
const TAG: u32 = 9;
/// The filter that the daemon serves.
const FILTER: &str = "own";
/// Nodes below this one, which is node 0.
const BELOW: [u32; 2] = [1, 2];
/// The most bytes of a step: more than a window.
const MOST_BYTES: u32 = 400_000;

/// A rule that the hub has broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Broken(&'static str);

/// An input: what it is, a small number, and a size.
pub type Step = (u8, u8, u32);

/// From this number on, an input of the daemon keeps to no rule.
const HOSTILE: u8 = 240;

/// A part on its way up, or on its way to this node.
#[derive(Debug, Clone, Copy)]
struct Flowing {
    left: u64,
    room: u64,
}

/// A node with one daemon and two nodes below, and what is known of it from outside.
#[derive(Debug)]
pub struct Trial {
    hub: Hub,
    heard: mpsc::UnboundedReceiver<ToDaemon>,
    /// The daemon broke the protocol, or has ended.
    is_closed: bool,
    operations: u64,
    /// What the daemon may say without a request.
    messages: u64,
    /// Messages on their way to the daemon that it has not acknowledged.
    unread: u64,
    /// What the daemon may begin without a request, and how many contributions it has begun.
    early: u64,
    round: u64,
    /// By round: what the daemon may send of a contribution.
    contributions: BTreeMap<u64, Flowing>,
    /// Merges that the daemon was asked for.
    jobs: Vec<u64>,
    /// By operation and number: what the hub may send.
    up: BTreeMap<(u64, u32), Flowing>,
    /// By operation and node: what that node may send to the hub.
    down: BTreeMap<(u64, u32), Flowing>,
}

impl Default for Trial {
    fn default() -> Self {
        let subtree = std::iter::once(0).chain(BELOW).map(NodeId).collect();
        let mut hub = Hub::new(NodeId(0), 1, subtree);
        hub.expect(DAEMON, SESSION);
        // A new daemon has not opened its channel yet.
        let (_, closed) = mpsc::unbounded_channel();
        let heard = hub.open(DAEMON).unwrap_or(closed);
        let serves = hub.hear(DAEMON, FromDaemon::Serve { filter: FILTER.to_owned() });
        Self {
            hub,
            heard,
            is_closed: serves.is_err(),
            operations: 0,
            messages: CHANNEL_WINDOW_BYTES.into(),
            unread: 0,
            early: CHANNEL_WINDOW_BYTES.into(),
            round: 0,
            contributions: BTreeMap::new(),
            jobs: Vec::new(),
            up: BTreeMap::new(),
            down: BTreeMap::new(),
        }
    }
}

impl Trial {
    /// Gives the hub an input, and looks at what it does.
    ///
    /// # Errors
    /// A rule is broken.
    pub fn step(&mut self, (what, number, size): Step) -> Result<(), Broken> {
        let size = size % MOST_BYTES;
        let operation = u64::from(number) % (self.operations + 1);
        let bytes = || vec![number; size as usize];
        match what % 13 {
            0 => self.collect(number),
            1 => self.obey(ChannelOrder::End { operation }),
            2 => self.obey(ChannelOrder::Hurry { operation, patience_ms: 1 }),
            3 => {
                let to = MemberSet::of(Member { node: NodeId(0), daemon: DAEMON });
                let bytes = Blob(vec![number; size as usize / 4]);
                self.obey(ChannelOrder::Message { session: SESSION, to, tag: TAG, bytes });
            }
            4 => self.give_credit(operation, number, size),
            5 => self.begin_below(operation, number, size),
            6 => self.feed_below(operation, number, bytes()),
            7 => self.hub.lose(&NodeSet::from_range(NodeId(1)..=NodeId(u32::from(number) % 3)), number > 9),
            8 => self.begin_own(number, size)?,
            9 => self.feed_own(number, size)?,
            10 => {
                let cost = u64::from(cost_of(size as usize));
                if number >= HOSTILE || (size as usize <= MAX_MESSAGE_BYTES && cost <= self.messages) {
                    let word = Word::Data { label: number.into(), bytes: Blob(bytes()) };
                    self.say(FromDaemon::Flow { flow: DaemonFlow::Messages, word })?;
                }
            }
            11 => {
                let unread = u32::try_from(self.unread).unwrap_or(u32::MAX);
                let taken = if number >= HOSTILE { size } else { size.min(unread) };
                self.say(FromDaemon::Flow { flow: DaemonFlow::Inbox, word: Word::Credit(taken) })?;
            }
            _ => self.merge(number, bytes())?,
        }
        self.look()
    }

    /// The daemon has merged what it was given.
    fn merge(&mut self, number: u8, bytes: Vec<u8>) -> Result<(), Broken> {
        let job = if number >= HOSTILE { Some(number.into()) } else { self.jobs.pop() };
        let Some(job) = job else { return Ok(()) };
        self.say(FromDaemon::Merged {
            operation: job,
            bytes: Ok(Blob(bytes)),
            last: !number.is_multiple_of(16),
        })
    }

    /// The daemon begins a contribution.
    fn begin_own(&mut self, number: u8, size: u32) -> Result<(), Broken> {
        let (total, first) = (u64::from(size), (size as usize).min(CHUNK_BYTES));
        let cost = u64::from(cost_of(first));
        let is_hostile = number >= HOSTILE;
        if !is_hostile && cost > self.early {
            return Ok(());
        }
        let round = if is_hostile { u64::from(number) % 4 } else { self.round };
        let bytes = Blob(vec![number; first]);
        self.say(FromDaemon::Part { tag: TAG, round, total, bytes })?;
        if !self.is_closed {
            self.early = self.early.checked_sub(cost).ok_or(Broken("a contribution begins without room"))?;
            self.contributions.insert(round, Flowing { left: total - first as u64, room: 0 });
            self.round += 1;
        }
        Ok(())
    }

    /// The daemon goes on with a contribution, or gives it up.
    fn feed_own(&mut self, number: u8, size: u32) -> Result<(), Broken> {
        let is_open = |(_, flowing): &(&u64, &Flowing)| flowing.left.min(flowing.room) > 0;
        let found = self.contributions.iter().find(is_open).map(|(round, flowing)| (*round, *flowing));
        let (round, bytes) = match found {
            _ if number >= HOSTILE => (u64::from(number) % 4, u64::from(size)),
            Some((round, Flowing { left, room })) => (round, left.min(room).min(size.into())),
            None => return Ok(()),
        };
        let flow = DaemonFlow::Part { tag: TAG, round };
        let word = match usize::try_from(bytes) {
            Ok(bytes) if bytes > 0 => Word::data(vec![number; bytes]),
            _ => Word::End,
        };
        self.say(FromDaemon::Flow { flow, word })?;
        if let Some(flowing) = self.contributions.get_mut(&round) {
            (flowing.left, flowing.room) =
                (flowing.left.saturating_sub(bytes), flowing.room.saturating_sub(bytes));
        }
        if bytes == 0 {
            self.contributions.remove(&round);
        }
        Ok(())
    }

    fn obey(&mut self, order: ChannelOrder) {
        self.hub.obey(Some(RequestId(1)), order, true, &NodeSet::default());
    }

    fn collect(&mut self, number: u8) {
        self.operations += 1;
        let filter = match number % 4 {
            0 => None,
            1 => Some(Filter::Sum),
            2 => Some(Filter::Concatenate),
            _ => Some(Filter::Custom(FILTER.to_owned())),
        };
        let nodes = std::iter::once(0).chain(BELOW);
        let of = nodes.map(|node| Member { node: NodeId(node), daemon: DAEMON }).collect();
        let operation = self.operations;
        self.obey(ChannelOrder::Collect { session: SESSION, operation, tag: TAG, of, filter });
    }

    fn give_credit(&mut self, operation: u64, number: u8, size: u32) {
        if number.is_multiple_of(2) {
            // The tool only returns what it has taken.
            let taken = u64::from(CHANNEL_WINDOW_BYTES) - self.messages;
            let credit = size.min(u32::try_from(taken).unwrap_or(0));
            self.messages += u64::from(credit);
            return self.hub.earn(FlowId::Messages(DAEMON), credit);
        }
        let part = if number % 4 == 1 { DAEMON.0 } else { FIRST_MADE };
        if let Some(flowing) = self.up.get_mut(&(operation, part)) {
            flowing.room += u64::from(size);
        }
        self.hub.earn(FlowId::Part { operation, part }, size);
    }

    /// A node below begins a part.
    fn begin_below(&mut self, operation: u64, number: u8, size: u32) {
        let node = 1 + u32::from(number) % 2;
        let of = MemberSet::of(Member { node: NodeId(node), daemon: DAEMON });
        let (total, first) = (u64::from(size), (size as usize).min(CHUNK_BYTES));
        let left = total - first as u64;
        let notice =
            ChannelNotice::Part { operation, part: FIRST_MADE, of, total, bytes: Blob(vec![number; first]) };
        // A node sends each part once.
        if let Entry::Vacant(entry) = self.down.entry((operation, node)) {
            entry.insert(Flowing { left, room: 0 });
            drop(self.hub.rise(NodeId(node), notice));
        }
    }

    /// A node below goes on with a part, with or without credit. The relay gives the hub what it merges.
    fn feed_below(&mut self, operation: u64, number: u8, bytes: Vec<u8>) {
        let node = 1 + u32::from(number) % 2;
        if self.hub.merges(operation) {
            if let Some(flowing) = self.down.get_mut(&(operation, node)) {
                let bytes = bytes.len() as u64;
                if bytes <= flowing.room.min(flowing.left) {
                    (flowing.room, flowing.left) = (flowing.room - bytes, flowing.left - bytes);
                }
            }
            self.hub.feed(NodeId(node), operation, FIRST_MADE, bytes);
        }
    }

    /// The daemon says something. One that breaks the protocol is cut off.
    fn say(&mut self, said: FromDaemon) -> Result<(), Broken> {
        if self.is_closed {
            return Ok(());
        }
        let taken = match &said {
            FromDaemon::Flow { flow: DaemonFlow::Inbox, word: Word::Credit(bytes) } => u64::from(*bytes),
            _ => 0,
        };
        match self.hub.hear(DAEMON, said) {
            Ok(()) if taken > self.unread => {
                return Err(Broken("credit for what was never sent is accepted"));
            }
            Ok(()) => self.unread -= taken,
            Err(_) => {
                self.hub.closed(DAEMON);
                self.is_closed = true;
            }
        }
        Ok(())
    }

    /// Checks what the hub has done.
    fn look(&mut self) -> Result<(), Broken> {
        while let Ok(told) = self.heard.try_recv() {
            match told {
                ToDaemon::Message { bytes, .. } => self.unread += u64::from(cost_of(bytes.0.len())),
                ToDaemon::Flow { flow: DaemonFlow::Early, word: Word::Credit(bytes) } => {
                    self.early += u64::from(bytes);
                }
                ToDaemon::Flow { flow: DaemonFlow::Part { round, .. }, word: Word::Credit(bytes) } => {
                    if let Some(flowing) = self.contributions.get_mut(&round) {
                        flowing.room += u64::from(bytes);
                    }
                }
                ToDaemon::Merge { operation, last: true, .. } => self.jobs.push(operation),
                _ => {}
            }
        }
        if self.early > u64::from(CHANNEL_WINDOW_BYTES) {
            return Err(Broken("a daemon gets credit for what it has not begun"));
        }
        if self.unread > u64::from(CHANNEL_WINDOW_BYTES) {
            return Err(Broken("more is on its way to a daemon than its window"));
        }
        loop {
            let effects = self.hub.take_effects();
            if effects.is_empty() {
                return Ok(());
            }
            effects.into_iter().try_for_each(|effect| self.check(effect))?;
        }
    }

    fn check(&mut self, effect: Effect) -> Result<(), Broken> {
        match effect {
            Effect::Up(ChannelNotice::Part { operation, part, total, bytes, .. }) => {
                let first = bytes.0.len() as u64;
                if first != total.min(CHUNK_BYTES as u64) {
                    return Err(Broken("a part begins with other than its first chunk"));
                }
                let flowing = Flowing { left: total - first, room: 0 };
                match self.up.insert((operation, part), flowing) {
                    Some(_) => Err(Broken("a part begins twice")),
                    None => Ok(()),
                }
            }
            Effect::Say(FlowId::Part { operation, part }, Word::Data { bytes, .. }) => {
                let bytes = bytes.0.len() as u64;
                let flowing = self.up.get_mut(&(operation, part));
                let flowing = flowing.ok_or(Broken("a part goes on that has not begun"))?;
                let (Some(left), Some(room)) =
                    (flowing.left.checked_sub(bytes), flowing.room.checked_sub(bytes))
                else {
                    return Err(Broken("a part goes on without credit, or longer than it said"));
                };
                *flowing = Flowing { left, room };
                Ok(())
            }
            Effect::Say(FlowId::Messages(_), Word::Data { bytes, .. }) => {
                let left = self.messages.checked_sub(cost_of(bytes.0.len()).into());
                self.messages = left.ok_or(Broken("a daemon's message goes up without credit"))?;
                Ok(())
            }
            Effect::Credit(node, FlowId::Part { operation, .. }, bytes) => {
                let flowing = self.down.get_mut(&(operation, node.0));
                let flowing = flowing.ok_or(Broken("credit for a part that has not begun"))?;
                flowing.room += u64::from(bytes);
                match flowing.room > u64::from(PART_WINDOW_BYTES) {
                    true => Err(Broken("more credit than a window")),
                    false => Ok(()),
                }
            }
            Effect::Merge(operation, batch) => {
                self.hub.batch_merged(operation, batch.merge());
                Ok(())
            }
            Effect::Later(what, _) => {
                self.hub.due(what);
                Ok(())
            }
            Effect::Answer(..) | Effect::Up(ChannelNotice::Missing { .. }) => Ok(()),
            Effect::Say(..) | Effect::Credit(..) => Err(Broken("a word that the hub does not say")),
        }
    }
}
