//! The agent's place in the tree: one link to its parent, and one to each of its children.
//!
//! | module | what is there |
//! | --- | --- |
//! | [`mod@join`] | the way in: report to the frontend, take the seat, dial the parent |
//! | [`dial`] | trying several addresses side by side |
//! | [`input`], [`uplink`] | what comes for this agent, and its way to the frontend |
//! | [`place`] | where it stands, and for whom those below it may speak |
//! | [`relay`] | what goes where; knows everything and waits for nothing |
//! | [`gather`] | answers of a subtree become few frames |
//! | [`parent`], [`children`] | the links and their tasks |
//! | [`streams`], [`flow`], [`feeding`] | bulk data on its way through this node: all streams, one of them, the links that are made for it |
//! | [`bulk`] | what a node makes of bulk data that is meant for it |
//!
//! What bounds memory: answers are bounded by requests; output by the window that the frontend has opened for it, so it needs no other
//! bound here; frames of children that wait for a slow parent by a budget of bytes, beyond which the children are not read; bulk
//! data by short queues and by credit, chunk by chunk, so that no reader of a link waits for it. Upwards everything stays in order, so that output cannot starve answers, nor overtake or be overtaken.

mod input;
mod join;
mod join_error;
mod uplink;
mod dial;
mod place;
mod relay;
mod gather;
mod parent;
mod children;
mod bulk;
mod streams;
mod flow;
mod feeding;

pub(crate) use self::bulk::{BulkReceiver, Piece};
pub(crate) use self::input::Input;
pub(crate) use self::join::{join, join_bringing, join_over};
pub(crate) use self::uplink::{Joined, Uplink};

#[cfg(test)]
mod tests;
