//! How gantry's parts speak: bounded frames, a link that proves who is at the other end, and the tree of links.
//!
//! From the bottom up: [`limits`] says how much is too much, [`frame`] cuts a byte stream into messages, [`bulk`]
//! seals data once for all nodes, [`handshake`] and [`link`] make an authenticated link of any byte stream, and [`tree`]
//! says who is linked to whom. [`credit`] and [`queue`] decide when something is written, [`window`] how much may come, [`door`] which connections keep a
//! place, [`greeting`] which of them come in, [`stream`] is about
//! bulk data's own tree. What is said is in [`message`] (frontend and agents), [`staging`] (the files it is about) and [`hold`] (an agent and the ranks that a launcher
//! brings), [`backend`] (an agent and its node's daemons), [`channel`] (a tool's frontend and its daemons), [`rendezvous`] (data that ranks exchange),
//! [`runtime`] (the ranks of a co-allocated job and its frontend), [`bridge`] (agents that pass their messages on).

pub mod limits;
pub mod frame;
pub mod bulk;
mod error;
mod record;
pub mod handshake;
pub mod link;
pub mod credit;
pub mod window;
pub mod queue;
pub mod tcp;
pub mod tree;
pub mod door;
pub mod greeting;
pub mod stream;
pub mod staging;
mod blob;
pub mod message;
pub mod hold;
pub mod backend;
pub mod rendezvous;
pub mod runtime;
pub mod bridge;
pub mod channel;

pub use error::{LinkError, Phase};
