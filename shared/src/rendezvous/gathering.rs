//! When a rendezvous is complete, and when it never will be. Pure: it is told what happens and says what follows.
//!
//! Members have numbers, `0..members`: the ranks of an app, the apps of a multijob. Any `expected` of them complete it, all of them as a rule. Each
//! registers once. A member that ends before it has registered breaks the rendezvous as soon as too few are left, for everybody and for good.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;

use gantry_types::rendezvous::codec::{self, Head};
use gantry_types::rendezvous::{Broken, DataError, Limits, MAX_LEVEL, Standing};

use super::MAX_MEMBERS;

/// Why something is not registered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// Its number is none of the members'.
    #[error("register {member}: the members are 0 to {}", .members.saturating_sub(1))]
    NoMember {
        /// Who.
        member: u32,
        /// How many there are.
        members: u32,
    },
    /// It has registered already.
    #[error("register {what} {member}: it has registered already")]
    Twice {
        /// What members are.
        what: &'static str,
        /// Who.
        member: u32,
    },
    /// It has ended.
    #[error("register {member}: it has ended")]
    Ended {
        /// Who.
        member: u32,
    },
    /// As many as were expected have registered.
    #[error("register {member}: all {expected} members have registered already")]
    Full {
        /// Who.
        member: u32,
        /// How many were expected.
        expected: u32,
    },
    /// It is too much.
    #[error("register {member}: {bytes} bytes are more than the {limit} that there is room for")]
    TooLarge {
        /// Who.
        member: u32,
        /// How much it is.
        bytes: u64,
        /// How much it may be.
        limit: u64,
    },
    /// It is no data of the level below.
    #[error("register {member}")]
    Malformed {
        /// Who.
        member: u32,
        /// What is wrong.
        source: DataError,
    },
    /// The rendezvous is broken.
    #[error(transparent)]
    Broken(#[from] Broken),
}

/// A number that no rendezvous can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("make a rendezvous of level {level} for {expected} of {members} members")]
pub struct Impossible {
    level: u8,
    members: u32,
    expected: u32,
}

/// How far a member has come.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Member {
    /// So many bytes are on their way.
    Coming(u64),
    /// They are here.
    Here(Arc<Vec<u8>>),
    /// It ended without.
    Ended,
}

/// One rendezvous.
#[derive(Debug, Clone)]
pub struct Gathering {
    level: u8,
    members: u32,
    expected: u32,
    /// Of whom something is known.
    known: BTreeMap<u32, Member>,
    /// How many are here, are coming, and have ended without.
    here: u32,
    coming: u32,
    ended: u32,
    /// Of what is here and what is coming.
    bytes: u64,
    broken: Option<Broken>,
}

impl Gathering {
    /// A rendezvous of that level for `expected` of `members` members.
    ///
    /// # Errors
    /// [`Impossible`]: nobody is expected, more than there are, or the level does not exist.
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

    /// How many complete it.
    #[must_use]
    pub fn expected(&self) -> u32 {
        self.expected
    }

    /// How many have registered.
    #[must_use]
    pub fn registered(&self) -> u32 {
        self.here
    }

    /// How many bytes it holds, or is about to.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Where it stands.
    #[must_use]
    pub fn standing(&self) -> Standing {
        match &self.broken {
            Some(broken) => Standing::Broken(broken.clone()),
            None if self.is_complete() => Standing::Complete,
            None => Standing::Open,
        }
    }

    /// Whether all who were expected have registered.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.here == self.expected
    }

    /// Why it never will be complete.
    #[must_use]
    pub fn broken(&self) -> Option<&Broken> {
        self.broken.as_ref()
    }

    /// `member` has that many bytes, which are on their way. From here on its end does no harm.
    ///
    /// # Errors
    /// [`Refused`]; `room` is how many bytes more there is room for.
    pub fn announce(&mut self, member: u32, bytes: u64, room: u64) -> Result<(), Refused> {
        if let Some(broken) = &self.broken {
            return Err(broken.clone().into());
        }
        if member >= self.members {
            return Err(Refused::NoMember { member, members: self.members });
        }
        match self.known.get(&member) {
            Some(Member::Coming(_) | Member::Here(_)) => {
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
        self.known.insert(member, Member::Coming(bytes));
        Ok(())
    }

    /// The bytes that `member` has announced are here. True: with them the rendezvous is complete.
    ///
    /// # Errors
    /// [`Refused::Malformed`]: they are no data of the level below, and the rendezvous is broken by that. A member that has not announced them
    /// is [`Refused::NoMember`].
    pub fn arrive(&mut self, member: u32, item: Arc<Vec<u8>>) -> Result<bool, Refused> {
        let Some(Member::Coming(announced)) = self.known.get(&member) else {
            return Err(Refused::NoMember { member, members: self.members });
        };
        self.bytes = self.bytes - announced + item.len() as u64;
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

    /// `member` has ended. What it has registered, or has on its way, stays. True: the rendezvous is broken by that.
    pub fn end(&mut self, member: u32, why: &str) -> bool {
        if member >= self.members || self.known.contains_key(&member) {
            return false;
        }
        self.ended += 1;
        self.known.insert(member, Member::Ended);
        self.check_left(member, why)
    }

    /// `member` has ended, and what it has on its way does not come. True: the rendezvous is broken by that.
    pub fn lose(&mut self, member: u32, why: &str) -> bool {
        if let Some(Member::Coming(bytes)) = self.known.get(&member) {
            self.bytes -= bytes;
            self.coming -= 1;
            self.known.remove(&member);
        }
        self.end(member, why)
    }

    /// Breaks it whoever is left, unless it is complete. True: it was not broken before.
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

    /// What a member has registered.
    #[must_use]
    pub fn item(&self, member: u32) -> Option<&Arc<Vec<u8>>> {
        match self.known.get(&member) {
            Some(Member::Here(item)) => Some(item),
            _ => None,
        }
    }

    /// The parts of the aggregate, when it is complete: to be written one after the other. No item is copied.
    #[must_use]
    pub fn aggregate(&self) -> Option<Vec<Part>> {
        if !self.is_complete() {
            return None;
        }
        let mut parts = vec![Part::Head(Head::new(self.expected.into()))];
        for member in self.known.values() {
            let Member::Here(item) = member else { continue };
            // What comes from below is data of its level already.
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
    /// What a member has registered.
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

/// How many bytes parts have.
#[must_use]
pub fn count_bytes(parts: &[Part]) -> u64 {
    parts.iter().map(|part| part.as_bytes().len() as u64).sum()
}

/// Writes parts one after the other.
///
/// # Errors
/// As `out` does.
pub fn write_parts(out: &mut impl Write, parts: &[Part]) -> io::Result<()> {
    parts.iter().try_for_each(|part| out.write_all(part.as_bytes()))
}

#[cfg(test)]
mod tests;
