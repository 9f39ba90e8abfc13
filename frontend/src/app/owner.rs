//! The owner of an app.

use std::sync::Arc;
use std::time::Duration;

use gantry_shared::deadline::bounded;
use tokio::time::Instant;

use super::core::{Core, Stage};
use super::handle::{AppHandle, within};
use crate::control::ControlSocket;
use crate::error::Result;

/// The owner of an app.
///
/// A launched app ends with its owner. An attached app is left as it was found. In both cases tool daemons end and
/// sessions are removed. [`App::detach`] is the only way to let a launched app outlive its owner. Dropping an `App`
/// starts its end and does not wait for it. If the runtime ends first, guard and agents finish the cleanup.
#[derive(Debug)]
#[must_use = "dropping the owner ends the app"]
pub struct App {
    pub(super) handle: AppHandle,
    /// Served while the owner lives.
    pub(super) control: Option<ControlSocket>,
}

impl App {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self { handle: AppHandle { core }, control: None }
    }

    /// Its number as a process group, unique among those of this user on this machine. None: the app has no control
    /// socket.
    pub fn pgid(&self) -> Option<u32> {
        self.control.as_ref().map(ControlSocket::pgid)
    }

    /// Detaches from the app. Its output is dropped from now on. Its daemons and sessions stay until it ends. A held
    /// app stays held until its ranks get SIGCONT.
    ///
    /// # Errors
    /// An agent could not be reached in time, or could not let a rank go that had been released; the app then ends as
    /// if its owner had been dropped.
    pub async fn detach(self, timeout: Duration) -> Result<()> {
        self.core.let_go(Instant::now() + bounded(timeout)).await
    }

    /// Ends the app with its daemons and sessions. An attached app is left as it was found. Waits until nothing is left
    /// and all output has been written. A stream of output that is not read keeps what it has, and ends.
    ///
    /// # Errors
    /// [`Error::TimedOut`](crate::Error::TimedOut): the cleanup continues in the background.
    pub async fn close(mut self, timeout: Duration) -> Result<()> {
        self.core.end();
        let core = Arc::clone(&self.core);
        let control = self.control.take();
        let _watching = self.core.outputs.end_unread();
        let over = async {
            core.reached(Stage::Gone).await;
            core.outputs.written().await;
            // Clients that wait for the end through the socket get its result before our caller may exit.
            if let Some(control) = control {
                control.close().await;
            }
        };
        within(timeout, "closing the app", over).await
    }
}

impl Drop for App {
    fn drop(&mut self) {
        self.core.end();
    }
}

impl std::ops::Deref for App {
    type Target = AppHandle;

    fn deref(&self) -> &AppHandle {
        &self.handle
    }
}
