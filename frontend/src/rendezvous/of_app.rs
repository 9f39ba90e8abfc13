//! The rendezvous of an app's ranks, for its tool.

use std::time::Duration;

use gantry_types::rendezvous::Status;

use super::wait::until;
use crate::app::AppHandle;
use crate::error::Result;

/// An app's rendezvous, from its tool's view.
#[derive(Debug, Clone)]
pub struct AppRendezvous {
    app: AppHandle,
}

impl AppHandle {
    /// The rendezvous of the app's ranks.
    pub fn rendezvous(&self) -> AppRendezvous {
        AppRendezvous { app: self.clone() }
    }
}

impl AppRendezvous {
    /// The state of all. The first is the one that every app has. Those that its processes have created follow, by
    /// name.
    pub fn list(&self) -> Vec<Status> {
        self.app.core.rendezvous.list()
    }

    /// All that the ranks have registered at the rendezvous that every app has, as data of level 1. Waits until it is
    /// complete.
    ///
    /// # Errors
    /// [`Error::Lost`](crate::Error::Lost) names the rank that ended before it had registered;
    /// [`Error::TimedOut`](crate::Error::TimedOut).
    pub async fn wait(&self, timeout: Duration) -> Result<Vec<u8>> {
        let service = &self.app.core.rendezvous;
        until(service.changes(), timeout, || service.job_data()).await
    }
}
