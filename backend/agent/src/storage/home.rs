//! The app's directory while sessions are open, with the socket for daemons.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};

use gantry_types::error::{Failure, Kind};
use gantry_types::id::{NodeId, SessionId};
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};

use crate::failure;
use crate::jobs::spawn;
use crate::overlay::Uplink;
use crate::process::strays;
use crate::service::{Service, View};
use crate::session::{AppDir, AppDirName, SessionDir, StageBase, sweep};

/// The app's directory. It is made for the first session, and left with the last.
#[derive(Debug, Default)]
pub(super) struct Home {
    there: Option<There>,
    sessions: usize,
    /// Ends when the sweep of dead agents' directories is done; set from the first session on.
    sweeping: Option<oneshot::Receiver<Infallible>>,
}

#[derive(Debug)]
struct There {
    dir: AppDir,
    service: AbortHandle,
}

impl There {
    fn leave(self) -> Result<(), Failure> {
        self.service.abort();
        self.dir.leave()
    }
}

impl Home {
    /// Makes a session's directories, and the app's if this is the first one. Blocks.
    ///
    /// # Errors
    /// When they cannot be made there, or the app's directory is elsewhere. Then everything made for this is removed
    /// again.
    pub(super) fn open_session(
        &mut self,
        (base, name, node): (&StageBase, &AppDirName, NodeId),
        session: SessionId,
        (view, up): (watch::Receiver<View>, Uplink),
        runtime: &Handle,
    ) -> Result<SessionDir, Failure> {
        self.sweep_once(base);
        let there = match &mut self.there {
            Some(there) if there.dir.path().parent() == Some(base.path()) => there,
            Some(there) => {
                let message = format!(
                    "make the app's directory in {}: it is {} already",
                    base.path().display(),
                    there.dir.path().display()
                );
                return Err(Failure::new(Kind::Invalid, message));
            }
            None => {
                let dir = AppDir::create(base, name, node)?;
                let _in_runtime = runtime.enter();
                let service = Service::bind(&dir.socket(), view, Some(up))?;
                let service = runtime.spawn(service.serve()).abort_handle();
                self.there.insert(There { dir, service })
            }
        };
        match there.dir.open_session(session) {
            Ok(dir) => {
                self.sessions += 1;
                Ok(dir)
            }
            Err(failure) => {
                if self.sessions == 0 {
                    // The first failure says more than one of this removal.
                    self.there.take().map(There::leave);
                }
                Err(failure)
            }
        }
    }

    /// Removes a session's directories, and the app's with the last session. Blocks. Holds no lock while it removes a
    /// session's.
    ///
    /// # Errors
    /// What could not be removed. Then the app's directory stays until the agent leaves.
    pub(super) fn close_session(home: &Mutex<Self>, session: Option<SessionDir>) -> Result<(), Failure> {
        // The session could not be opened.
        let Some(session) = session else { return Ok(()) };
        let removed = session.remove();
        let mut home = lock(home);
        home.sessions -= 1;
        if home.sessions > 0 || removed.is_err() {
            return removed;
        }
        home.there.take().map_or(Ok(()), There::leave)
    }

    /// Leaves the directory if it still exists, and waits for the sweep, at most until `until`.
    ///
    /// # Errors
    /// What could not be removed, or was not removed in time.
    pub(super) async fn leave(home: Arc<Mutex<Self>>, until: Instant) -> Result<(), Failure> {
        let (done, told) = oneshot::channel();
        let started = spawn("storage", move || {
            let mut home = lock(&home);
            let left = home.there.take().map_or(Ok(()), There::leave);
            // The agent asks only when it leaves.
            drop(done.send((left, home.sweeping.take())));
        });
        started.map_err(|error| failure::from_io("start a thread for storage", &error))?;
        let (left, sweeping) = match timeout_at(until, told).await {
            Ok(Ok(left)) => left,
            _ => {
                return Err(Failure::new(
                    Kind::TimedOut,
                    "remove the app's directory: its file system hangs",
                ));
            }
        };
        // The next agent sweeps the rest.
        if let Some(sweeping) = sweeping {
            drop(timeout_at(until, sweeping).await);
        }
        left
    }

    /// Removes what dead agents have left there, once. It runs on its own thread, as it may take long.
    fn sweep_once(&mut self, base: &StageBase) {
        if self.sweeping.is_some() {
            return;
        }
        let (over, ended) = oneshot::channel::<Infallible>();
        self.sweeping = Some(ended);
        let base = base.clone();
        let swept = spawn("sweep", move || {
            // An agent that was killed may have left processes, too. `gantry-agent sweep` tells what stays.
            if !sweep(&base).is_empty() {
                strays::sweep().ok();
            }
            drop(over);
        });
        // Without a thread the next agent sweeps.
        swept.ok();
    }
}

/// Locks the mutex, even after another holder panicked.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
