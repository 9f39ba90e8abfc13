//! Rendezvous, where they are gathered: of every app, and above apps.
//!
//! Ranks register data and get what others have registered; how they do it is `gantry_backend::rendezvous`. What they register comes up the tree to the app's frontend, which
//! alone knows whether it is complete; what they wait for goes down to the nodes where somebody waits, and to no other.
//!
//! | module | what is there |
//! | --- | --- |
//! | `place` | one rendezvous: what has come, what is on its way, who waits |
//! | `service` | all of one app, as its agents' notices have it |
//! | `deliver` | the way down: small things in orders, large ones as bulk data |
//! | `multijob` | one whose members are apps, and further levels above it |
//!
//! A tool may look on ([`AppRendezvous`]). To launch apps as one multijob it makes a [`Multijob`] and says which app is which of its subjobs
//! ([`LaunchRequest::subjob`](crate::LaunchRequest::subjob)).

mod deliver;
mod multijob;
mod place;
mod service;

use std::time::Duration;

use gantry_shared::error::Failure;
use gantry_shared::rendezvous::Broken;
pub use gantry_shared::rendezvous::{Data, DataError, Limits, MultijobId, Resource};
use gantry_shared::wire::rendezvous::Refusal;
pub use gantry_shared::wire::rendezvous::{Standing, Status};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

pub use self::multijob::Multijob;
pub(crate) use self::multijob::Seat;
pub(crate) use self::service::Service;
use crate::app::AppHandle;
use crate::error::{Error, Result};

const WAITING: &str = "waiting for a rendezvous";

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
    /// [`Error::Lost`] names the rank that ended before it had registered; [`Error::TimedOut`].
    pub async fn wait(&self, deadline: Duration) -> Result<Vec<u8>> {
        let service = &self.app.core.rendezvous;
        until(service.changes(), deadline, || service.job_data()).await
    }
}

/// Looks until there is something to see.
async fn until(
    mut changes: watch::Receiver<u64>,
    deadline: Duration,
    mut look: impl FnMut() -> Result<Option<Vec<u8>>>,
) -> Result<Vec<u8>> {
    let end = Instant::now() + deadline;
    loop {
        changes.mark_unchanged();
        if let Some(data) = look()? {
            return Ok(data);
        }
        match timeout_at(end, changes.changed()).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return Err(Error::Gone { what: "the rendezvous".to_owned() }),
            Err(_) => return Err(Error::TimedOut { phase: WAITING, after: deadline, missing: Vec::new() }),
        }
    }
}

fn to_error(Broken { what, member, why }: Broken) -> Error {
    Error::Lost { what: vec![format!("{what} {member}")], reason: why }
}

fn refuse(failure: Failure) -> Refusal {
    Refusal::Failed(failure)
}
