//! Records of process groups that have ended, kept until a client has them forgotten. Each is served on a socket of
//! its own.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use gantry_types::rank_set::RankSet;
use gantry_types::signal::Signal;
use tokio::sync::{mpsc, watch};

use super::protocol::{DaemonNumber, DaemonOrder};
use super::registry::{Registry, Shelf};
use super::server::{ControlSocket, GroupLabel, serve_target};
use super::target::{Conversation, Feed, Target};
use crate::error::{Error, Result};
use crate::event::{Event, Exit};
use crate::info::AppInfo;
use crate::procgroup::Numbers;

/// Serves the record of an ended group. [`ControlSocket::ended`] returns when it is forgotten. Must be called within
/// a tokio runtime.
///
/// # Errors
/// The socket cannot be made.
pub(crate) fn keep(
    info: AppInfo,
    sessions: Numbers,
    (pgid, submitter): (u32, String),
    registry: &Registry,
) -> Result<ControlSocket> {
    let app = info.app;
    let kept = Kept { info, sessions, forgotten: watch::Sender::new(false) };
    serve_target(app, Arc::new(kept), registry, GroupLabel { pgid, submitter }, Shelf::Kept)
}

struct Kept {
    info: AppInfo,
    sessions: Numbers,
    forgotten: watch::Sender<bool>,
}

impl Kept {
    fn gone<T>(&self) -> Result<T> {
        Err(Error::Gone { what: format!("app {}", self.info.app) })
    }
}

/// A feed without events that ends when the group is forgotten.
struct UntilForgotten(watch::Receiver<bool>);

#[async_trait]
impl Feed for UntilForgotten {
    async fn next(&mut self) -> Option<Event> {
        drop(self.0.wait_for(|forgotten| *forgotten).await);
        None
    }
}

#[async_trait]
impl Target for Kept {
    fn info(&self) -> AppInfo {
        self.info.clone()
    }

    fn events(&self) -> Box<dyn Feed> {
        Box::new(UntilForgotten(self.forgotten.subscribe()))
    }

    fn sessions(&self) -> Numbers {
        self.sessions.clone()
    }

    fn forget(&self) -> Result<()> {
        self.forgotten.send_replace(true);
        Ok(())
    }

    async fn release(&self, _deadline: Duration) -> Result<()> {
        self.gone()
    }

    async fn signal(&self, _signal: Signal, _ranks: Option<&RankSet>, _deadline: Duration) -> Result<()> {
        self.gone()
    }

    async fn kill(&self, _deadline: Duration) -> Result<Exit> {
        self.info.exit.clone().map_or_else(|| self.gone(), Ok)
    }

    async fn start_daemon(
        &self,
        _order: DaemonOrder,
        _news: mpsc::Sender<Event>,
        _deadline: Duration,
    ) -> Result<(DaemonNumber, Box<dyn Feed>)> {
        self.gone()
    }

    async fn open_channel(
        &self,
        _order: DaemonOrder,
        _deadline: Duration,
    ) -> Result<(DaemonNumber, Box<dyn Conversation>)> {
        self.gone()
    }
}
