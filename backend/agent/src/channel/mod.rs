//! The agent's part in channels: it passes messages to and from its node's daemons, and merges contributions.
//!
//! | module | contents |
//! | --- | --- |
//! | [`local`] | one daemon's end: queued messages, and contributions that no operation has requested yet |
//! | [`collection`] | one operation: which contributions are still owed, what goes up |
//! | [`merging`] | parts that this node merges, by a built-in filter or by a daemon that serves one |
//! | [`filtering`] | merging by the built-in filters; large amounts merge on a separate thread |
//! | [`connection`] | a daemon's socket |
//!
//! [`Hub`] is a synchronous part of the overlay's relay. The relay passes every input to it and carries out the
//! [`Effect`]s that it returns. The hub never waits. Windows bound its memory: the agent closes the channel of a daemon
//! that sends more than its credit.

mod local;
mod collection;
mod merging;
mod filtering;
mod outcome;
pub(crate) mod connection;
#[cfg(any(test, feature = "fuzz"))]
pub mod trial;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use gantry_shared::wire::channel::{
    CHUNK_BYTES, ChannelNotice, ChannelOrder, DaemonFlow, FIRST_MADE, FromDaemon, MAX_PART_BYTES, Member,
    MemberSet, ToDaemon,
};
use gantry_shared::wire::flow::{FlowId, Word, message_label};
use gantry_shared::wire::message::Answer;
use gantry_types::error::{Failure, Kind};
use gantry_types::filter::Filter;
use gantry_types::id::{DaemonId, NodeId, RequestId, SessionId};
use gantry_types::rank_set::NodeSet;
use tokio::sync::mpsc;

use self::collection::Collection;
pub(crate) use self::filtering::{Batch, Merged};
use self::local::{Asked, Delivery, Local};
pub(crate) use self::outcome::{Effect, Later};
use self::outcome::{Job, Out, PartKey};
use crate::overlay::Piece;

/// The limit on concurrent operations on a node.
const MAX_COLLECTIONS: usize = 256;

/// How long a daemon's connection may outlive its process: a process that the daemon left behind may hold it open.
const LAST_BYTES: Duration = Duration::from_millis(500);

/// All channels of this node. Part of the relay.
#[derive(Debug)]
pub(crate) struct Hub {
    node: NodeId,
    /// Levels of the tree below this node.
    height: u32,
    subtree: NodeSet,
    locals: BTreeMap<DaemonId, Local>,
    receipts: HashMap<u64, Receipt>,
    collections: BTreeMap<u64, Collection>,
    last: u64,
    effects: Vec<Effect>,
}

/// Counts the daemons that have yet to receive a message.
#[derive(Debug)]
struct Receipt {
    request: Option<RequestId>,
    owed: usize,
    failed: Vec<(DaemonId, Failure)>,
}

impl Hub {
    /// No daemons, no operations.
    pub(crate) fn new(node: NodeId, height: u32, subtree: NodeSet) -> Self {
        Self {
            node,
            height,
            subtree,
            locals: BTreeMap::new(),
            receipts: HashMap::new(),
            collections: BTreeMap::new(),
            last: 0,
            effects: Vec::new(),
        }
    }

    /// Takes the effects that have gathered since the last call.
    pub(crate) fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// Obeys an order from above.
    ///
    /// `own`: the order is for this node, too. `away`: nodes below that have left.
    pub(crate) fn obey(
        &mut self,
        request: Option<RequestId>,
        order: ChannelOrder,
        own: bool,
        away: &NodeSet,
    ) {
        match order {
            ChannelOrder::Message { session, to, tag, bytes } if own => {
                let piece = Arc::new(Piece::alone(bytes.0));
                self.deliver(request, session, &to, |receipt| Delivery::whole(tag, &piece, receipt));
            }
            ChannelOrder::Stream { session, to, tag, stream } if own => {
                self.deliver(request, session, &to, |receipt| Delivery::stream(tag, stream, receipt));
            }
            ChannelOrder::Collect { session, operation, tag, of, filter } => {
                self.collect(session, operation, tag, &of, filter, away);
            }
            ChannelOrder::Hurry { operation, patience_ms } => self.hurry(operation, patience_ms),
            ChannelOrder::End { operation } => self.end(operation),
            ChannelOrder::Message { .. } | ChannelOrder::Stream { .. } => {}
        }
    }

    /// The receiver of one of this node's flows gives credit.
    pub(crate) fn earn(&mut self, flow: FlowId, bytes: u32) {
        match flow {
            FlowId::Messages(daemon) => {
                if let Some(local) = self.locals.get_mut(&daemon) {
                    local.earn(bytes);
                }
            }
            FlowId::Part { operation, part: part @ FIRST_MADE.. } => {
                self.with(operation, |collection, out| collection.earn(part, bytes, out));
            }
            FlowId::Part { operation, part } => {
                if let Some(local) = self.locals.get_mut(&DaemonId(part)) {
                    local.earn_part(operation, bytes);
                }
            }
            FlowId::Output(_) | FlowId::Input(_) | FlowId::Items | FlowId::Link(_) => {}
        }
    }

    /// Queues a message for its addressees on this node.
    ///
    /// The hub answers the request when every addressee has the message or has failed.
    fn deliver(
        &mut self,
        request: Option<RequestId>,
        session: SessionId,
        to: &MemberSet,
        make: impl Fn(u64) -> Delivery,
    ) {
        self.last += 1;
        let receipt = self.last;
        let (mut takers, mut failed) = (Vec::new(), Vec::new());
        for daemon in to.daemons_on(self.node) {
            let queued = match self.locals.get_mut(&daemon).filter(|local| local.session() == session) {
                Some(local) => local.queue(make(receipt)),
                None => Err(local::ended(daemon)),
            };
            match queued {
                Ok(()) => takers.push(daemon),
                Err(failure) => failed.push((daemon, failure)),
            }
        }
        self.receipts.insert(receipt, Receipt { request, owed: takers.len() + 1, failed });
        // This settles the extra one that is counted above.
        self.delivered(receipt, Ok(()));
        takers.into_iter().for_each(|daemon| self.pump(daemon));
    }

    /// One addressee of a message has it, or never will.
    fn delivered(&mut self, receipt: u64, outcome: Result<(), (DaemonId, Failure)>) {
        let Some(known) = self.receipts.get_mut(&receipt) else { return };
        known.owed -= 1;
        known.failed.extend(outcome.err());
        if known.owed == 0
            && let Some(Receipt { request: Some(request), failed, .. }) = self.receipts.remove(&receipt)
        {
            let answer = if failed.is_empty() { Answer::Done } else { Answer::Undelivered(failed) };
            self.effects.push(Effect::Answer(request, Ok(answer)));
        }
    }

    fn pump(&mut self, daemon: DaemonId) {
        let done = self.locals.get_mut(&daemon).map(Local::pump).unwrap_or_default();
        done.into_iter().for_each(|receipt| self.delivered(receipt, Ok(())));
    }

    /// Takes the next bytes of a bulk stream that is a message.
    pub(crate) fn take_piece(&mut self, piece: Piece) {
        let piece = Arc::new(piece);
        let daemons: Vec<DaemonId> = self.locals.keys().copied().collect();
        for daemon in daemons {
            let Some(local) = self.locals.get_mut(&daemon) else { continue };
            match &piece.aborted {
                None => local.add_piece(&piece),
                Some(why) => {
                    if let Some(receipt) = local.cut_stream(piece.stream, why) {
                        self.delivered(receipt, Err((daemon, why.clone())));
                    }
                }
            }
            self.pump(daemon);
        }
    }

    /// The agent will start this daemon: from now on the daemon is a member.
    pub(crate) fn expect(&mut self, daemon: DaemonId, session: SessionId) {
        self.locals.insert(daemon, Local::new(session));
    }

    /// A daemon's process has ended. The hub still takes what the daemon sent before.
    pub(crate) fn ended(&mut self, daemon: DaemonId) {
        match self.locals.get_mut(&daemon) {
            Some(local) if local.is_open() => {
                self.effects.push(Effect::Later(Later::Close(daemon), LAST_BYTES))
            }
            Some(_) => self.closed(daemon),
            None => {}
        }
    }

    /// A session is closed: the hub forgets its operations and members.
    pub(crate) fn forget_session(&mut self, session: SessionId) {
        let daemons: Vec<_> =
            self.locals.iter().filter(|(_, it)| it.session() == session).map(|(id, _)| *id).collect();
        daemons.iter().for_each(|daemon| self.closed(*daemon));
        self.locals.retain(|_, local| local.session() != session);
        self.collections.retain(|_, collection| collection.session != session);
    }

    /// The link to the frontend is lost, and with it all channels.
    pub(crate) fn forget_all(&mut self) {
        self.collections.clear();
        self.locals.values_mut().for_each(Local::close);
        self.effects.clear();
    }

    /// A daemon opens its end. The returned receiver yields the messages for it.
    pub(crate) fn open(&mut self, daemon: DaemonId) -> Result<mpsc::UnboundedReceiver<ToDaemon>, Failure> {
        let local = self.locals.get_mut(&daemon).ok_or_else(|| local::ended(daemon))?;
        let from = local.open()?;
        self.pump(daemon);
        Ok(from)
    }

    /// A daemon's connection has ended, or its process has ended without opening one.
    pub(crate) fn closed(&mut self, daemon: DaemonId) {
        let Some(local) = self.locals.get_mut(&daemon) else { return };
        local.close();
        for receipt in local.drop_queue() {
            self.delivered(receipt, Err((daemon, local::ended(daemon))));
        }
        let operations: Vec<u64> = self.collections.keys().copied().collect();
        for operation in operations {
            self.with(operation, |collection, out| collection.local_over(daemon, local::ended(daemon), out));
        }
    }

    /// Takes a daemon's message. An error: the daemon violates the protocol.
    pub(crate) fn hear(&mut self, daemon: DaemonId, said: FromDaemon) -> Result<(), Failure> {
        let Some(local) = self.locals.get_mut(&daemon) else { return Err(local::ended(daemon)) };
        match said {
            FromDaemon::Flow { flow, word } => self.hear_flow(daemon, flow, word)?,
            FromDaemon::Serve { filter } => local.serve(filter)?,
            FromDaemon::Part { tag, round, total, bytes } => {
                if total > MAX_PART_BYTES || bytes.0.len() > CHUNK_BYTES {
                    return Err(local::misbehaves("it contributes more than is allowed"));
                }
                let operation = self.find_operation(daemon, tag, round);
                let local = self.locals.get_mut(&daemon).ok_or_else(|| local::ended(daemon))?;
                if let Some((operation, bytes)) = local.begin_part((tag, round), total, bytes.0, operation)? {
                    self.begin_local(operation, daemon, total, bytes);
                }
            }
            FromDaemon::Merged { operation, bytes, last } => {
                let bytes = bytes.map(|blob| blob.0);
                self.with(operation, |collection, out| collection.merged(daemon, bytes, last, out));
            }
        }
        Ok(())
    }

    /// Takes a word of a daemon on one of its flows.
    fn hear_flow(&mut self, daemon: DaemonId, flow: DaemonFlow, word: Word) -> Result<(), Failure> {
        let local = self.locals.get_mut(&daemon).ok_or_else(|| local::ended(daemon))?;
        match (flow, word) {
            (DaemonFlow::Messages, Word::Data { label, bytes }) => {
                let tag = local.take_message(label, bytes.0.len())?;
                let label = message_label(local.session(), tag);
                self.effects.push(Effect::Say(FlowId::Messages(daemon), Word::Data { label, bytes }));
            }
            (DaemonFlow::Inbox, Word::Credit(bytes)) => {
                local.taken(bytes)?;
                self.pump(daemon);
            }
            (DaemonFlow::Part { tag, round }, Word::Data { bytes, .. }) => {
                if let Some((operation, last)) = local.take_part(tag, round, bytes.0.len())? {
                    self.with(operation, |collection, out| collection.feed_local(daemon, bytes.0, last, out));
                }
            }
            (DaemonFlow::Part { tag, round }, Word::End) => {
                local.give_up(tag, round);
                if let Some(operation) = self.find_operation(daemon, tag, round) {
                    let why =
                        Failure::new(Kind::TimedOut, format!("daemon {daemon} gave up its contribution"));
                    self.with(operation, |collection, out| collection.local_over(daemon, why, out));
                }
            }
            _ => return Err(local::misbehaves("it says on a flow what only its other end says")),
        }
        Ok(())
    }

    fn find_operation(&self, daemon: DaemonId, tag: u32, round: u64) -> Option<u64> {
        let wanted = |it: &&u64| self.collections.get(it).is_some_and(|it| it.waits_for(daemon, tag, round));
        self.collections.keys().find(wanted).copied()
    }

    fn collect(
        &mut self,
        session: SessionId,
        operation: u64,
        tag: u32,
        of: &MemberSet,
        filter: Option<Filter>,
        away: &NodeSet,
    ) {
        let here = of.on(&self.subtree);
        let left = here.on(away);
        if !left.is_empty() {
            self.miss(operation, left.clone(), Failure::new(Kind::Gone, "its agent has left"));
        }
        if self.collections.len() >= MAX_COLLECTIONS {
            let own = here.on(&NodeSet::from_range(self.node..=self.node));
            let why = format!("collect contributions: {MAX_COLLECTIONS} operations are under way here");
            return self.miss(operation, own, Failure::new(Kind::NoAccess, why));
        }
        let server = filter.as_ref().and_then(|filter| match filter {
            Filter::Custom(name) => {
                let serving = self.locals.iter().find(|(_, it)| it.session() == session && it.serves(name));
                serving.map(|(daemon, _)| *daemon)
            }
            _ => None,
        });
        let mut collection = Collection::new(session, operation, tag, self.node, filter.as_ref(), server);
        let mut early = Vec::new();
        let mut gone = Vec::new();
        for daemon in here.daemons_on(self.node) {
            let Some(local) = self.locals.get_mut(&daemon).filter(|local| local.session() == session) else {
                collection.expect_local(daemon, u64::MAX);
                gone.push(daemon);
                continue;
            };
            let (round, asked) = local.ask(operation, tag);
            collection.expect_local(daemon, round);
            match asked {
                Asked::Begun { total, bytes } => early.push((daemon, total, bytes)),
                Asked::Never => gone.push(daemon),
                Asked::Later => {}
            }
        }
        collection.expect_all(here.difference(&left));
        self.collections.insert(operation, collection);
        for (daemon, total, bytes) in early {
            self.begin_local(operation, daemon, total, bytes);
        }
        for daemon in gone {
            self.with(operation, |collection, out| collection.local_over(daemon, local::ended(daemon), out));
        }
        self.with(operation, Collection::go_on);
    }

    fn miss(&mut self, operation: u64, of: MemberSet, why: Failure) {
        self.effects.push(Effect::Up(ChannelNotice::Missing { operation, of, why }));
    }

    fn begin_local(&mut self, operation: u64, daemon: DaemonId, total: u64, bytes: Vec<u8>) {
        let key = PartKey { node: self.node, part: daemon.0 };
        let of = MemberSet::of(Member { node: self.node, daemon });
        self.with(operation, |collection, out| collection.begin(key, of, total, bytes, out));
    }

    /// Takes a notice from below. The caller has checked that its sender may speak for these nodes.
    ///
    /// Returns the notice if it must go up unchanged.
    pub(crate) fn rise(&mut self, node: NodeId, notice: ChannelNotice) -> Option<ChannelNotice> {
        match notice {
            ChannelNotice::Part { operation, part, of, total, bytes } if self.merges(operation) => {
                let key = PartKey { node, part };
                self.with(operation, |collection, out| collection.begin(key, of, total, bytes.0, out));
                None
            }
            ChannelNotice::Missing { operation, of, why } => {
                self.with(operation, |collection, out| collection.missing(&of, out));
                Some(ChannelNotice::Missing { operation, of, why })
            }
            other => Some(other),
        }
    }

    /// Takes the next bytes of a part from below, of an operation that this node [merges](Self::merges).
    pub(crate) fn feed(&mut self, node: NodeId, operation: u64, part: u32, bytes: Vec<u8>) {
        let key = PartKey { node, part };
        self.with(operation, |collection, out| collection.feed(key, &bytes, out));
    }

    /// Whether this node merges the parts of this operation.
    pub(crate) fn merges(&self, operation: u64) -> bool {
        self.collections.get(&operation).is_some_and(Collection::merges)
    }

    /// Nodes further down are lost. `silently`: the frontend learns of it only from this operation's notice.
    pub(crate) fn lose(&mut self, nodes: &NodeSet, silently: bool) {
        let operations: Vec<u64> = self.collections.keys().copied().collect();
        for operation in operations {
            let lost = self.collections.get(&operation).map(|it| it.owed_on(nodes)).unwrap_or_default();
            if silently && !lost.is_empty() {
                self.miss(operation, lost, Failure::new(Kind::Gone, "its agent has left"));
            }
            self.with(operation, |collection, out| collection.lose(nodes, out));
        }
    }

    fn hurry(&mut self, operation: u64, patience_ms: u32) {
        let Some(collection) = self.collections.get_mut(&operation) else { return };
        let late = collection.late();
        for daemon in late {
            if let Some(local) = self.locals.get_mut(&daemon) {
                local.over(operation);
            }
            let why = Failure::new(Kind::TimedOut, "it did not contribute in time");
            self.with(operation, |collection, out| collection.local_over(daemon, why, out));
        }
        if self.merges(operation) {
            let patience = Duration::from_millis(u64::from(patience_ms)) * self.height;
            self.effects.push(Effect::Later(Later::Expire(operation), patience));
        }
    }

    /// A [`Batch`] of this operation has been merged.
    pub(crate) fn batch_merged(&mut self, operation: u64, merged: Merged) {
        self.with(operation, |collection, out| collection.batch_merged(merged, out));
    }

    /// A timer has fired.
    pub(crate) fn due(&mut self, what: Later) {
        match what {
            Later::Expire(operation) => self.with(operation, Collection::expire),
            Later::Close(daemon) => self.closed(daemon),
        }
    }

    fn end(&mut self, operation: u64) {
        if self.collections.remove(&operation).is_some() {
            self.locals.values_mut().for_each(|local| local.over(operation));
        }
    }

    /// Runs `act` on an operation, and turns its output into effects.
    fn with(&mut self, operation: u64, act: impl FnOnce(&mut Collection, &mut Out)) {
        let Some(collection) = self.collections.get_mut(&operation) else { return };
        let mut out = Out::default();
        act(collection, &mut out);
        self.carry_out(operation, out);
    }

    /// Turns the output of an operation into effects. Not a part of [`Hub::with`], which is compiled for every caller.
    fn carry_out(&mut self, operation: u64, out: Out) {
        self.effects.extend(out.chunks);
        for (of, why) in out.missing {
            self.miss(operation, of, why);
        }
        for (PartKey { node, part }, bytes) in out.credit {
            let flow = FlowId::Part { operation, part };
            if node == self.node {
                self.earn(flow, bytes);
            } else {
                self.effects.push(Effect::Credit(node, flow, bytes));
            }
        }
        if let Some(batch) = out.batch {
            self.effects.push(Effect::Merge(operation, batch));
        }
        if let Some(Job { daemon, filter, parts }) = out.job
            && !self.locals.get(&daemon).is_some_and(|local| local.send_job(&filter, operation, &parts))
        {
            self.with(operation, Collection::job_refused);
        }
    }
}

#[cfg(test)]
mod tests;
