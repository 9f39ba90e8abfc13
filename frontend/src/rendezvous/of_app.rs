//! The rendezvous of an app's ranks, for its tool.

use std::time::Duration;

use gantry_types::rendezvous::Status;

use super::wait::until;
use crate::app::AppHandle;
use crate::error::Result;

/// An app's rendezvous, as its tool sees them.
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
    /// How all stand: the one that every app has first, then those that its processes have created, by name.
    pub fn list(&self) -> Vec<Status> {
        self.app.core.rendezvous.list()
    }

    /// All that the ranks have registered at the one that every app has, as data of level 1. Waits until it is complete.
    ///
    /// # Errors
    /// [`Error::Lost`](crate::Error::Lost) names the rank that ended before it had registered; [`Error::TimedOut`](crate::Error::TimedOut).
    pub async fn wait(&self, timeout: Duration) -> Result<Vec<u8>> {
        let service = &self.app.core.rendezvous;
        until(service.changes(), timeout, || service.job_data()).await
    }
}
