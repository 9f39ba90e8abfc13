//! An agent's place in the tree, and the nodes that its children may speak for.

use gantry_shared::wire::channel::ChannelNotice;
use gantry_shared::wire::message::{Notice, Up};
use gantry_shared::wire::rendezvous::{RendezvousNotice, check_puts};
use gantry_shared::wire::tree::Tree;
use gantry_types::id::NodeId;
use gantry_types::rank_set::NodeSet;

/// This agent's place in the tree.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) node: NodeId,
    pub(super) tree: Tree,
}

impl Place {
    /// This node and all below it.
    pub(super) fn find_own_subtree(self) -> NodeSet {
        self.tree.find_subtree(self.node)
    }

    /// Checks that a frame from the child with this subtree names only nodes that the child may speak for.
    pub(super) fn check_speaker(self, subtree: &NodeSet, up: &Up) -> Result<(), String> {
        let check = |nodes: &NodeSet, speaker: &NodeSet, what: &str| match nodes.difference(speaker).first() {
            None => Ok(()),
            Some(node) => Err(format!("{what} node {node}, which is not below it")),
        };
        match up {
            Up::Answers { answers, .. } => {
                answers.iter().try_for_each(|(nodes, _)| check(nodes, subtree, "answered for"))
            }
            Up::Notice { node, notice } => {
                check_node(subtree, *node)?;
                match notice {
                    Notice::NodesLost { nodes, .. } => {
                        check(nodes, &self.tree.find_subtree(*node), "reported the loss of")
                    }
                    Notice::ChildJoined { child } if self.tree.parent(child.0) != Some(node.0) => {
                        Err(format!("reported node {child} as its child, which it is not"))
                    }
                    Notice::Channel(ChannelNotice::Part { of, .. } | ChannelNotice::Missing { of, .. }) => {
                        check(&of.nodes(), &self.tree.find_subtree(*node), "spoke for daemons of")
                    }
                    Notice::Rendezvous(RendezvousNotice::Fence { puts, .. }) => {
                        check_puts(puts, &self.tree.find_subtree(*node))
                    }
                    _ => Ok(()),
                }
            }
        }
    }
}

/// Checks that a child with this subtree may speak for that node.
pub(super) fn check_node(subtree: &NodeSet, node: NodeId) -> Result<(), String> {
    match subtree.contains(node) {
        true => Ok(()),
        false => Err(format!("spoke for node {node}, which is not below it")),
    }
}
