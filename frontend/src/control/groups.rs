//! All process groups of the user: the live apps, and the ended ones whose record is kept.

use std::time::Duration;

use gantry_types::id::AppId;
use tokio::task::JoinSet;
use tokio::time;

use super::client::{AT_A_TIME, Client, late};
use super::registry::{Registry, Shelf};
use crate::error::{Error, Result};
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
        for some in registry.apps(shelf)?.chunks(AT_A_TIME) {
            let mut asked = JoinSet::new();
            for app in some.iter().copied() {
                let registry = registry.clone();
                asked.spawn(async move { (app, ask(&registry, app, shelf, timeout).await) });
            }
            while let Some(answered) = asked.join_next().await {
                match answered {
                    Ok((_, Ok(facts))) => listing.groups.push((facts, shelf)),
                    Ok((_, Err(Error::UnknownApp { .. } | Error::Lost { .. }))) => {}
                    Ok((app, Err(error))) => {
                        tracing::warn!(%app, %error, "its frontend gives no answer");
                        listing.silent.push(app);
                    }
                    Err(error) => return Err(Error::Protocol(error.to_string())),
                }
            }
        }
    }
    // If a group is in both lists, the live app's answer comes first. The sort is stable.
    listing.groups.sort_by_key(|(facts, _)| facts.pgid);
    listing.groups.dedup_by_key(|(facts, _)| facts.pgid);
    listing.silent.sort_unstable();
    listing.silent.dedup();
    Ok(listing)
}

async fn ask(registry: &Registry, app: AppId, shelf: Shelf, timeout: Duration) -> Result<GroupFacts> {
    let asking = async { Client::connect_to(registry, app, shelf).await?.group(timeout).await };
    time::timeout(timeout, asking).await.unwrap_or_else(|_| Err(late("asking for the group", timeout, app)))
}
