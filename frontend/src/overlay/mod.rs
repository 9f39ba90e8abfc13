//! The root of the tree of links between the frontend and its agents.
//!
//! [`Listener`] waits until every agent has reported and joined the tree. [`Overlay`] carries orders down and answers
//! up. [`OverlayEvent`]s report what happens unasked. The shape of the tree and its messages belong to
//! [`gantry_shared::wire`]. Which node is asked for what, and the meaning of its answer, belong to the app.
//!
//! One task handles everything in the order of arrival. So what a node reported before it answered is in the event
//! channel before the caller gets the answer. There [`admit`] checks every message before it is used. A node that sends
//! an impossible message is declared lost.

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
pub(crate) use self::root::{Outcome, Overlay};

/// An event of the overlay.
#[derive(Debug)]
pub(crate) enum OverlayEvent {
    /// An agent's report. Dropping the last field makes room for more messages of its link.
    Notice(NodeId, Notice, Option<OwnedSemaphorePermit>),
    /// Nodes that can no longer be reached. Each node is named once.
    Lost {
        /// The nodes.
        nodes: NodeSet,
        /// The cause, as observed.
        reason: String,
    },
}

#[cfg(test)]
mod tests;
