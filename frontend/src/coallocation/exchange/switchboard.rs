//! Decides which ranks are linked, which have reached the barrier, and where messages go. It is pure: it never waits,
//! knows no processes, takes events and returns effects.
//!
//! Every rank has a *mailbox*, with or without a link. What a rank sends goes into mailboxes at once. Its credit is
//! given back when the mailbox has room. So a rank that does not read stops its senders. A mailbox holds at most
//! [`ROOM_BYTES`](super::mailbox::ROOM_BYTES) plus what senders may have in flight.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use gantry_shared::wire::flow::Word;
use gantry_shared::wire::frame::{FrameBuffer, encode_onto};
use gantry_shared::wire::runtime::{Hear, LINK_WINDOW_BYTES, MESSAGE_PIECE_BYTES, Piece, Say, Scope};
use gantry_types::id::Rank;
use gantry_types::runtime::{MAX_TAG_BYTES, Peer, Subjobs};

use super::mailbox::{LinkId, Mailbox};
use crate::coallocation::mpi_failure::MpiFailure;
use crate::coallocation::request::CommsType;
use crate::coallocation::state::SubjobId;

/// What the caller has to do.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Send this message of a link to the node's agent.
    Say(SubjobId, LinkId, Word),
    /// This many bytes that arrived on a link are taken.
    Taken(SubjobId, LinkId, usize),
    /// Report to the task of the subjob.
    Tell(SubjobId, Arrival),
}

/// How far a subjob's processes are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::coallocation) enum Arrival {
    /// All have reached the barrier.
    CheckedIn,
    /// All have passed it or ended.
    Passed,
    /// A rank ended before the barrier was released: the others can never pass it together with that rank.
    EndedBefore(Rank),
    /// Their MPI world has failed.
    MpiFailed(MpiFailure),
}

/// The state of the barrier for one subjob.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Gate {
    /// Ranks wait at the barrier.
    Shut,
    /// Ranks pass the barrier.
    Open,
    /// There is no job. Ranks get this reason.
    Aborted(String),
}

/// The link of a rank.
#[derive(Debug)]
struct Link {
    rank: Rank,
    buffer: FrameBuffer,
}

/// The state of a subjob.
#[derive(Debug)]
struct Part {
    comms: CommsType,
    gate: Gate,
    /// Number of its ranks, once it has started.
    size: Option<u32>,
    over: bool,
    links: HashMap<LinkId, Link>,
    mail: BTreeMap<Rank, Mailbox>,
    checked_in: BTreeSet<Rank>,
    passed: BTreeSet<Rank>,
    ended: BTreeSet<Rank>,
}

/// The state of a whole job.
#[derive(Debug, Default)]
pub(super) struct Switchboard {
    parts: BTreeMap<SubjobId, Part>,
    /// Subjobs that exchange messages, in their order, once the job is released.
    members: Option<Vec<SubjobId>>,
    /// All members have started.
    joined: bool,
    /// Ranks that have ended, in that order.
    ends: Vec<(SubjobId, Rank)>,
    /// Ranks that want to be told of ended ranks.
    watchers: BTreeSet<(SubjobId, Rank)>,
    effects: Vec<Effect>,
}

impl Switchboard {
    /// Takes the effects, to be carried out in this order.
    pub(super) fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// Adds a subjob. Without a barrier its gate is open from the beginning.
    pub(super) fn add(&mut self, id: SubjobId, comms: CommsType, barrier: bool) {
        let part = Part {
            comms,
            gate: if barrier { Gate::Shut } else { Gate::Open },
            size: None,
            over: false,
            links: HashMap::new(),
            mail: BTreeMap::new(),
            checked_in: BTreeSet::new(),
            passed: BTreeSet::new(),
            ended: BTreeSet::new(),
        };
        self.parts.insert(id, part);
    }

    /// Its app has started, with `size` ranks.
    pub(super) fn started(&mut self, id: SubjobId, size: u32) {
        if let Some(part) = self.parts.get_mut(&id) {
            part.size = Some(size);
        }
        self.join();
    }

    /// Releases the job: this fixes the members, and all ranks may run.
    pub(super) fn release(&mut self, members: Vec<SubjobId>) {
        let takes_part = |id: &SubjobId| {
            let part = self.parts.get(id);
            part.is_some_and(|part| part.comms == CommsType::BlockingJoin && !part.over)
        };
        self.members = Some(members.into_iter().filter(takes_part).collect());
        let ids: Vec<SubjobId> = self.parts.keys().copied().collect();
        for id in ids {
            self.open_gate(id);
        }
        self.join();
    }

    /// The subjob has no job any more.
    pub(super) fn abort(&mut self, id: SubjobId, why: &str) {
        let Some(part) = self.parts.get_mut(&id) else { return };
        if part.gate == Gate::Shut {
            part.gate = Gate::Aborted(why.to_owned());
            self.tell_linked(id, &Hear::Aborted(why.to_owned()));
        }
    }

    /// The subjob's app is over: it sends nothing more.
    pub(super) fn end(&mut self, id: SubjobId) {
        let Some(part) = self.parts.get_mut(&id).filter(|part| !part.over) else { return };
        part.over = true;
        part.links.clear();
        let owed: Vec<_> = std::mem::take(&mut part.mail).into_values().flat_map(|mail| mail.owed).collect();
        self.give(owed);
        if let (Some(members), true) = (self.members.clone(), self.joined) {
            if let Some(subjob) = position(&members, id) {
                members
                    .iter()
                    .filter(|other| **other != id)
                    .for_each(|other| self.tell_linked(*other, &Hear::Ended { subjob }));
            }
        } else {
            self.join();
        }
    }

    /// The subjob's app was detached. It sends no more reports, and other ranks are not told that it ended.
    pub(super) fn leave(&mut self, id: SubjobId) {
        if let Some(part) = self.parts.get_mut(&id) {
            part.over = true;
        }
    }

    /// A rank has ended, and everything it had written has arrived.
    pub(super) fn rank_ended(&mut self, id: SubjobId, rank: Rank) {
        let Some(part) = self.parts.get_mut(&id) else { return };
        part.ended.insert(rank);
        if part.gate == Gate::Shut {
            self.effects.push(Effect::Tell(id, Arrival::EndedBefore(rank)));
        }
        // Give credit back to the senders: the rank reads its mailbox no more.
        let owed = part.mail.remove(&rank).map(|mail| mail.owed).unwrap_or_default();
        part.links.retain(|_, link| link.rank != rank);
        self.give(owed);
        self.check_passed(id);
        self.watchers.remove(&(id, rank));
        self.ends.push((id, rank));
        self.tell_watchers();
    }

    /// Has the agent send all that an ended rank has written, beyond its credit too: that is little. True: the rank has
    /// a link.
    pub(super) fn drain(&mut self, id: SubjobId, rank: Rank) -> bool {
        let Some(link) = self.find_link(id, rank) else { return false };
        self.effects.push(Effect::Say(id, link, Word::Drain));
        true
    }

    /// Whether a rank has a link.
    pub(super) fn is_linked(&self, id: SubjobId, rank: Rank) -> bool {
        self.find_link(id, rank).is_some()
    }

    /// The link that a rank has.
    fn find_link(&self, id: SubjobId, rank: Rank) -> Option<LinkId> {
        self.parts.get(&id)?.mail.get(&rank)?.link()
    }

    /// Handles an agent's message about a link.
    pub(super) fn take(&mut self, id: SubjobId, link: LinkId, word: Word) {
        match word {
            Word::Open(rank) => self.open(id, link, rank),
            Word::Data { bytes, .. } => self.take_bytes(id, link, &bytes.0),
            Word::Credit(more) => {
                let Some(rank) = self.rank_of(id, link) else { return };
                if let Some(mail) = self.parts.get_mut(&id).and_then(|part| part.mail.get_mut(&rank)) {
                    mail.widen(more);
                }
                self.deliver(id, rank);
            }
            Word::End => self.close(id, link),
            // Only the frontend sends this.
            Word::Drain => {}
        }
    }

    fn open(&mut self, id: SubjobId, link: LinkId, rank: Rank) {
        let Some(part) = self.parts.get_mut(&id).filter(|part| !part.over) else {
            return self.effects.push(Effect::Say(id, link, Word::End));
        };
        let size = part.size.unwrap_or_default();
        let mail = part.mail.entry(rank).or_default();
        if mail.link().is_some() || rank.0 >= size {
            let why = format!("rank {rank} has a link to its job already, in another process");
            return self.refuse(id, link, &Hear::Aborted(why));
        }
        // Start with a new buffer: the rest of an earlier process's frame must not precede the first whole one.
        part.links.insert(link, Link { rank, buffer: FrameBuffer::new() });
        let waiting = mail.open(link);
        let gate = part.gate.clone();
        self.effects.push(Effect::Say(id, link, Word::Credit(LINK_WINDOW_BYTES)));
        self.tell(id, rank, &Hear::Welcome { rank, size });
        match gate {
            Gate::Shut => {}
            Gate::Open => self.tell(id, rank, &Hear::Released),
            Gate::Aborted(why) => self.tell(id, rank, &Hear::Aborted(why)),
        }
        self.tell_structure(id, rank);
        if let Some(mail) = self.mailbox(id, rank) {
            waiting.into_iter().for_each(|frame| mail.push(frame));
        }
        self.deliver(id, rank);
    }

    fn refuse(&mut self, id: SubjobId, link: LinkId, why: &Hear) {
        let mut bytes = Vec::new();
        if encode_onto(why, &mut bytes).is_ok() {
            self.effects.push(Effect::Say(id, link, Word::data(bytes)));
        }
        self.effects.push(Effect::Say(id, link, Word::End));
    }

    fn close(&mut self, id: SubjobId, link: LinkId) {
        let Some(part) = self.parts.get_mut(&id) else { return };
        let Some(Link { rank, .. }) = part.links.remove(&link) else { return };
        let mail = self.mailbox(id, rank).filter(|mail| mail.link() == Some(link));
        let Some(mail) = mail else { return };
        mail.close();
        let owed = std::mem::take(&mut mail.owed);
        self.watchers.remove(&(id, rank));
        self.give(owed);
    }

    fn take_bytes(&mut self, id: SubjobId, link: LinkId, bytes: &[u8]) {
        let Some(known) = self.parts.get_mut(&id).and_then(|part| part.links.get_mut(&link)) else { return };
        let rank = known.rank;
        let mut full: Option<(SubjobId, Rank)> = None;
        let mut broken = known.buffer.push(bytes).is_err();
        while !broken {
            let known = self.parts.get_mut(&id).and_then(|part| part.links.get_mut(&link));
            let Some(known) = known else { return };
            match known.buffer.next_message::<Say>() {
                Ok(Some(said)) => full = self.hear(id, rank, said).or(full),
                Ok(None) => break,
                Err(_) => broken = true,
            }
        }
        if broken {
            self.close(id, link);
            let why = "its connection to the job is out of step: are library and tool of one release?";
            return self.refuse(id, link, &Hear::Aborted(why.to_owned()));
        }
        let taken = (id, link, bytes.len());
        // A full mailbox gives the credit back when it has room again.
        match full.and_then(|(to, rank)| self.mailbox(to, rank)) {
            Some(mail) => mail.owed.push(taken),
            None => self.give(vec![taken]),
        }
    }

    /// Handles a rank's message. Returns the mailbox that this has filled, if any.
    fn hear(&mut self, id: SubjobId, rank: Rank, said: Say) -> Option<(SubjobId, Rank)> {
        let part = self.parts.get_mut(&id)?;
        match said {
            Say::CheckIn => {
                let all = part.size.and_then(|size| usize::try_from(size).ok());
                if part.checked_in.insert(rank) && Some(part.checked_in.len()) == all {
                    self.effects.push(Effect::Tell(id, Arrival::CheckedIn));
                }
                None
            }
            Say::Passed => {
                if part.passed.insert(rank) {
                    self.check_passed(id);
                }
                None
            }
            Say::Piece(piece) => self.pass_on(id, rank, piece),
            Say::Watch => {
                self.watchers.insert((id, rank));
                self.tell_ends(id, rank);
                None
            }
        }
    }

    fn check_passed(&mut self, id: SubjobId) {
        let Some(part) = self.parts.get(&id).filter(|part| part.gate == Gate::Open) else { return };
        let through = part.passed.union(&part.ended).count();
        if part.size.and_then(|size| usize::try_from(size).ok()) == Some(through) {
            self.effects.push(Effect::Tell(id, Arrival::Passed));
        }
    }

    fn pass_on(&mut self, id: SubjobId, rank: Rank, piece: Piece) -> Option<(SubjobId, Rank)> {
        if piece.tag.len() > MAX_TAG_BYTES || piece.bytes.0.len() > MESSAGE_PIECE_BYTES {
            return None;
        }
        let to_rank = piece.peer.rank;
        let (to, own) = match piece.scope {
            Scope::Subjob => (id, 0),
            // Libraries send nothing before all have joined.
            Scope::Job => {
                let members = self.members.as_ref().filter(|_| self.joined)?;
                let to = usize::try_from(piece.peer.subjob).ok().and_then(|number| members.get(number))?;
                (*to, position(members, id)?)
            }
        };
        let there = self.parts.get(&to).filter(|part| !part.over && !part.ended.contains(&to_rank))?;
        if there.size.is_none_or(|size| to_rank.0 >= size) {
            return None;
        }
        let sender = Peer { subjob: own, rank };
        self.tell(to, to_rank, &Hear::Piece(Piece { peer: sender, ..piece }));
        self.mailbox(to, to_rank)?.is_full().then_some((to, to_rank))
    }

    fn open_gate(&mut self, id: SubjobId) {
        let Some(part) = self.parts.get_mut(&id).filter(|part| part.gate == Gate::Shut) else { return };
        part.gate = Gate::Open;
        self.tell_linked(id, &Hear::Released);
        self.check_passed(id);
    }

    /// Once all members have started or ended, tells them of each other.
    fn join(&mut self) {
        let Some(members) = &mut self.members else { return };
        let parts = &self.parts;
        let is = |id: &SubjobId, what: fn(&Part) -> bool| parts.get(id).is_some_and(what);
        if self.joined {
            return;
        }
        members.retain(|id| is(id, |part| !part.over || part.size.is_some()));
        self.joined = members.iter().all(|id| is(id, |part| part.size.is_some()));
        if self.joined {
            let links: Vec<(SubjobId, Rank)> = self
                .parts
                .iter()
                .flat_map(|(id, part)| part.links.values().map(|it| (*id, it.rank)))
                .collect();
            links.into_iter().for_each(|(id, rank)| self.tell_structure(id, rank));
            // Ranks that ended earlier concern the other subjobs only from now on.
            self.parts.values_mut().flat_map(|part| part.mail.values_mut()).for_each(|mail| mail.seen = 0);
            self.tell_watchers();
        }
    }

    fn tell_structure(&mut self, id: SubjobId, rank: Rank) {
        let Some(members) = self.members.clone() else { return };
        match position(&members, id) {
            Some(_) if !self.joined => {}
            Some(index) => {
                let size = |id| self.parts.get(id).and_then(|part| part.size).unwrap_or_default();
                let sizes = members.iter().map(size).collect();
                self.tell(id, rank, &Hear::Joined(Subjobs { index, sizes }));
                let over = |id: &SubjobId| self.parts.get(id).is_some_and(|part| part.over);
                let ended: Vec<u32> =
                    members.iter().filter(|id| over(id)).filter_map(|id| position(&members, *id)).collect();
                ended.into_iter().for_each(|subjob| self.tell(id, rank, &Hear::Ended { subjob }));
            }
            None => {
                let why = "this subjob exchanges no messages with others (subjobCommsType=independent)";
                self.tell(id, rank, &Hear::Alone(why.to_owned()));
            }
        }
    }

    fn tell_watchers(&mut self) {
        let watchers: Vec<(SubjobId, Rank)> = self.watchers.iter().copied().collect();
        watchers.into_iter().for_each(|(id, rank)| self.tell_ends(id, rank));
    }

    /// Tells a watching rank which ranks have ended since it was last told, if one of them concerns it.
    fn tell_ends(&mut self, id: SubjobId, rank: Rank) {
        let members = self.members.as_deref().filter(|_| self.joined).unwrap_or_default();
        let member = position(members, id);
        let concerns = |(other, ended): &(SubjobId, Rank)| {
            let subjob = member.and(position(members, *other));
            let peer = Peer { subjob: subjob.unwrap_or_default(), rank: *ended };
            (*other == id || subjob.is_some()).then_some(Hear::RankEnded { own: *other == id, peer })
        };
        let Some(mail) = self.parts.get_mut(&id).and_then(|part| part.mail.get_mut(&rank)) else { return };
        let unseen = self.ends.get(mail.seen..).unwrap_or_default();
        let news: Vec<Hear> = unseen.iter().filter_map(concerns).collect();
        mail.seen = self.ends.len();
        if !news.is_empty() {
            self.watchers.remove(&(id, rank));
            news.iter().chain([&Hear::Watched]).for_each(|it| self.tell(id, rank, it));
        }
    }

    fn tell_linked(&mut self, id: SubjobId, what: &Hear) {
        let Some(part) = self.parts.get(&id) else { return };
        let ranks: Vec<Rank> = part.links.values().map(|link| link.rank).collect();
        ranks.into_iter().for_each(|rank| self.tell(id, rank, what));
    }

    /// Puts a message into the rank's mailbox, and sends what its credit allows.
    fn tell(&mut self, id: SubjobId, rank: Rank, what: &Hear) {
        let Some(part) = self.parts.get_mut(&id) else { return };
        let mut frame = Vec::new();
        match encode_onto(what, &mut frame) {
            Ok(()) => part.mail.entry(rank).or_default().push(frame),
            Err(error) => tracing::warn!(%error, "a message to a rank was not sent"),
        }
        self.deliver(id, rank);
    }

    fn deliver(&mut self, id: SubjobId, rank: Rank) {
        let Some(mail) = self.parts.get_mut(&id).and_then(|part| part.mail.get_mut(&rank)) else { return };
        while let Some((link, word)) = mail.next() {
            self.effects.push(Effect::Say(id, link, word));
        }
        if !mail.is_full() && !mail.owed.is_empty() {
            let owed = std::mem::take(&mut mail.owed);
            self.give(owed);
        }
    }

    fn give(&mut self, owed: Vec<(SubjobId, LinkId, usize)>) {
        self.effects.extend(owed.into_iter().map(|(id, link, bytes)| Effect::Taken(id, link, bytes)));
    }

    fn mailbox(&mut self, id: SubjobId, rank: Rank) -> Option<&mut Mailbox> {
        self.parts.get_mut(&id)?.mail.get_mut(&rank)
    }

    fn rank_of(&self, id: SubjobId, link: LinkId) -> Option<Rank> {
        Some(self.parts.get(&id)?.links.get(&link)?.rank)
    }
}

fn position(members: &[SubjobId], id: SubjobId) -> Option<u32> {
    members.iter().position(|member| *member == id).and_then(|at| u32::try_from(at).ok())
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
