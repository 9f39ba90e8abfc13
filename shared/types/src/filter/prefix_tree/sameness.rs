//! Comparison of sets of ranks that stand in many frames.

use std::collections::HashMap;
use std::sync::Arc;

use crate::rank_set::RankSet;

/// Which sets are equal; each two are compared once, as one large set may stand in many frames.
#[derive(Default)]
pub(super) struct Sameness(HashMap<(*const RankSet, *const RankSet), bool>);

impl Sameness {
    pub(super) fn are_same(&mut self, one: &Arc<RankSet>, other: &Arc<RankSet>) -> bool {
        let pair = (Arc::as_ptr(one), Arc::as_ptr(other));
        pair.0 == pair.1 || *self.0.entry(pair).or_insert_with(|| one == other)
    }
}
