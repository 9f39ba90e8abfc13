//! A process's state of its job. Pure: it gets messages, and finds those that callers wait for.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use gantry_shared::wire::runtime::{Hear, Piece, Say, Scope, Then};
use gantry_types::error::{Failure, Kind};
use gantry_types::id::Rank;
use gantry_types::runtime::{Peer, Subjobs};

use super::Message;
use crate::Error;
use crate::dialogue::Party;

/// The received state.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) welcome: Option<(Rank, u32)>,
    pub(super) released: bool,
    pub(super) checked_in: bool,
    pub(super) passed: bool,
    pub(super) structure: Option<Result<Subjobs, String>>,
    pub(super) ended: BTreeSet<u32>,
    /// Ranks of this subjob that have ended.
    gone_here: BTreeSet<Rank>,
    /// Processes of the job that have ended.
    gone: BTreeSet<Peer>,
    /// The subscription to ended ranks is active.
    watching: bool,
    /// The subscription must still be sent.
    watch_due: bool,
    aborted: Option<String>,
    messages: HashMap<(Scope, String), VecDeque<Message>>,
    /// Messages that are not complete yet.
    parts: BTreeMap<(Scope, Peer, u64), Vec<u8>>,
    pub(super) gathered: BTreeMap<&'static str, u64>,
    next: u64,
}

impl State {
    pub(super) fn next_message(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// The error for callers that wait for an aborted job.
    pub(super) fn aborted(&self) -> Option<Error> {
        let why = self.aborted.as_ref()?;
        Some(Error::Refused(Failure::new(Kind::Gone, format!("take part in the job: {why}"))))
    }

    /// The next message with this tag, of one sender or of any.
    pub(super) fn take_message(&mut self, scope: Scope, tag: &str, from: Option<Peer>) -> Option<Message> {
        let key = (scope, tag.to_owned());
        let queue = self.messages.get_mut(&key)?;
        let is_of = |message: &Message| match (from, scope) {
            (None, _) => true,
            (Some(from), Scope::Job) => message.from == from,
            (Some(from), Scope::Subjob) => message.from.rank == from.rank,
        };
        let message = queue.iter().position(is_of).and_then(|at| queue.remove(at));
        if queue.is_empty() {
            self.messages.remove(&key);
        }
        message
    }

    /// Subscribes to ranks that have ended or will end.
    pub(super) fn watch(&mut self) {
        self.watch_due |= !std::mem::replace(&mut self.watching, true);
    }

    /// Whether that process sends nothing more.
    pub(super) fn is_gone(&self, scope: Scope, peer: Peer) -> bool {
        match scope {
            Scope::Job => self.gone.contains(&peer) || self.ended.contains(&peer.subjob),
            Scope::Subjob => self.gone_here.contains(&peer.rank),
        }
    }

    /// The ranks of this subjob that have ended.
    pub(super) fn gone_here(&self) -> &BTreeSet<Rank> {
        &self.gone_here
    }

    fn take_piece(&mut self, Piece { scope, peer, message, tag, then, bytes }: Piece) {
        let key = (scope, peer, message);
        match then {
            Then::More => self.parts.entry(key).or_default().extend(bytes.0),
            Then::GivenUp => drop(self.parts.remove(&key)),
            Then::Complete => {
                let bytes = match self.parts.remove(&key) {
                    None => bytes.0,
                    Some(mut whole) => {
                        whole.extend(bytes.0);
                        whole
                    }
                };
                self.messages.entry((scope, tag)).or_default().push_back(Message { from: peer, bytes });
            }
        }
    }
}

impl Party for State {
    type Heard = Hear;
    type Said = Say;

    fn hear(&mut self, heard: Hear) -> Result<(), Error> {
        match heard {
            Hear::Welcome { rank, size } => self.welcome = Some((rank, size)),
            Hear::Released => self.released = true,
            Hear::Joined(structure) => self.structure = Some(Ok(structure)),
            Hear::Alone(why) => self.structure = Some(Err(why)),
            Hear::Aborted(why) => self.aborted = Some(why),
            Hear::Ended { subjob } => drop(self.ended.insert(subjob)),
            Hear::Piece(piece) => self.take_piece(piece),
            Hear::RankEnded { own, peer } => {
                if own {
                    self.gone_here.insert(peer.rank);
                }
                self.gone.insert(peer);
            }
            Hear::Watched => self.watching = false,
        }
        Ok(())
    }

    fn next_word(&mut self) -> Option<Say> {
        std::mem::take(&mut self.watch_due).then_some(Say::Watch)
    }
}
