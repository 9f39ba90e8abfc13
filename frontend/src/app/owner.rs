//! The owner of an app.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::core::{Core, Stage};
use super::handle::{AppHandle, within};
use crate::control::ControlSocket;
use crate::error::Result;

/// The owner of an app.
///
/// An app that we launched ends with its owner; one that we attached to is then left as it was found. In both cases tool daemons end
/// and sessions are removed. [`App::detach`] is the only way to let a launched app outlive its owner. Dropping an `App` starts its end
/// and does not wait for it; should the runtime end first, guard and agents see to it.
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

    /// Its number as a process group: unique among those of the user on this machine; none: it has no control socket.
    pub fn pgid(&self) -> Option<u32> {
        self.control.as_ref().map(ControlSocket::pgid)
    }

    /// Leaves the app to itself. Its output is dropped from now on. Its daemons and sessions stay until it ends. A held app stays held until its
    /// ranks get SIGCONT.
    ///
    /// # Errors
    /// An agent could not be told in time; the app then ends as if its owner had been dropped.
    pub async fn detach(self, timeout: Duration) -> Result<()> {
        self.core.let_go(Instant::now() + timeout).await
    }

    /// Ends the app with its daemons and sessions. An app that was attached to is left as it was found. Waits until nothing is left and all output has
    /// been written.
    ///
    /// # Errors
    /// [`Error::TimedOut`](crate::Error::TimedOut): the end goes on behind our back.
    pub async fn close(mut self, timeout: Duration) -> Result<()> {
        self.core.end();
        let core = Arc::clone(&self.core);
        let control = self.control.take();
        let over = async {
            core.reached(Stage::Gone).await;
            core.outputs.written().await;
            // Who waits for the end through the socket is told of it before our caller may exit.
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
