//! The objects behind C's ids.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use gantry_frontend::channel::Channel;
use gantry_frontend::coallocation::Job;
use gantry_frontend::info::AppState;
use gantry_frontend::{self as library, AppHandle};
use gantry_shared_capi::Fault;
use gantry_types::error::Kind;
use gantry_types::id::NodeId;
use gantry_types::session_dirs::SessionDirs;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::gantry::gate::Gate;
use crate::table::lock;

/// The object behind the id of an application.
#[derive(Debug)]
pub(crate) struct App {
    /// None while it is being ended or detached, and afterwards.
    pub(crate) owner: Mutex<Option<library::App>>,
    pub(crate) handle: AppHandle,
}

impl App {
    pub(crate) fn is_over(&self) -> bool {
        self.handle.state() == AppState::Ended
    }
}

/// The object behind the id of a session.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) app: i64,
    /// None while it is being destroyed, and afterwards.
    pub(crate) session: Mutex<Option<library::Session>>,
    /// Until it is closed, the tool's own filters may be called.
    pub(crate) filters: Arc<Gate>,
    /// For every manifest that was shipped something that came with it.
    pub(crate) shipped: Mutex<Vec<PathBuf>>,
}

impl Session {
    /// Does something with the session itself.
    pub(crate) fn with<T>(&self, what: impl FnOnce(&library::Session) -> T) -> Result<T, Fault> {
        let session = lock(&self.session);
        session.as_ref().map(what).ok_or_else(|| Fault::new(Kind::Gone, "the session is being destroyed"))
    }

    /// Its directories on a node.
    pub(crate) fn dirs(&self, node: NodeId) -> Result<SessionDirs, Fault> {
        let dirs = self.with(|session| session.dirs(node).cloned())?;
        dirs.ok_or_else(|| Fault::new(Kind::NotFound, "the session is not on that node"))
    }

    /// Notes a manifest that was shipped, by a path below the session's root that came with it.
    pub(crate) fn note_shipped(&self, below: PathBuf) {
        lock(&self.shipped).push(below);
    }
}

/// The object behind the id of a manifest.
#[derive(Debug)]
pub(crate) struct Manifest {
    pub(crate) session: i64,
    /// None while it is being sent, and afterwards.
    pub(crate) manifest: Mutex<Option<library::Manifest>>,
    /// The path of one of its files, below the session's root.
    pub(crate) first: Mutex<Option<PathBuf>>,
}

impl Manifest {
    /// Takes the manifest out, to send it, and the path of one of its files.
    pub(crate) fn take(&self) -> Result<(library::Manifest, Option<PathBuf>), Fault> {
        let manifest = lock(&self.manifest).take();
        let manifest =
            manifest.ok_or_else(|| Fault::new(Kind::Gone, "the manifest is being shipped already"))?;
        Ok((manifest, lock(&self.first).take()))
    }
}

/// Messages with one tag, and a descriptor that is readable while messages wait.
#[derive(Debug)]
pub(crate) struct Inbox {
    pub(crate) channel: Channel,
    pub(crate) tag: u32,
    pub(crate) signal: Arc<Signal>,
    pub(crate) watching: AbortHandle,
}

/// A pair of sockets. It contains a byte while a message waits.
#[derive(Debug)]
pub(crate) struct Signal {
    pub(crate) ours: UnixStream,
    pub(crate) theirs: UnixStream,
    pub(crate) cleared: Notify,
}

impl Signal {
    pub(crate) fn set(&self) {
        // A full socket signals already.
        (&self.ours).write_all(&[1]).ok();
    }

    pub(crate) fn clear(&self) {
        while (&self.theirs).read(&mut [0; 8]).is_ok_and(|bytes| bytes > 0) {}
        self.cleared.notify_one();
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

/// The object behind the id of a job.
pub(crate) type Owned = Arc<Job>;
