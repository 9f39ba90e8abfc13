//! Sessions: a unique, private storage place on every node of an app, with guaranteed cleanup.

pub(crate) mod inner;
mod opening;
pub(crate) mod place;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gantry_shared::deadline::bounded;
use gantry_shared::wire::message::{Order, To};
use gantry_types::id::{NodeId, SessionId};
use gantry_types::rank_set::NodeSet;
use gantry_types::session_dirs::SessionDirs;
use tokio::time::{Instant, timeout_at};

use self::inner::Inner;
use crate::app::DAEMON_GRACE;
use crate::app::core::{Core, Stage};
use crate::channel::Channel;
use crate::error::{Error, Result};
use crate::manifest::Manifest;

/// A node that gives no sign of life in this part of a timeout may be left out.
const SILENT: u32 = 4;

/// A storage place on every node of an app. It owns its manifests and the daemons that were started with them.
///
/// [`Session::destroy`] ends its daemons, removes its storage and waits for both. Dropping a session starts that and
/// does not wait. The end of the app ends all its sessions.
#[derive(Debug)]
pub struct Session {
    inner: Arc<Inner>,
}

impl Session {
    pub(crate) async fn open(core: &Arc<Core>, deadline: Instant) -> Result<Self> {
        Self::open_on(core, core.live_nodes(), Vec::new(), deadline).await
    }

    /// As [`Session::open`], without nodes that give no sign of life within a quarter of the timeout.
    pub(crate) async fn open_where_answered(core: &Arc<Core>, timeout: Duration) -> Result<Self> {
        let started = Instant::now();
        let silent = core.find_silent(started + bounded(timeout / SILENT)).await?;
        let (nodes, left_out) = {
            let state = core.state();
            let left_out: Vec<String> = silent.iter().map(|node| state.host(node)).collect();
            (state.live_nodes().difference(&silent), left_out)
        };
        if nodes.is_empty() && !left_out.is_empty() {
            let phase = "asking for signs of life";
            return Err(Error::TimedOut { phase, after: started.elapsed(), missing: left_out });
        }
        Self::open_on(core, nodes, left_out, started + bounded(timeout)).await
    }

    async fn open_on(
        core: &Arc<Core>,
        nodes: NodeSet,
        left_out: Vec<String>,
        deadline: Instant,
    ) -> Result<Self> {
        let id = core.new_session();
        // Owned from the start: if some nodes fail, the directories on the others are removed.
        let mut inner = Inner {
            core: Arc::clone(core),
            id,
            nodes: nodes.clone(),
            left_out,
            ledger: Mutex::default(),
            staging: tokio::sync::Mutex::default(),
            end: core.channels.open(id),
            dirs: None,
            alive: AtomicBool::new(true),
        };
        inner.dirs = Some(core.place.open(core, id, &nodes, deadline).await?);
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The session's number in its app.
    pub fn id(&self) -> SessionId {
        self.inner.id
    }

    /// Its directories on a node. None: the session does not include the node. The paths are the same on every node, so
    /// they can be arguments of daemons.
    pub fn dirs(&self, node: NodeId) -> Option<&SessionDirs> {
        self.inner.dirs.as_ref().filter(|_| self.inner.nodes.contains(node))
    }

    /// The names of the nodes that it does not include, because they gave no sign of life:
    /// [`AppHandle::session_where_answered`](crate::AppHandle::session_where_answered).
    pub fn left_out(&self) -> &[String] {
        &self.inner.left_out
    }

    /// An empty manifest.
    pub fn manifest(&self) -> Manifest {
        Manifest::new(Arc::clone(&self.inner))
    }

    /// The channel between the tool and the session's daemons.
    pub fn channel(&self) -> Channel {
        Channel::new(Arc::clone(&self.inner))
    }

    /// Ends the session's daemons (SIGTERM, ten seconds later SIGKILL), removes its storage from every node, and waits
    /// for both.
    ///
    /// # Errors
    /// [`Error::Gone`] when the app has ended, which has already removed the session.
    pub async fn destroy(self, timeout: Duration) -> Result<()> {
        self.try_destroy(timeout).await
    }

    /// As [`Session::destroy`], for the C library: after a failure, another call waits for what the first one has begun.
    ///
    /// # Errors
    /// As [`Session::destroy`].
    #[doc(hidden)]
    pub async fn try_destroy(&self, timeout: Duration) -> Result<()> {
        let core = &self.inner.core;
        core.check_alive()?;
        self.inner.alive.store(false, Ordering::SeqCst);
        core.channels.close(Some(self.inner.id));
        let order = Order::CloseSession { session: self.inner.id, grace: DAEMON_GRACE };
        let nodes = self.inner.live_nodes();
        let deadline = Instant::now() + bounded(timeout);
        let asked = core.ask_each(&nodes, order.clone(), "destroying a session", deadline).await;
        if let Err(Error::Lost { .. }) = asked {
            // An agent whose link was not cut leaves because the app is over. Then it removes the app's sessions.
            let in_order = self.inner.live_nodes() == nodes;
            if in_order && timeout_at(deadline, core.reached(Stage::Gone)).await.is_ok() {
                return Ok(());
            }
            // If a node is unreachable, the others may not have got the order. Nodes that have already removed the
            // session ignore a second order.
            core.overlay.tell(To::Nodes(nodes), order);
        }
        core.accept(asked?).map(drop)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.inner.forget();
    }
}
