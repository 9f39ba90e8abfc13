//! Rendezvous, as agents and the frontend keep them: [`gathering`] decides when one is complete or broken, [`handle`]
//! is how processes find theirs. All of it is pure. The public types are in [`gantry_types::rendezvous`].

pub mod gathering;
pub mod handle;

pub use gathering::{Gathering, Part, Refused};

/// The most members of a rendezvous.
pub const MAX_MEMBERS: u32 = 1 << 22;

/// The most rendezvous that an app's processes may create, beside the app's own.
pub const MAX_NAMED: usize = 1024;
