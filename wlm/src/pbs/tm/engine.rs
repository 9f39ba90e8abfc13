//! One connection's requests and replies, without the connection: bytes out, bytes in.
//!
//! It decides two things. Replies go to their requesters, in any order and in pieces of any size. And a mom is never
//! sent more than it surely reads completely: the unconfirmed bytes are bounded, and if no reply confirms them, a
//! probe request is sent.

use std::collections::{HashMap, VecDeque};

use zeroize::Zeroizing;

use super::code::Code;
use super::dis::{DisError, Reader};
use super::error::{Asked, Loss, Nonsense, Result, TmError};
use super::id::{EventId, NodeId};
use super::packet::{self, Framing, LARGEST_REPLY_BYTES, LARGEST_REQUEST_BYTES};
use super::reply::{Answer, ReplyHead, decode_rest};
use super::request::{Caller, Command, Verb};

/// The maximum number of request bytes in flight. A mom reads in order, so a reply proves that it has read everything
/// before.
const MOST_UNREAD_BYTES: u64 = LARGEST_REQUEST_BYTES as u64;

/// The most bytes of an incomplete answer without a packet length: decoding starts again with each piece.
const LARGEST_BARE_BYTES: usize = 1024 * 1024;

/// The receiver of an answer.
pub trait Waiter {
    /// Whether the receiver is gone; then an unsent request is dropped.
    fn is_gone(&self) -> bool {
        false
    }
}

/// A request that has ended.
#[derive(Debug)]
pub struct Finished<W> {
    /// Its name.
    pub event: EventId,
    /// The request.
    pub asked: Asked,
    /// The receiver of the answer.
    pub waiter: W,
    /// How it ended.
    pub outcome: Result<Answer>,
}

/// The state of one connection.
#[derive(Debug)]
pub struct Engine<W> {
    caller: Caller,
    framing: Framing,
    last_event: EventId,
    /// Not sent yet.
    waiting: VecDeque<Waiting<W>>,
    /// Sent and not answered.
    pending: HashMap<EventId, Pending<W>>,
    /// The pending probe, whose answer confirms what was read.
    probe: Option<EventId>,
    sent: u64,
    read: u64,
    incoming: Vec<u8>,
    answered: bool,
    /// The only allowed nodes.
    nodes: Option<Vec<NodeId>>,
}

struct Waiting<W> {
    event: EventId,
    asked: Asked,
    waiter: W,
    packet: Zeroizing<Vec<u8>>,
}

impl<W> std::fmt::Debug for Waiting<W> {
    /// The packet contains the cookie.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}, {} bytes", self.event, self.asked, self.packet.len())
    }
}

#[derive(Debug)]
struct Pending<W> {
    asked: Asked,
    /// None: a probe.
    waiter: Option<W>,
    /// The position of its end among all sent bytes.
    end: u64,
}

impl<W: Waiter> Engine<W> {
    /// The state for a new connection of `caller`.
    #[must_use]
    pub fn new(caller: Caller, framing: Framing) -> Self {
        Self {
            caller,
            framing,
            last_event: EventId::NONE,
            waiting: VecDeque::new(),
            pending: HashMap::new(),
            probe: None,
            sent: 0,
            read: 0,
            incoming: Vec::new(),
            answered: false,
            nodes: None,
        }
    }

    /// Starts on another connection. Numbers of requests continue, so that all are different. Pending requests are
    /// dropped: [`lose`](Self::lose) them first.
    pub fn renew(&mut self) {
        let (last_event, nodes) = (self.last_event, self.nodes.take());
        *self = Self { last_event, nodes, ..Self::new(self.caller.clone(), self.framing) };
    }

    /// From now on only these nodes are allowed.
    pub fn restrict(&mut self, nodes: Vec<NodeId>) {
        self.nodes = Some(nodes);
    }

    /// Takes a request, which goes out with [`next_packet`](Self::next_packet).
    ///
    /// # Errors
    /// It cannot be sent: [`TmError::TooLarge`], [`TmError::Invalid`], [`TmError::AttachedCaller`]. The waiter is
    /// returned.
    pub fn submit(&mut self, command: &Command, waiter: W) -> std::result::Result<EventId, (TmError, W)> {
        let asked = Asked { verb: command.verb(), node: command.node() };
        let event = self.new_event();
        match self.packet(command, asked, event) {
            Ok(packet) => {
                self.waiting.push_back(Waiting { event, asked, waiter, packet });
                Ok(event)
            }
            Err(error) => Err((error, waiter)),
        }
    }

    /// The next bytes to write, in one piece. None: there is nothing to write, or the mom must read first.
    ///
    /// # Errors
    /// Never for requests that [`submit`](Self::submit) accepted.
    pub fn next_packet(&mut self) -> Result<Option<Zeroizing<Vec<u8>>>> {
        while self.waiting.front().is_some_and(|waiting| waiting.waiter.is_gone()) {
            self.waiting.pop_front();
        }
        let Some(next) = self.waiting.front() else { return Ok(None) };
        let unread = self.sent - self.read;
        // Without a cookie a mom answers only an attach. Those requests are small and few.
        if unread > 0 && unread + length(&next.packet) > MOST_UNREAD_BYTES && !self.caller.cookie.is_none() {
            return if self.probe.is_some() { Ok(None) } else { self.send_probe().map(Some) };
        }
        let Some(Waiting { event, asked, waiter, packet }) = self.waiting.pop_front() else {
            return Ok(None);
        };
        self.sent += length(&packet);
        self.pending.insert(event, Pending { asked, waiter: Some(waiter), end: self.sent });
        Ok(Some(packet))
    }

    /// Takes received bytes. Each request that they complete is passed to `finish`.
    ///
    /// # Errors
    /// The connection is unusable; end it with [`lose`](Self::lose).
    pub fn receive(
        &mut self,
        bytes: &[u8],
        mut finish: impl FnMut(Finished<W>),
    ) -> std::result::Result<(), Nonsense> {
        self.incoming.extend_from_slice(bytes);
        let mut used = 0;
        let result = loop {
            match self.read_reply(used) {
                Ok(Some((length, finished))) => {
                    used += length;
                    finished.into_iter().for_each(&mut finish);
                }
                Ok(None) => break Ok(()),
                Err(nonsense) => break Err(nonsense),
            }
        };
        self.incoming.drain(..used);
        result
    }

    /// Ends all requests, because the connection has ended.
    pub fn lose(&mut self, loss: &Loss, mut finish: impl FnMut(Finished<W>)) {
        let mut events: Vec<_> = self.pending.drain().collect();
        events.sort_by_key(|(event, _)| *event);
        let pending =
            events.into_iter().filter_map(|(event, pending)| Some((event, pending.asked, pending.waiter?)));
        let waiting = self.waiting.drain(..).map(|waiting| (waiting.event, waiting.asked, waiting.waiter));
        for (event, asked, waiter) in pending.chain(waiting) {
            finish(Finished {
                event,
                asked,
                waiter,
                outcome: Err(TmError::Lost { asked, loss: loss.clone() }),
            });
        }
        self.probe = None;
    }

    /// The meaning of a disconnect by the mom.
    #[must_use]
    pub fn hung_up(&self) -> Loss {
        if self.answered { Loss::HungUp } else { Loss::Distrust }
    }

    /// Whether unsent bytes wait until the mom has read earlier ones.
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        self.probe.is_some() && !self.waiting.is_empty()
    }

    /// The number of pending requests.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.waiting.len() + self.pending.values().filter(|pending| pending.waiter.is_some()).count()
    }

    fn new_event(&mut self) -> EventId {
        loop {
            let next = self.last_event.0.checked_add(1).unwrap_or(1);
            self.last_event = EventId(next);
            if !self.pending.contains_key(&self.last_event) {
                return self.last_event;
            }
        }
    }

    fn packet(&self, command: &Command, asked: Asked, event: EventId) -> Result<Zeroizing<Vec<u8>>> {
        let too_large = |bytes| TmError::TooLarge { asked, bytes, most: LARGEST_REQUEST_BYTES };
        if let Some(reason) = objection(command) {
            return Err(TmError::Invalid { asked, reason });
        }
        if let (Some(nodes), Some(node)) = (&self.nodes, asked.node)
            && !nodes.contains(&node)
        {
            return Err(TmError::AttachedCaller { asked });
        }
        let message = command.encode(&self.caller, event).map_err(|_| too_large(usize::MAX))?;
        let packet = match self.framing {
            Framing::Bare => message,
            Framing::Packets => {
                Zeroizing::new(packet::seal(&message).ok_or_else(|| too_large(message.len()))?)
            }
        };
        if packet.len() > LARGEST_REQUEST_BYTES { Err(too_large(packet.len())) } else { Ok(packet) }
    }

    /// Every mom answers a question about the caller itself and at once, even under load.
    fn send_probe(&mut self) -> Result<Zeroizing<Vec<u8>>> {
        let asked = Asked { verb: Verb::Init, node: None };
        let event = self.new_event();
        let packet = self.packet(&Command::Init, asked, event)?;
        self.sent += length(&packet);
        self.pending.insert(event, Pending { asked, waiter: None, end: self.sent });
        self.probe = Some(event);
        Ok(packet)
    }

    /// Parses the reply that starts at `from`, and its length. `None`: it is incomplete.
    #[expect(clippy::type_complexity, reason = "a private answer in two parts")]
    fn read_reply(
        &mut self,
        from: usize,
    ) -> std::result::Result<Option<(usize, Option<Finished<W>>)>, Nonsense> {
        let bytes = &self.incoming[from..];
        let (length, event, outcome) = match self.framing {
            Framing::Packets => {
                let Some((message, length)) = packet::open(bytes, LARGEST_REPLY_BYTES)? else {
                    return Ok(None);
                };
                let mut reader = Reader::new(message);
                let head = self.head(&mut reader)?;
                // An answer without a request does no harm: its length is known.
                let Some(pending) = self.pending.get(&head.event) else { return Ok(Some((length, None))) };
                let outcome = decode_rest(pending.asked.verb, head, &mut reader)?;
                reader.end()?;
                (length, head.event, outcome)
            }
            Framing::Bare => match self.read_bare(bytes) {
                Ok(read) => read,
                Err(Nonsense::Reply(DisError::Short)) if bytes.len() > LARGEST_BARE_BYTES => {
                    return Err(Nonsense::Endless(LARGEST_BARE_BYTES));
                }
                Err(Nonsense::Reply(DisError::Short)) => return Ok(None),
                Err(nonsense) => return Err(nonsense),
            },
        };
        Ok(Some((length, self.finish(event, outcome))))
    }

    fn read_bare(
        &self,
        bytes: &[u8],
    ) -> std::result::Result<(usize, EventId, std::result::Result<Answer, Code>), Nonsense> {
        let mut reader = Reader::new(bytes);
        let head = self.head(&mut reader)?;
        let pending = self.pending.get(&head.event).ok_or(Nonsense::Event(head.event.0))?;
        let outcome = decode_rest(pending.asked.verb, head, &mut reader)?;
        Ok((bytes.len() - reader.rest().len(), head.event, outcome))
    }

    fn head(&self, reader: &mut Reader<'_>) -> std::result::Result<ReplyHead, Nonsense> {
        let head = ReplyHead::decode(reader)?;
        if head.fits() {
            Ok(head)
        } else {
            Err(Nonsense::Protocol { protocol: head.protocol, version: head.version })
        }
    }

    fn finish(&mut self, event: EventId, outcome: std::result::Result<Answer, Code>) -> Option<Finished<W>> {
        let Pending { asked, waiter, end } = self.pending.remove(&event)?;
        self.answered = true;
        self.read = self.read.max(end);
        if self.probe == Some(event) {
            self.probe = None;
        }
        let outcome = outcome.map_err(|code| TmError::Refused { asked, code });
        Some(Finished { event, asked, waiter: waiter?, outcome })
    }
}

fn length(packet: &[u8]) -> u64 {
    u64::try_from(packet.len()).unwrap_or(u64::MAX)
}

/// A reason why a mom would disconnect at this request, or misread it.
fn objection(command: &Command) -> Option<&'static str> {
    if command.node().is_some_and(|node| node.0 < 0) {
        return Some("a node's number is not below zero");
    }
    match command {
        Command::Spawn { argv, variables, .. } => {
            if argv.first().is_none_or(Vec::is_empty) {
                return Some("there is no program");
            }
            if argv.iter().chain(variables).any(|text| text.contains(&0)) {
                return Some("a zero byte in an argument or a variable");
            }
            let named = |text: &Vec<u8>| text.iter().position(|byte| *byte == b'=').is_some_and(|at| at > 0);
            (!variables.iter().all(named)).then_some("a variable is not NAME=value")
        }
        Command::Publish { name, .. } | Command::Subscribe { name, .. } => {
            name.contains(&0).then_some("a zero byte in a name")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
