//! One daemon's end of its channel, as its agent keeps it: queued messages, and contributions not yet requested.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use gantry_shared::wire::channel::{
    CHANNEL_WINDOW_BYTES, CHUNK_BYTES, DaemonFlow, MAX_MESSAGE_BYTES, OVERHEAD_BYTES, ToDaemon, chunks_of,
    cost_of,
};
use gantry_shared::wire::flow::{Inflow, Outflow, Word};
use gantry_shared::wire::message::Blob;
use gantry_shared::wire::window::{Overrun, Receiver};
use gantry_types::error::{Failure, Kind};
use gantry_types::id::{DaemonId, SessionId};
use tokio::sync::mpsc;

use crate::overlay::Piece;

/// The limit on filters that one daemon may serve.
const MAX_FILTERS: usize = 16;

/// The limit on tags of one daemon's contributions. Each tag costs some bytes for as long as its session lives.
const MAX_TAGS: usize = 65_536;

pub(super) fn ended(daemon: DaemonId) -> Failure {
    Failure::new(Kind::Gone, format!("daemon {daemon} has ended or has closed its channel"))
}

pub(super) fn misbehaves(what: &str) -> Failure {
    Failure::new(Kind::Protocol, format!("serve a daemon's channel: {what}"))
}

fn overran(what: &str, overrun: Overrun) -> Failure {
    misbehaves(&format!("{what} without credit: {overrun}"))
}

/// A daemon's end.
#[derive(Debug)]
pub(super) struct Local {
    session: SessionId,
    link: Link,
    queue: VecDeque<Delivery>,
    inbox: Outflow,
    /// The tool gives the credit for the daemon's messages.
    messages: Receiver,
    serves: BTreeSet<String>,
    rounds: HashMap<u32, Rounds>,
    coming: BTreeMap<(u32, u64), Coming>,
    /// Contributions that no operation has requested yet.
    early: Inflow,
    /// Contributions that the daemon cancelled before an operation requested them.
    given_up: BTreeSet<(u32, u64)>,
}

#[derive(Debug)]
enum Link {
    /// Not yet opened.
    Awaited,
    Open(mpsc::UnboundedSender<ToDaemon>),
    Closed,
}

/// How many contributions with one tag operations have requested, and how many the daemon has begun.
#[derive(Debug, Default, Clone, Copy)]
struct Rounds {
    asked: u64,
    given: u64,
}

/// What the agent has of a contribution when an operation requests it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// Nothing yet.
    Later,
    /// Its first bytes.
    Begun { total: u64, bytes: Vec<u8> },
    /// Nothing, and nothing will come.
    Never,
}

/// An unfinished contribution.
#[derive(Debug)]
struct Coming {
    total: u64,
    received: u64,
    window: Receiver,
    /// The operation that takes it. None: no operation has requested it yet, and its first bytes wait here.
    operation: Option<u64>,
    early: Vec<u8>,
}

/// A message on its way to a daemon.
#[derive(Debug)]
pub(super) struct Delivery {
    tag: u32,
    receipt: u64,
    /// The bulk stream in which the message comes. None: it came with its order.
    stream: Option<u64>,
    /// What the agent has of it.
    pieces: VecDeque<Arc<Piece>>,
    /// How much of the first piece has been written.
    at: usize,
    begun: bool,
}

impl Delivery {
    /// A message that comes in a bulk stream.
    pub(super) fn stream(tag: u32, stream: u64, receipt: u64) -> Self {
        Self { tag, receipt, stream: Some(stream), pieces: VecDeque::new(), at: 0, begun: false }
    }

    /// A message that is one piece.
    pub(super) fn whole(tag: u32, piece: &Arc<Piece>, receipt: u64) -> Self {
        Self { stream: None, pieces: [Arc::clone(piece)].into(), ..Self::stream(tag, 0, receipt) }
    }

    /// How much of the limit on waiting messages it takes. The pieces of a stream have a limit of their own.
    fn cost(&self) -> u32 {
        match (self.stream, self.pieces.front()) {
            (None, Some(piece)) => cost_of(piece.plain.len()),
            _ => OVERHEAD_BYTES,
        }
    }

    /// The next bytes, and whether they are the last. None when the agent does not have them yet.
    fn next(&self) -> Option<(&[u8], bool)> {
        let piece = self.pieces.front()?;
        Some((piece.plain.get(self.at..)?, piece.last))
    }
}

impl Local {
    pub(super) fn new(session: SessionId) -> Self {
        Self {
            session,
            link: Link::Awaited,
            queue: VecDeque::new(),
            inbox: DaemonFlow::Inbox.outflow(),
            messages: Receiver::new(DaemonFlow::Messages.window()),
            serves: BTreeSet::new(),
            rounds: HashMap::new(),
            coming: BTreeMap::new(),
            early: DaemonFlow::Early.inflow(),
            given_up: BTreeSet::new(),
        }
    }

    pub(super) fn session(&self) -> SessionId {
        self.session
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self.link, Link::Open(_))
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(self.link, Link::Closed)
    }

    pub(super) fn open(&mut self) -> Result<mpsc::UnboundedReceiver<ToDaemon>, Failure> {
        if !matches!(self.link, Link::Awaited) {
            let why = Failure::new(Kind::Invalid, "open the channel: this daemon has opened it before");
            return Err(why.with_hint("open it once and keep it"));
        }
        let (to, from) = mpsc::unbounded_channel();
        self.link = Link::Open(to);
        Ok(from)
    }

    /// Nothing more comes from the daemon. Complete contributions stay: an operation may still request them.
    pub(super) fn close(&mut self) {
        self.link = Link::Closed;
        self.serves.clear();
        self.coming.retain(|_, it| it.operation.is_none() && it.received == it.total);
    }

    fn tell(&self, what: ToDaemon) {
        if let Link::Open(to) = &self.link {
            // The connection may have ended just now.
            drop(to.send(what));
        }
    }

    fn say(&self, flow: DaemonFlow, word: Word) {
        self.tell(ToDaemon::Flow { flow, word });
    }

    /// Queues a message for the daemon.
    pub(super) fn queue(&mut self, delivery: Delivery) -> Result<(), Failure> {
        if self.is_over() {
            return Err(Failure::new(Kind::Gone, "it has ended or has closed its channel"));
        }
        let waiting = self.queue.iter().map(Delivery::cost);
        // The frontend respects the window, so its messages stay below this limit.
        if waiting.fold(0_u32, u32::saturating_add) > 2 * CHANNEL_WINDOW_BYTES {
            return Err(Failure::new(Kind::NoAccess, "too much waits for it already"));
        }
        self.queue.push_back(delivery);
        Ok(())
    }

    /// Writes what the window has room for. Returns the receipts of the messages that are sent in full.
    pub(super) fn pump(&mut self) -> Vec<u64> {
        let mut done = Vec::new();
        let Link::Open(to) = &self.link else { return done };
        while let Some(first) = self.queue.front_mut() {
            let Some((rest, ends)) = first.next() else { break };
            let length = rest.len().min(CHUNK_BYTES);
            if !self.inbox.has_room(length) {
                break;
            }
            self.inbox.send(length);
            let piece_ends = length == rest.len();
            let last = ends && piece_ends;
            let bytes = Blob(rest[..length].to_vec());
            drop(to.send(ToDaemon::Message { tag: first.tag, bytes, last }));
            first.begun = true;
            first.at += length;
            if piece_ends {
                // Dropping the piece makes room for the next one.
                first.pieces.pop_front();
                first.at = 0;
            }
            if last {
                done.extend(self.queue.pop_front().map(|it| it.receipt));
            }
        }
        done
    }

    /// Adds the next piece of a stream, if the daemon is to receive it.
    pub(super) fn add_piece(&mut self, piece: &Arc<Piece>) {
        for delivery in self.queue.iter_mut().filter(|it| it.stream == Some(piece.stream)) {
            delivery.pieces.push_back(Arc::clone(piece));
        }
    }

    /// A stream is cut off. Returns its receipt, if the daemon was to receive it.
    pub(super) fn cut_stream(&mut self, stream: u64, why: &Failure) -> Option<u64> {
        let at = self.queue.iter().position(|it| it.stream == Some(stream))?;
        let cut = self.queue.remove(at)?;
        if cut.begun {
            self.tell(ToDaemon::Cut { why: why.clone() });
        }
        Some(cut.receipt)
    }

    /// Drops the queued messages and returns their receipts.
    pub(super) fn drop_queue(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.queue).into_iter().map(|it| it.receipt).collect()
    }

    /// The daemon has taken messages of this cost.
    pub(super) fn taken(&mut self, cost: u32) -> Result<(), Failure> {
        let back = self.inbox.earn_back(cost);
        back.map_err(|_| misbehaves("it has acknowledged more than it received"))
    }

    /// The daemon sends a message without a request. Returns its tag.
    pub(super) fn take_message(&mut self, label: u64, bytes: usize) -> Result<u32, Failure> {
        let tag = u32::try_from(label).map_err(|_| misbehaves("its message has no tag"))?;
        if bytes > MAX_MESSAGE_BYTES {
            return Err(misbehaves("its message is too long"));
        }
        self.messages.take(cost_of(bytes)).map_err(|overrun| overran("it sends messages", overrun))?;
        Ok(tag)
    }

    /// The tool gives credit for messages of the daemon.
    pub(super) fn earn(&mut self, bytes: u32) {
        self.messages.grant(bytes);
        self.say(DaemonFlow::Messages, Word::Credit(bytes));
    }

    pub(super) fn serve(&mut self, filter: String) -> Result<(), Failure> {
        if self.serves.len() >= MAX_FILTERS {
            return Err(misbehaves("it serves too many filters"));
        }
        self.serves.insert(filter);
        Ok(())
    }

    pub(super) fn serves(&self, filter: &str) -> bool {
        self.is_open() && self.serves.contains(filter)
    }

    /// Gives the daemon parts to merge. False if it does not serve the filter.
    pub(super) fn send_job(&self, filter: &str, operation: u64, parts: &[Arc<Vec<u8>>]) -> bool {
        if !self.serves(filter) {
            return false;
        }
        for (number, part) in (1..).zip(parts) {
            for (bytes, part_ends) in chunks_of(part) {
                let last = part_ends && number == parts.len();
                self.tell(ToDaemon::Merge { filter: filter.to_owned(), operation, bytes, part_ends, last });
            }
        }
        true
    }

    /// An operation requests the next contribution with this tag. Returns its round, and what the agent has of it.
    pub(super) fn ask(&mut self, operation: u64, tag: u32) -> (u64, Asked) {
        let rounds = self.rounds.entry(tag).or_default();
        let round = rounds.asked;
        rounds.asked += 1;
        let Some(coming) = self.coming.get_mut(&(tag, round)) else {
            let given_up = self.given_up.remove(&(tag, round));
            return (round, if given_up || self.is_over() { Asked::Never } else { Asked::Later });
        };
        coming.operation = Some(operation);
        let (total, bytes) = (coming.total, std::mem::take(&mut coming.early));
        if coming.received == coming.total {
            self.coming.remove(&(tag, round));
        }
        self.take_early(bytes.len());
        (round, Asked::Begun { total, bytes })
    }

    /// The first chunk of a contribution no longer waits.
    fn take_early(&mut self, bytes: usize) {
        if let Some(credit) = self.early.take(cost_of(bytes) as usize) {
            self.say(DaemonFlow::Early, Word::Credit(credit));
        }
    }

    /// The daemon begins a contribution, for `operation` if there is one.
    ///
    /// Returns the bytes that the caller must pass to an operation.
    pub(super) fn begin_part(
        &mut self,
        (tag, round): (u32, u64),
        total: u64,
        bytes: Vec<u8>,
        operation: Option<u64>,
    ) -> Result<Option<(u64, Vec<u8>)>, Failure> {
        let length = bytes.len() as u64;
        if self.rounds.len() >= MAX_TAGS && !self.rounds.contains_key(&tag) {
            return Err(misbehaves("it contributes with too many tags"));
        }
        let rounds = self.rounds.entry(tag).or_default();
        if round != rounds.given || length != total.min(CHUNK_BYTES as u64) {
            return Err(misbehaves("a contribution is out of order"));
        }
        let arrived = self.early.arrive(cost_of(bytes.len()) as usize);
        arrived.map_err(|overrun| overran("it contributes", overrun))?;
        rounds.given += 1;
        let waits = operation.is_none() && rounds.asked <= round;
        let mut coming =
            Coming { total, received: length, window: Receiver::new(0), operation, early: Vec::new() };
        if waits {
            coming.early = bytes;
            self.coming.insert((tag, round), coming);
            return Ok(None);
        }
        self.take_early(bytes.len());
        if operation.is_none() {
            // The operation that it was for is over.
            self.say(DaemonFlow::Part { tag, round }, Word::End);
        } else if length < total {
            self.coming.insert((tag, round), coming);
        }
        Ok(operation.map(|operation| (operation, bytes)))
    }

    /// Takes the next bytes of a contribution. Returns the operation that they are for, if it is not over, and whether
    /// they are the last.
    pub(super) fn take_part(
        &mut self,
        tag: u32,
        round: u64,
        bytes: usize,
    ) -> Result<Option<(u64, bool)>, Failure> {
        let Some(coming) = self.coming.get_mut(&(tag, round)) else {
            // The rest of a cancelled contribution was on its way.
            let begun = self.rounds.get(&tag).is_some_and(|rounds| round < rounds.given);
            return if begun { Ok(None) } else { Err(misbehaves("a contribution is out of order")) };
        };
        let left = coming.total - coming.received;
        if bytes as u64 > left {
            return Err(misbehaves("a contribution is longer than it said"));
        }
        let arrived = coming.window.take(u32::try_from(bytes).unwrap_or(u32::MAX));
        arrived.map_err(|overrun| overran("it contributes", overrun))?;
        coming.received += bytes as u64;
        let (operation, last) = (coming.operation, coming.received == coming.total);
        if last {
            self.coming.remove(&(tag, round));
        }
        Ok(operation.map(|operation| (operation, last)))
    }

    /// The daemon cancels a contribution.
    pub(super) fn give_up(&mut self, tag: u32, round: u64) {
        let Some(coming) = self.coming.remove(&(tag, round)) else { return };
        if coming.operation.is_none() {
            self.take_early(coming.early.len());
            if self.given_up.len() < MAX_TAGS {
                self.given_up.insert((tag, round));
            }
        }
    }

    /// The receiver of an operation's part gives credit for the contribution that is this part.
    pub(super) fn earn_part(&mut self, operation: u64, bytes: u32) {
        let of_it = self.coming.iter_mut().find(|(_, it)| it.operation == Some(operation));
        if let Some(((tag, round), coming)) = of_it {
            coming.window.grant(bytes);
            let flow = DaemonFlow::Part { tag: *tag, round: *round };
            self.say(flow, Word::Credit(bytes));
        }
    }

    /// An operation is over: the agent drops what still arrives for it.
    pub(super) fn over(&mut self, operation: u64) {
        let of_it: Vec<(u32, u64)> = self
            .coming
            .iter()
            .filter(|(_, it)| it.operation == Some(operation))
            .map(|(key, _)| *key)
            .collect();
        for (tag, round) in of_it {
            self.coming.remove(&(tag, round));
            self.say(DaemonFlow::Part { tag, round }, Word::End);
        }
    }
}
