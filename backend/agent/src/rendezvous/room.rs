//! Room for items that have not left the node.

use tokio::sync::OwnedSemaphorePermit;

/// Room for an item's bytes, freed on drop.
#[derive(Debug, Default)]
pub(crate) struct Room {
    pub(super) taken: Option<OwnedSemaphorePermit>,
    /// With this permit the item may grow without a share of the common room.
    pub(super) last: Option<OwnedSemaphorePermit>,
}
