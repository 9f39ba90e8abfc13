//! State that a session shares with its manifests and its channel.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use gantry_shared::wire::message::{Order, To};
use gantry_types::id::SessionId;
use gantry_types::rank_set::NodeSet;
use gantry_types::session_dirs::SessionDirs;

use crate::app::DAEMON_GRACE;
use crate::app::core::Core;
use crate::channel::hub::End;
use crate::error::{Error, Result};
use crate::staging::ledger::Ledger;

/// State that a session shares with its manifests.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) core: Arc<Core>,
    pub(crate) id: SessionId,
    /// The nodes that have it.
    pub(crate) nodes: NodeSet,
    /// The names of those that were left out, because they gave no sign of life.
    pub(super) left_out: Vec<String>,
    /// The files of its manifests so far.
    pub(crate) ledger: Mutex<Ledger>,
    /// Held by the manifest in progress: the next plan depends on its result.
    pub(crate) staging: tokio::sync::Mutex<()>,
    /// The tool's end of its channel.
    pub(crate) end: Arc<End>,
    /// Set when the session exists on all nodes.
    pub(super) dirs: Option<SessionDirs>,
    pub(super) alive: AtomicBool,
}

impl Drop for Inner {
    /// Runs also for a session whose opening was cancelled, or that is not open on all nodes.
    fn drop(&mut self) {
        self.forget();
    }
}

impl Inner {
    /// Fails if the session was destroyed or its app is over.
    pub(crate) fn check_alive(&self) -> Result<()> {
        self.core.check_alive()?;
        if self.alive.load(Ordering::SeqCst) {
            Ok(())
        } else {
            Err(Error::Gone { what: format!("session {} of app {}", self.id, self.core.app) })
        }
    }

    /// The nodes of the session that can be reached.
    pub(crate) fn live_nodes(&self) -> NodeSet {
        self.nodes.intersection(&self.core.live_nodes())
    }

    /// Makes the nodes remove the session, once, without waiting.
    pub(super) fn forget(&self) {
        if self.alive.swap(false, Ordering::SeqCst) && self.core.check_alive().is_ok() {
            self.core.channels.close(Some(self.id));
            let order = Order::CloseSession { session: self.id, grace: DAEMON_GRACE };
            self.core.overlay.tell(To::Nodes(self.nodes.clone()), order);
        }
    }
}
