//! The root of the tree of links between the frontend and its agents.
//!
//! [`Listener`] waits until every agent has reported and hangs in the tree. [`Overlay`] carries orders down and brings answers back,
//! and [`OverlayEvent`]s are what happens unasked. The shape of the tree and the language spoken on it are the wire's
//! ([`gantry_shared::wire`]); which node is asked for what, and what its answer means, is the app's.
//!
//! Everything that arrives goes through one task in the order of its arrival, so what a node reported before it
//! answered is in the event channel before the answer is given to whoever asked. There [`admit`] checks it before anything is believed, and
//! a node that says what cannot be true is declared lost.

mod admit;
mod assembly;
mod bulk;
mod link;
mod listener;
mod plan;
mod muster;
mod requests;
mod root;

use gantry_shared::wire::message::Notice;
use gantry_types::id::NodeId;
use gantry_types::rank_set::NodeSet;
use tokio::sync::OwnedSemaphorePermit;

pub(crate) use self::listener::{Listener, Mustered};
pub(crate) use self::requests::Reply;
pub(crate) use self::root::{Outcome, Overlay};

/// What happens on the overlay without being asked for.
#[derive(Debug)]
pub(crate) enum OverlayEvent {
    /// An agent reports something. Its link has room for more when the last field is dropped.
    Notice(NodeId, Notice, Option<OwnedSemaphorePermit>),
    /// Nodes that can no longer be reached. Each node is named once.
    Lost {
        /// Which.
        nodes: NodeSet,
        /// What was seen.
        reason: String,
    },
}

#[cfg(test)]
mod tests;
