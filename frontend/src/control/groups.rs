//! All process groups of the user: the live apps, and the ended ones whose record is kept.

use std::time::Duration;

use gantry_types::id::AppId;

use super::client::ask_all;
use super::protocol::Ask;
use super::registry::{Registry, Shelf};
use crate::error::Result;
use crate::procgroup::GroupFacts;

/// The frontends' answers about their groups.
#[derive(Debug, Default)]
pub(crate) struct GroupListing {
    /// The groups, in the order of their numbers, and whether each is live.
    pub(crate) groups: Vec<(GroupFacts, Shelf)>,
    /// Apps whose frontend exists and did not answer: it is stopped, overloaded, or of another version.
    pub(crate) silent: Vec<AppId>,
}

/// All process groups of the user. Each frontend may take until the timeout expires.
///
/// # Errors
/// The runtime directory cannot be read.
pub(crate) async fn list_groups(registry: &Registry, timeout: Duration) -> Result<GroupListing> {
    let mut listing = GroupListing::default();
    // The order matters: an app that ends meanwhile is kept before it disappears from the live ones.
    for shelf in [Shelf::Live, Shelf::Kept] {
        let (groups, silent) =
            ask_all::<GroupFacts>(registry, shelf, &Ask::Group, "asking for the group", timeout).await?;
        listing.groups.extend(groups.into_iter().map(|facts| (facts, shelf)));
        listing.silent.extend(silent);
    }
    // If a group is in both lists, the live app's answer comes first. The sort is stable.
    listing.groups.sort_by_key(|(facts, _)| facts.pgid);
    listing.groups.dedup_by_key(|(facts, _)| facts.pgid);
    listing.silent.sort_unstable();
    listing.silent.dedup();
    Ok(listing)
}
