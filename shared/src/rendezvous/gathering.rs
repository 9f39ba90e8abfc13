//! Decides when a rendezvous is complete or broken. Pure: it gets events and returns the consequences.
//!
//! Members have numbers, `0..members`: the ranks of an app, the apps of a multijob. Any `expected` of them complete
//! it, normally all. Each registers once. When members end without registering and too few are left, the rendezvous
//! is broken for all members and permanently.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;

use gantry_types::rendezvous::codec::{self, Head};
use gantry_types::rendezvous::{Broken, DataError, Limits, MAX_LEVEL, Standing};

use super::MAX_MEMBERS;

/// Why a registration is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// The number is not a member's.
    #[error("register {member}: the members are 0 to {}", .members.saturating_sub(1))]
    NoMember {
        /// The member.
        member: u32,
        /// The number of members.
        members: u32,
    },
    /// It has registered already.
    #[error("register {what} {member}: it has registered already")]
    Twice {
        /// The kind of members.
        what: &'static str,
        /// The member.
        member: u32,
    },
    /// It has ended.
    #[error("register {member}: it has ended")]
    Ended {
        /// The member.
        member: u32,
    },
    /// All expected members have registered.
    #[error("register {member}: all {expected} members have registered already")]
    Full {
        /// The member.
        member: u32,
        /// The expected number.
        expected: u32,
    },
    /// It is too large.
    #[error("register {member}: {bytes} bytes are more than the {limit} that there is room for")]
    TooLarge {
        /// The member.
        member: u32,
        /// Its size.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// It is not valid data of the level below.
    #[error("register {member}")]
    Malformed {
        /// The member.
        member: u32,
        /// The error.
        source: DataError,
    },
    /// The rendezvous is broken.
    #[error(transparent)]
    Broken(#[from] Broken),
}

/// An impossible number for a rendezvous.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("make a rendezvous of level {level} for {expected} of {members} members")]
pub struct Impossible {
    level: u8,
    members: u32,
    expected: u32,
}

/// The state of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Member {
    /// This many bytes are in transit. Some of them have arrived.
    Coming { bytes: u64, item: Vec<u8> },
    /// Its bytes have arrived.
    Here(Arc<Vec<u8>>),
    /// It ended without registering.
    Ended,
}

/// One rendezvous.
#[derive(Debug, Clone)]
pub struct Gathering {
    level: u8,
    members: u32,
    expected: u32,
    /// Members with a known state.
    known: BTreeMap<u32, Member>,
    /// How many have arrived, are in transit, and have ended without registering.
    here: u32,
    coming: u32,
    ended: u32,
    /// Bytes that have arrived or are in transit.
    bytes: u64,
    broken: Option<Broken>,
}

impl Gathering {
    /// A rendezvous of that level for `expected` of `members` members.
    ///
    /// # Errors
    /// [`Impossible`]: no members are expected, or more than exist, or the level does not exist.
    pub fn new(level: u8, members: u32, expected: u32) -> Result<Self, Impossible> {
        let levels = 1..=MAX_LEVEL;
        if !(1..=members).contains(&expected) || members > MAX_MEMBERS || !levels.contains(&level) {
            return Err(Impossible { level, members, expected });
        }
        let known = BTreeMap::new();
        Ok(Self { level, members, expected, known, here: 0, coming: 0, ended: 0, bytes: 0, broken: None })
    }

    /// Its level, 1 or more.
    #[must_use]
    pub fn level(&self) -> u8 {
        self.level
    }

    /// How many members there are.
    #[must_use]
    pub fn members(&self) -> u32 {
        self.members
    }

    /// How many members complete it.
    #[must_use]
    pub fn expected(&self) -> u32 {
        self.expected
    }

    /// How many have registered.
    #[must_use]
    pub fn registered(&self) -> u32 {
        self.here
    }

    /// How many bytes it holds, including those in transit.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Its state.
    #[must_use]
    pub fn standing(&self) -> Standing {
        match &self.broken {
            Some(broken) => Standing::Broken(broken.clone()),
            None if self.is_complete() => Standing::Complete,
            None => Standing::Open,
        }
    }

    /// Whether all expected members have registered.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.here == self.expected
    }

    /// Why it can never be complete.
    #[must_use]
    pub fn broken(&self) -> Option<&Broken> {
        self.broken.as_ref()
    }

    /// `member` has this many bytes in transit. From here on its end does no harm.
    ///
    /// # Errors
    /// [`Refused`]; `room` is the number of bytes that are left.
    pub fn announce(&mut self, member: u32, bytes: u64, room: u64) -> Result<(), Refused> {
        if let Some(broken) = &self.broken {
            return Err(broken.clone().into());
        }
        if member >= self.members {
            return Err(Refused::NoMember { member, members: self.members });
        }
        match self.known.get(&member) {
            Some(Member::Coming { .. } | Member::Here(_)) => {
                let what = if self.level > 1 { "subjob" } else { "rank" };
                return Err(Refused::Twice { what, member });
            }
            Some(Member::Ended) => return Err(Refused::Ended { member }),
            None => {}
        }
        if self.here + self.coming >= self.expected {
            return Err(Refused::Full { member, expected: self.expected });
        }
        if bytes > room {
            return Err(Refused::TooLarge { member, bytes, limit: room });
        }
        self.coming += 1;
        self.bytes += bytes;
        self.known.insert(member, Member::Coming { bytes, item: Vec::new() });
        Ok(())
    }

    /// The next announced bytes of `member` have arrived. None: more of them are to come, or it has announced none.
    /// With the last ones it is as [`Gathering::arrive`].
    pub fn take(&mut self, member: u32, next: Vec<u8>) -> Option<Result<bool, Refused>> {
        let Some(Member::Coming { bytes, item }) = self.known.get_mut(&member) else { return None };
        if item.is_empty() {
            // The first piece is often the whole item.
            *item = next;
        } else {
            item.extend_from_slice(&next);
        }
        if (item.len() as u64) < *bytes {
            return None;
        }
        let item = Arc::new(std::mem::take(item));
        Some(self.arrive(member, item))
    }

    /// The announced bytes of `member` have arrived. True: they complete the rendezvous.
    ///
    /// # Errors
    /// [`Refused::Malformed`]: they are not valid data of the level below, which breaks the rendezvous. A member that
    /// has not announced them is [`Refused::NoMember`].
    pub fn arrive(&mut self, member: u32, item: Arc<Vec<u8>>) -> Result<bool, Refused> {
        let Some(Member::Coming { bytes, .. }) = self.known.get(&member) else {
            return Err(Refused::NoMember { member, members: self.members });
        };
        self.bytes = self.bytes - bytes + item.len() as u64;
        if self.level > 1
            && let Err(source) = codec::check(self.level - 1, &item, Limits::default())
        {
            self.lose(member, "registered data that is not of the level below");
            return Err(Refused::Malformed { member, source });
        }
        self.coming -= 1;
        self.here += 1;
        self.known.insert(member, Member::Here(item));
        Ok(self.is_complete())
    }

    /// `member` has ended. Its registration, or its bytes in transit, remain. True: this breaks the rendezvous.
    pub fn end(&mut self, member: u32, why: &str) -> bool {
        if member >= self.members || self.known.contains_key(&member) {
            return false;
        }
        self.ended += 1;
        self.known.insert(member, Member::Ended);
        self.check_left(member, why)
    }

    /// `member` has ended, and its bytes in transit are lost. True: this breaks the rendezvous.
    pub fn lose(&mut self, member: u32, why: &str) -> bool {
        if let Some(Member::Coming { bytes, .. }) = self.known.get(&member) {
            self.bytes -= bytes;
            self.coming -= 1;
            self.known.remove(&member);
        }
        self.end(member, why)
    }

    /// Breaks it regardless of members, unless it is complete. True: it was not broken before.
    pub fn break_off(&mut self, member: u32, why: &str) -> bool {
        if self.broken.is_some() || self.is_complete() {
            return false;
        }
        self.broken = Some(Broken::new(self.level, member, why));
        true
    }

    fn check_left(&mut self, member: u32, why: &str) -> bool {
        self.members - self.ended < self.expected && self.break_off(member, why)
    }

    /// A member's registration.
    #[must_use]
    pub fn item(&self, member: u32) -> Option<&Arc<Vec<u8>>> {
        match self.known.get(&member) {
            Some(Member::Here(item)) => Some(item),
            _ => None,
        }
    }

    /// The parts of the aggregate, if it is complete, to be written in sequence. No item is copied.
    #[must_use]
    pub fn aggregate(&self) -> Option<Vec<Part>> {
        if !self.is_complete() {
            return None;
        }
        let mut parts = vec![Part::Head(Head::new(self.expected.into()))];
        for member in self.known.values() {
            let Member::Here(item) = member else { continue };
            // Data from below already has the format of its level.
            if self.level == 1 {
                parts.push(Part::Head(Head::new(item.len() as u64)));
            }
            parts.push(Part::Item(Arc::clone(item)));
        }
        Some(parts)
    }
}

/// A part of an aggregate.
#[derive(Debug, Clone)]
pub enum Part {
    /// A number and a space.
    Head(Head),
    /// A member's registration.
    Item(Arc<Vec<u8>>),
}

impl Part {
    /// Its bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Head(head) => head.as_bytes(),
            Self::Item(item) => item,
        }
    }
}

/// The size of parts in bytes.
#[must_use]
pub fn count_bytes(parts: &[Part]) -> u64 {
    parts.iter().map(|part| part.as_bytes().len() as u64).sum()
}

/// Writes parts in sequence.
///
/// # Errors
/// The errors of `out`.
pub fn write_parts(out: &mut impl Write, parts: &[Part]) -> io::Result<()> {
    parts.iter().try_for_each(|part| out.write_all(part.as_bytes()))
}

#[cfg(test)]
mod tests;
