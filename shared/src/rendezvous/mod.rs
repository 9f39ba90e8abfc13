//! Rendezvous, as agents and the frontend keep them: [`gathering`] decides when one is complete or broken, [`handle`] is how processes find
//! theirs. All of it is pure. The words for users are in [`gantry_types::rendezvous`].

pub mod gathering;
pub mod handle;

pub use gathering::{Gathering, Part, Refused};

/// The most members of a rendezvous.
pub const MAX_MEMBERS: u32 = 1 << 22;

/// The most rendezvous that an app's processes may create beside the one that every app has.
pub const MAX_NAMED: usize = 1024;
