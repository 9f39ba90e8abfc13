//! Rendezvous: all members register data, and all members (or the controlling task) get the aggregate when it is
//! complete.
//!
//! A *task* is a rank of an app, and its rendezvous has level 1. A multijob's members are apps, and its rendezvous has level 2; it may be a member
//! of another one, and so on. The data's format is that of GT4's WS Rendezvous:
//!
//! | level | bytes |
//! | --- | --- |
//! | 0, an item | number of bytes, a space, the bytes |
//! | n | number of members, a space, their data of level n - 1 back to back, in the order of their numbers |
//!
//! [`codec`] reads and writes it.

pub mod codec;
mod name;
mod standing;

pub use codec::{Data, DataError, Decoder, Limits, Token};
pub use name::{Handle, MultijobId, Name, NotAHandle, Resource};
pub use standing::{Broken, Standing, Status};

/// The most bytes that a task may register: 16 MiB.
pub const MAX_ITEM_BYTES: u64 = 16 * 1024 * 1024;

/// The most bytes that all rendezvous of an app may hold together, and a rendezvous above: 1 GiB.
pub const MAX_TOTAL_BYTES: u64 = 1024 * 1024 * 1024;

/// The most levels above the items.
pub const MAX_LEVEL: u8 = 16;
