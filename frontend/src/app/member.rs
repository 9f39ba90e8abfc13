//! How an app reports to the job that its ranks are part of.

use std::sync::Arc;

use gantry_shared::wire::flow::Word;
use gantry_types::id::{NodeId, Rank};
use gantry_types::rank_set::NodeSet;
use gantry_types::status::ExitStatus;

use super::core::Core;
use super::state::Happening;

impl Core {
    /// Reports a rank's end, once everything it had written to other ranks of its job has arrived.
    pub(super) fn rank_exited(self: &Arc<Self>, rank: Rank, status: ExitStatus) {
        let happening = Happening::RankExited(rank, status);
        match self.member.last_words(rank) {
            None => self.happened(happening),
            Some(through) => {
                let core = Arc::clone(self);
                tokio::spawn(async move {
                    through.await;
                    core.happened(happening);
                });
            }
        }
    }

    /// Handles an agent's message about a rank's link.
    pub(super) fn take_link(&self, node: NodeId, link: u32, word: Word) {
        if let Word::Open(rank) = word
            && self.state().placement().get(rank).is_none_or(|place| place.node != node)
        {
            return tracing::debug!(%node, %rank, "a link of a rank that is elsewhere");
        }
        self.member.take(node, link, word);
    }

    /// Reports the end of all ranks on lost nodes.
    pub(super) fn lose_ranks(&self, nodes: &NodeSet) {
        let placement = self.state().placement().clone();
        let ranks = nodes.iter().flat_map(|node| placement.ranks_on(node).iter().collect::<Vec<_>>());
        ranks.for_each(|rank| self.member.rank_ended(rank));
    }
}
