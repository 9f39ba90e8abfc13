//! What happens to an operation when members do not contribute.

use gantry_shared::wire::channel::Member;
use gantry_types::error::Failure;

/// How many members must contribute. All that contribute in time are used under every policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// All members: the operation fails as soon as one is known to be missing.
    All,
    /// This many: it fails as soon as that number cannot be reached any more.
    Quorum(u64),
    /// Any number: missing members never fail it.
    BestEffort,
}

impl Policy {
    /// Whether the operation can still succeed when `missing` of its `members` are missing.
    pub(super) fn allows(self, members: u64, missing: u64) -> bool {
        match self {
            Self::All => missing == 0,
            Self::Quorum(wanted) => members.saturating_sub(missing) >= wanted,
            Self::BestEffort => true,
        }
    }
}

/// A member that did not contribute.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Missing {
    /// The member.
    pub member: Member,
    /// The node's name.
    pub host: String,
    /// The reason: it has ended, its node is lost, or the timeout expired.
    pub why: Failure,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_says_how_many_may_be_missing() {
        let most = |policy: Policy| (0..=4).filter(|missing| policy.allows(4, *missing)).max();
        assert_eq!(most(Policy::All), Some(0));
        assert_eq!(most(Policy::Quorum(3)), Some(1));
        assert_eq!(most(Policy::Quorum(5)), None);
        assert_eq!(most(Policy::BestEffort), Some(4));
    }
}
