//! What a session shares with its manifests and its channel.

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

/// What a session shares with its manifests.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) core: Arc<Core>,
    pub(crate) id: SessionId,
    /// The nodes that have it.
    pub(crate) nodes: NodeSet,
    /// What its manifests have put where.
    pub(crate) ledger: Mutex<Ledger>,
    /// Held by the manifest that is being made available: the next one's plan stands on what that one has put.
    pub(crate) staging: tokio::sync::Mutex<()>,
    /// The tool's end of its channel.
    pub(crate) end: Arc<End>,
    /// Set when all nodes have it.
    pub(super) dirs: Option<SessionDirs>,
    pub(super) alive: AtomicBool,
}

impl Drop for Inner {
    /// Also of one whose opening nobody waited for, or that is not open everywhere.
    fn drop(&mut self) {
        self.forget();
    }
}

impl Inner {
    /// Refuses when the session was destroyed or its app is over.
    pub(crate) fn check_alive(&self) -> Result<()> {
        self.core.check_alive()?;
        if self.alive.load(Ordering::SeqCst) {
            Ok(())
        } else {
            Err(Error::Gone { what: format!("session {} of app {}", self.id, self.core.app) })
        }
    }

    /// The nodes that have it and can be reached.
    pub(crate) fn live_nodes(&self) -> NodeSet {
        self.nodes.intersection(&self.core.live_nodes())
    }

    /// Has the nodes remove it, once, without waiting.
    pub(super) fn forget(&self) {
        if self.alive.swap(false, Ordering::SeqCst) && self.core.check_alive().is_ok() {
            self.core.channels.close(Some(self.id));
            let order = Order::CloseSession { session: self.id, grace: DAEMON_GRACE };
            self.core.overlay.tell(To::Nodes(self.nodes.clone()), order);
        }
    }
}
