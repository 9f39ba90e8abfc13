//! The agent's place in the tree: one link to its parent, and one to each of its children.
//!
//! | module | contents |
//! | --- | --- |
//! | [`mod@join`] | joining: report to the frontend, take the seat, dial the parent |
//! | [`dial`] | trying several addresses at once |
//! | [`input`], [`uplink`] | inputs of this agent, and its path to the frontend |
//! | [`place`] | its place in the tree, and the nodes that a child may speak for |
//! | [`relay`] | routing between links; it holds all state and never waits |
//! | [`gather`] | merges the answers of a subtree into few frames |
//! | [`parent`], [`children`] | the links and their tasks |
//! | [`streams`], [`flow`], [`feeding`] | bulk data through this node: all streams, one stream, links for one stream |
//! | [`bulk`] | bulk data that is meant for this node |
//!
//! These limits bound memory:
//! - Answers: the requests.
//! - Output: the window that the frontend has opened for it, so it needs no other limit here.
//! - Frames of children that wait for a slow parent: a budget of bytes. Beyond it the agent stops reading its children.
//! - Bulk data: short queues and credit per chunk, so no reader of a link waits for it.
//!
//! Everything that goes up stays in order. So output cannot starve answers, and neither overtakes the other.

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
pub(crate) use self::join::{join, join_over};
pub(crate) use self::uplink::{Joined, Uplink};

#[cfg(test)]
mod tests;
