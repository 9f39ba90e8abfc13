//! Authenticated links between gantry's own processes. This crate is private to gantry.
//!
//! From the bottom up: [`limits`] has the limits. [`bulk`] seals data once for all nodes. [`handshake`] and [`link`]
//! make an authenticated link of any byte stream. [`credit`] and [`queue`] decide when data is written. [`door`]
//! decides which connections keep a place, and [`greeting`] authenticates them. [`addresses`] are those at which other
//! machines can dial this one.
//!
//! `gantry-shared` defines the messages on the links. It needs no runtime, so the daemons' library does not bring
//! one.

pub mod limits;
pub mod bulk;
mod error;
mod record;
mod outgoing;
mod primitives;
pub mod handshake;
pub mod link;
pub mod credit;
pub mod queue;
pub mod tcp;
pub mod addresses;
pub mod door;
pub mod greeting;

pub use error::{LinkError, Phase};
