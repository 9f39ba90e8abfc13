//! Decides which incoming connections keep a place, and which one is evicted and when. Pure: clock and sources are
//! inputs.
//!
//! Every host and user can connect, so places are scarce, and a connection earns its own step by step ([`Stage`]).
//! When all places are taken, a newcomer still gets in and an unproven peer is evicted. The victim is chosen fairly:
//! other users of this machine first, then the source with the most unproven places, then the oldest. So a crowd from
//! one source evicts itself, and an address that many honest agents share has no fixed limit. A peer that has proven
//! the secret is never evicted.

use std::collections::BTreeMap;
use std::time::Duration;

use gantry_shared::deadline::bounded;
use tokio::time::Instant;

use super::strangers::{Reason, Source, Strangers};
use crate::limits::HANDSHAKE_DEADLINE;

/// How long a peer may be silent. An honest one sends at once; after an eviction it dials again.
pub const SILENCE: Duration = Duration::from_secs(1);

/// How long a peer with a valid opening is safe from eviction. Only a replayed opening stalls for longer.
pub const STALL: Duration = Duration::from_secs(3);

/// How many connections a door holds, and how long.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The most connections at the door at once.
    pub places: usize,
    /// The timeout for the first byte.
    pub silence: Duration,
    /// The timeout for the proof, from the connection on.
    pub handshake: Duration,
    /// A peer in [`Stage::Opened`] for longer than this is evicted if no other can be.
    pub stall: Duration,
}

impl Limits {
    /// The usual timeouts, with this many places.
    #[must_use]
    pub fn with_places(places: usize) -> Self {
        Self { places, silence: SILENCE, handshake: HANDSHAKE_DEADLINE, stall: STALL }
    }
}

/// A connection's number at its door.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(u64);

/// A peer's progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// It has sent nothing.
    Silent,
    /// It has sent bytes that prove nothing.
    Begun,
    /// Its opening was made with the secret, or is a replay of such an opening.
    Opened,
    /// It has proven the secret, or works with other permission.
    Proven,
}

/// Whether another connection can be accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// A place is free.
    Free,
    /// This peer would be evicted.
    Evicting(PeerId),
    /// No peer can be evicted before this time; none: before a peer leaves.
    Full(Option<Instant>),
}

#[derive(Debug)]
struct Peer {
    source: Source,
    stage: Stage,
    since: Instant,
    judged: bool,
}

/// The peers at a door.
#[derive(Debug)]
pub struct Admission {
    limits: Limits,
    own_user: Option<u32>,
    peers: BTreeMap<PeerId, Peer>,
    next: u64,
    strangers: Strangers,
}

impl Admission {
    /// An empty door of `own_user`. Root counts as this user, too.
    #[must_use]
    pub fn new(limits: Limits, own_user: Option<u32>) -> Self {
        Self { limits, own_user, peers: BTreeMap::new(), next: 0, strangers: Strangers::default() }
    }

    /// Changes the number of places. Peers that have one keep it.
    pub fn set_places(&mut self, places: usize) {
        self.limits.places = places;
    }

    /// The current limits.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Statistics of peers that did not prove themselves.
    #[must_use]
    pub fn strangers(&self) -> &Strangers {
        &self.strangers
    }

    /// How many peers are in this stage.
    #[must_use]
    pub fn count(&self, stage: Stage) -> usize {
        self.peers.values().filter(|peer| peer.stage == stage).count()
    }

    /// Whether a newcomer would get a place at `now`.
    #[must_use]
    pub fn room(&self, now: Instant) -> Room {
        if self.peers.len() < self.limits.places {
            return Room::Free;
        }
        match self.find_victim(now) {
            Some(victim) => Room::Evicting(victim),
            None => Room::Full(self.find_first_stall()),
        }
    }

    /// Admits a newcomer. Returns its number, and the peer to close for it. None: there is no [`Admission::room`].
    pub fn admit(&mut self, source: Source, now: Instant) -> Option<(PeerId, Option<PeerId>)> {
        let evicted = match self.room(now) {
            Room::Free => None,
            Room::Evicting(victim) => Some(victim),
            Room::Full(_) => return None,
        };
        if let Some(victim) = evicted {
            self.evict(victim);
        }
        Some((self.seat(source, now), evicted))
    }

    /// Admits a trusted peer ([`Source::Brought`]) regardless of room.
    pub fn pass(&mut self, now: Instant) -> PeerId {
        self.seat(Source::Brought, now)
    }

    /// The system has no descriptor for the next connection. Returns the peer to close, if one can be evicted.
    pub fn shed(&mut self, now: Instant) -> Option<PeerId> {
        let victim = self.find_victim(now)?;
        self.evict(victim);
        Some(victim)
    }

    /// A peer has reached this stage. False: it was evicted meanwhile.
    #[must_use]
    pub fn reach(&mut self, id: PeerId, stage: Stage, now: Instant) -> bool {
        let Some(peer) = self.peers.get_mut(&id) else { return false };
        if peer.stage != stage {
            (peer.stage, peer.since) = (stage, now);
        }
        true
    }

    /// Counts a peer as unauthenticated, once.
    pub fn judge(&mut self, id: PeerId, reason: Reason) {
        if let Some(peer) = self.peers.get_mut(&id)
            && !std::mem::replace(&mut peer.judged, true)
        {
            self.strangers.count(peer.source, reason);
        }
    }

    /// A peer's connection is closed or handed over, so its place is free.
    pub fn leave(&mut self, id: PeerId) {
        self.peers.remove(&id);
    }

    fn seat(&mut self, source: Source, now: Instant) -> PeerId {
        let id = PeerId(self.next);
        self.next += 1;
        self.peers.insert(id, Peer { source, stage: Stage::Silent, since: now, judged: false });
        id
    }

    fn evict(&mut self, id: PeerId) {
        let reason = match self.peers.get(&id).map(|peer| peer.stage) {
            Some(Stage::Silent) => Reason::Silent,
            _ => Reason::Unfinished,
        };
        self.judge(id, reason);
        self.strangers.count_evicted();
        self.peers.remove(&id);
    }

    fn find_victim(&self, now: Instant) -> Option<PeerId> {
        let mut unproven: BTreeMap<Source, usize> = BTreeMap::new();
        let idle = |peer: &Peer| peer.stage < Stage::Opened && peer.source != Source::Brought;
        for peer in self.peers.values().filter(|peer| idle(peer)) {
            *unproven.entry(peer.source).or_default() += 1;
        }
        let rank = |(id, peer): (&PeerId, &Peer)| {
            let held = unproven.get(&peer.source).copied().unwrap_or(0);
            (self.is_other_user(peer.source), held, std::cmp::Reverse((peer.since, *id)))
        };
        let victim = self.peers.iter().filter(|(_, peer)| idle(peer)).max_by_key(|it| rank(*it));
        let stalled = || {
            let stalled = |peer: &Peer| self.stalls(peer).is_some_and(|since| since <= now);
            self.peers.iter().filter(|(_, peer)| stalled(peer)).min_by_key(|(id, peer)| (peer.since, **id))
        };
        victim.or_else(stalled).map(|(id, _)| *id)
    }

    fn find_first_stall(&self) -> Option<Instant> {
        self.peers.values().filter_map(|peer| self.stalls(peer)).min()
    }

    /// From when on a peer with a valid opening can be evicted.
    fn stalls(&self, peer: &Peer) -> Option<Instant> {
        let may = peer.stage == Stage::Opened && peer.source != Source::Brought;
        may.then(|| peer.since + bounded(self.limits.stall))
    }

    fn is_other_user(&self, source: Source) -> bool {
        matches!(source, Source::User(uid) if uid != 0 && Some(uid) != self.own_user)
    }
}

#[cfg(test)]
mod tests;
