//! State of rendezvous on this node: which process waits for what, and which items are on their way.
//!
//! It decides and never waits. The agent takes its messages for the frontend with [`Desk::take_notices`].

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use gantry_shared::wire::flow::{FlowId, Outflow, Word};
use gantry_shared::wire::message::{Answer, Blob, Notice};
use gantry_shared::wire::rendezvous::{
    Gate, Key, PIECE_BYTES, Refusal, RendezvousNotice, RendezvousOrder, Want,
};
use gantry_types::error::{Failure, Kind};
use gantry_types::id::{NodeId, Rank, RequestId};
use gantry_types::rendezvous::{Resource, Status};
use tokio::sync::{mpsc, oneshot};

use super::room::Room;
use crate::overlay::Piece;

/// The sender for a process's answer.
pub(crate) type Told<T> = oneshot::Sender<Result<T, Refusal>>;

/// A process's request.
#[derive(Debug)]
pub(crate) enum Request {
    /// To register its item.
    Put {
        /// The rendezvous.
        of: Gate,
        /// The rank that registers.
        rank: Rank,
        /// The whole item.
        item: Vec<u8>,
        /// Room for the item, freed when the item has left this node.
        room: Room,
        /// Gets the answer.
        told: Told<()>,
    },
    /// To get data once it is complete.
    Get {
        /// Which data.
        key: Key,
        /// Gets the bytes.
        told: Told<Arc<Vec<u8>>>,
    },
    /// All ranks of this node have entered a fence. To register what they have put, and to get what all nodes have put.
    Fence {
        /// The fence's number.
        number: u32,
        /// What they have put. At most [`MAX_SMALL_BYTES`].
        puts: Vec<u8>,
        /// Gets what all nodes have put.
        told: Told<Arc<Vec<u8>>>,
    },
    /// The status of one rendezvous, or of all.
    Status {
        /// Which one; all, if `None`.
        of: Option<Gate>,
        /// Gets the answer.
        told: Told<Vec<Status>>,
    },
    /// A rank opens a link.
    Open {
        /// Its number.
        link: u32,
        /// Its rank.
        rank: Rank,
        /// Gets the words from the frontend.
        down: mpsc::UnboundedSender<Word>,
    },
    /// A word on a rank's link.
    Word {
        /// The link's number.
        link: u32,
        /// The word.
        word: Word,
    },
    /// A rank wants to be served as an MPI program. The agent answers this one itself.
    Mpi {
        /// The rank.
        rank: Rank,
        /// The agent's end of its connection.
        socket: OwnedFd,
    },
    /// A connection of a rank was not accepted, for the first time.
    NotAccepted(std::io::Error),
}

/// An item on its way up.
#[derive(Debug)]
struct Outgoing {
    number: u64,
    item: Vec<u8>,
    sent: usize,
    _room: Room,
}

/// A registration that the frontend has not answered.
#[derive(Debug)]
struct Put {
    number: u64,
    of: Gate,
    rank: Rank,
    told: Told<()>,
}

/// Bulk data on its way here.
#[derive(Debug)]
struct Coming {
    key: Key,
    bytes: u64,
    request: Option<RequestId>,
    data: Vec<u8>,
}

/// All rendezvous state of this node.
#[derive(Debug)]
pub(crate) struct Desk {
    node: NodeId,
    items: Outflow,
    /// Number of items so far.
    count: u64,
    outgoing: VecDeque<Outgoing>,
    // Lists that are searched. They are at most as long as the node has ranks, and maps would make the agent larger.
    puts: Vec<Put>,
    gets: Vec<(Key, Told<Arc<Vec<u8>>>)>,
    asks: Vec<(Option<Gate>, Told<Vec<Status>>)>,
    /// Aggregates that a process here has waited for. The next process gets them at once.
    kept: Vec<(Key, Arc<Vec<u8>>)>,
    streams: Vec<(u64, Coming)>,
    links: Vec<(u32, mpsc::UnboundedSender<Word>)>,
    notices: Vec<Notice>,
    /// The frontend is gone.
    alone: bool,
}

impl Desk {
    /// The rendezvous of this node.
    pub(crate) fn new(node: NodeId) -> Self {
        Self {
            node,
            items: Outflow::up(FlowId::Items),
            count: 0,
            outgoing: VecDeque::new(),
            puts: Vec::new(),
            gets: Vec::new(),
            asks: Vec::new(),
            kept: Vec::new(),
            streams: Vec::new(),
            links: Vec::new(),
            notices: Vec::new(),
            alone: false,
        }
    }

    /// Whether the frontend is gone.
    pub(crate) fn is_alone(&self) -> bool {
        self.alone
    }

    /// The messages for the frontend, in order.
    pub(crate) fn take_notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    /// Takes a process's request. The process may be gone when the answer arrives.
    pub(crate) fn ask(&mut self, request: Request) {
        match request {
            Request::Put { told, .. } if self.alone => drop(told.send(Err(alone()))),
            Request::Get { told, .. } if self.alone => drop(told.send(Err(alone()))),
            Request::Fence { told, .. } if self.alone => drop(told.send(Err(alone()))),
            Request::Status { told, .. } if self.alone => drop(told.send(Err(alone()))),
            Request::Put { of, rank, item, room, told } => self.put(of, rank, item, room, told),
            Request::Get { key, told } => self.get(key, told),
            Request::Fence { number, puts, told } => {
                let of = Gate { resource: Resource::Fence(number), expected: None };
                self.gets.push((Key { of, want: Want::All }, told));
                self.report(RendezvousNotice::Fence { number, puts: vec![(self.node, Blob(puts))] });
            }
            Request::Status { of, told } => {
                self.asks.push((of.clone(), told));
                // The answer to an earlier question may be older than this one.
                self.report(RendezvousNotice::Status(of));
            }
            // Dropping its sender ends the link.
            Request::Open { .. } if self.alone => {}
            Request::Open { link, rank, down } => {
                self.links.push((link, down));
                self.say(FlowId::Link(link), Word::Open(rank));
            }
            Request::Mpi { .. } | Request::NotAccepted(_) => {}
            Request::Word { link, word } => {
                if word == Word::End {
                    self.links.retain(|(known, _)| *known != link);
                }
                self.say(FlowId::Link(link), word);
            }
        }
    }

    fn report(&mut self, notice: RendezvousNotice) {
        self.notices.push(Notice::Rendezvous(notice));
    }

    fn say(&mut self, flow: FlowId, word: Word) {
        self.notices.push(Notice::Flow { flow, word });
    }

    fn put(&mut self, of: Gate, rank: Rank, item: Vec<u8>, room: Room, told: Told<()>) {
        if self.puts.iter().any(|put| put.of == of && put.rank == rank) {
            let twice =
                Failure::new(Kind::Invalid, format!("register rank {rank}: it has registered already"));
            return drop(told.send(Err(twice.into())));
        }
        let number = self.count;
        self.count += 1;
        self.puts.push(Put { number, of: of.clone(), rank, told });
        self.report(RendezvousNotice::Put { item: number, of, rank, bytes: item.len() as u64 });
        if !item.is_empty() {
            self.outgoing.push_back(Outgoing { number, item, sent: 0, _room: room });
            self.send();
        }
    }

    fn get(&mut self, key: Key, told: Told<Arc<Vec<u8>>>) {
        if let Some((_, data)) = self.kept.iter().find(|(kept, _)| *kept == key) {
            return drop(told.send(Ok(Arc::clone(data))));
        }
        let asked = self.gets.iter().any(|(waits_for, _)| *waits_for == key);
        // Forget processes that are gone.
        self.gets.retain(|(waits_for, told)| *waits_for != key || !told.is_closed());
        if !asked {
            self.report(RendezvousNotice::Get(key.clone()));
        }
        self.gets.push((key, told));
    }

    /// Sends pieces as long as the credit lasts.
    fn send(&mut self) {
        while let Some(first) = self.outgoing.front_mut() {
            let rest = first.item.get(first.sent..).unwrap_or_default();
            let piece = rest.get(..self.items.fits(rest.len().min(PIECE_BYTES))).unwrap_or_default();
            if piece.is_empty() {
                return;
            }
            self.items.send(piece.len());
            first.sent += piece.len();
            let word = Word::Data { label: first.number, bytes: Blob(piece.to_vec()) };
            if first.sent == first.item.len() {
                self.outgoing.pop_front();
            }
            self.say(FlowId::Items, word);
        }
    }

    /// Takes a word from the frontend on the flow of items.
    pub(crate) fn hear_items(&mut self, word: &Word) {
        if let Word::Credit(bytes) = word {
            self.items.earn(*bytes);
            self.send();
        }
    }

    /// Takes a word from the frontend on a rank's link.
    pub(crate) fn hear_link(&self, link: u32, word: Word) {
        if let Some((_, down)) = self.links.iter().find(|(known, _)| *known == link) {
            // A failed send means that the link has ended meanwhile, and is about to report that.
            drop(down.send(word));
        }
    }

    /// Takes an order of the frontend. An order that announces a stream is answered when the stream is complete.
    pub(crate) fn obey(&mut self, request: Option<RequestId>, order: RendezvousOrder) {
        match order {
            RendezvousOrder::Registered { item, outcome } => {
                if outcome.is_err() {
                    self.outgoing.retain(|it| it.number != item);
                }
                if let Some(at) = self.puts.iter().position(|put| put.number == item) {
                    drop(self.puts.swap_remove(at).told.send(outcome));
                }
            }
            RendezvousOrder::Got { key, outcome } => {
                self.got(key, outcome.map(|Blob(bytes)| Arc::new(bytes)));
            }
            RendezvousOrder::Stream { key, stream, bytes } => {
                let coming = Coming { key, bytes, request, data: Vec::new() };
                self.streams.push((stream, coming));
            }
            RendezvousOrder::Stands { of, outcome } => {
                for (_, told) in self.asks.extract_if(.., |(asked, _)| *asked == of) {
                    drop(told.send(outcome.clone()));
                }
            }
        }
    }

    /// Takes the next bytes of bulk data for a process here. At the end: the answer to its order.
    pub(crate) fn take_piece(
        &mut self,
        mut piece: Piece,
    ) -> Option<(Option<RequestId>, Result<Answer, Failure>)> {
        let at = self.streams.iter().position(|(stream, _)| *stream == piece.stream)?;
        let (_, coming) = self.streams.get_mut(at)?;
        if coming.data.is_empty() {
            // The first piece is often the only one.
            coming.data = std::mem::take(&mut piece.plain);
        } else {
            coming.data.extend_from_slice(&piece.plain);
        }
        let too_many = coming.data.len() as u64 > coming.bytes;
        if !piece.last && piece.aborted.is_none() && !too_many {
            return None;
        }
        let (_, Coming { key, bytes, request, data }) = self.streams.swap_remove(at);
        let whole = data.len() as u64 == bytes;
        let failed = piece.aborted.take().or_else(|| {
            (!whole)
                .then(|| Failure::new(Kind::Protocol, "take rendezvous data: not as much as was announced"))
        });
        let (outcome, answer) = match failed {
            Some(why) => (Err(why.clone().into()), Err(why)),
            None => (Ok(Arc::new(data)), Ok(Answer::Done)),
        };
        self.got(key, outcome);
        Some((request, answer))
    }

    fn got(&mut self, key: Key, outcome: Result<Arc<Vec<u8>>, Refusal>) {
        for (_, told) in self.gets.extract_if(.., |(waits_for, _)| *waits_for == key) {
            drop(told.send(outcome.clone()));
        }
        // A fence is asked for only once, so its data is not kept.
        if let (Ok(data), Want::All | Want::Complete) = (&outcome, key.want)
            && !matches!(key.of.resource, Resource::Fence(_))
        {
            self.kept.push((key, Arc::clone(data)));
        }
    }

    /// The frontend is gone, and the data that it gathered with it. Aggregates on this node stay.
    pub(crate) fn frontend_gone(&mut self) {
        self.alone = true;
        self.outgoing.clear();
        self.streams.clear();
        self.links.clear();
        for put in self.puts.drain(..) {
            drop(put.told.send(Err(alone())));
        }
        for (_, told) in self.gets.drain(..) {
            drop(told.send(Err(alone())));
        }
        for (_, told) in self.asks.drain(..) {
            drop(told.send(Err(alone())));
        }
    }
}

fn alone() -> Refusal {
    Failure::new(Kind::Gone, "reach the rendezvous: the tool that launched the app has ended").into()
}

#[cfg(test)]
mod tests;
