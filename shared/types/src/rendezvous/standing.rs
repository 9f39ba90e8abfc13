//! The state of a rendezvous.

use serde::{Deserialize, Serialize};

use super::name::Resource;

/// The state of a rendezvous.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The rendezvous.
    pub resource: Resource,
    /// Its level, 1 or more.
    pub level: u8,
    /// How many are expected.
    pub expected: u32,
    /// How many have registered.
    pub registered: u32,
    /// Whether it is complete, or broken.
    pub standing: Standing,
    /// The rendezvous above, and the number of this one there.
    pub above: Option<(Resource, u32)>,
}

/// Whether a rendezvous is complete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Standing {
    /// Registrations are missing.
    Open,
    /// All members have registered.
    Complete,
    /// It will never be complete.
    Broken(Broken),
}

/// Why a rendezvous will never be complete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("wait for the rendezvous: {what} {member} {why}")]
pub struct Broken {
    /// The kind of members: `rank`, `subjob`.
    pub what: String,
    /// The member that will not register.
    pub member: u32,
    /// What happened to it, as words that follow its name.
    pub why: String,
}

impl Broken {
    /// The most characters of a reason.
    const MAX_CHARS: usize = 200;

    /// Member `member` of a rendezvous of this level will not register. Of the reason, 200 characters are kept.
    #[must_use]
    pub fn new(level: u8, member: u32, why: &str) -> Self {
        let what = if level > 1 { "subjob" } else { "rank" };
        Self { what: what.to_owned(), member, why: why.chars().take(Self::MAX_CHARS).collect() }
    }
}
