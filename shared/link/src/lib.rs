//! Authenticated links between gantry's own processes. This crate is private to gantry.
//!
//! From the bottom up: [`limits`] says how much is too much. [`bulk`] seals data once for all nodes. [`handshake`] and [`link`] make an
//! authenticated link of any byte stream. [`credit`] and [`queue`] decide when something is written. [`door`] decides which connections
//! keep a place, and [`greeting`] which of them come in.
//!
//! What the links carry is in `gantry-shared`. That crate needs no runtime, so the library of daemons does not bring one.

pub mod limits;
pub mod bulk;
mod error;
mod record;
mod primitives;
pub mod handshake;
pub mod link;
pub mod credit;
pub mod queue;
pub mod tcp;
pub mod door;
pub mod greeting;

pub use error::{LinkError, Phase};
