//! Room for items that have not left the node.

use tokio::sync::OwnedSemaphorePermit;

/// Room for an item's bytes; given back when it is dropped.
#[derive(Debug, Default)]
pub(crate) struct Room {
    pub(super) taken: Option<OwnedSemaphorePermit>,
    /// It may grow without taking from the rest.
    pub(super) last: Option<OwnedSemaphorePermit>,
}
