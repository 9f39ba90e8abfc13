//! An app without its ownership.

use std::sync::Arc;
use std::time::Duration;

use gantry_shared::deadline::bounded;
use gantry_shared::wire::message::Order;
use gantry_types::id::AppId;
use gantry_types::placement::Placement;
use gantry_types::rank_set::{NodeSet, RankSet};
use gantry_types::signal::Signal;
use tokio::time::Instant;

use super::core::{Core, Stage};
use super::events::Events;
use super::state::Happening;
use super::stdio::OutputStream;
use crate::error::{Error, Result};
use crate::event::Exit;
use crate::info::{AppInfo, AppState};
use crate::procgroup::{Number, Numbers};
use crate::session::Session;

/// A handle to an app that does not own it. When the app is gone, calls return [`Error::Gone`].
#[derive(Debug, Clone)]
pub struct AppHandle {
    pub(crate) core: Arc<Core>,
}

impl AppHandle {
    /// The app's id.
    pub fn id(&self) -> AppId {
        self.core.app
    }

    /// The WLM's name.
    pub fn wlm(&self) -> &'static str {
        self.core.wlm.name()
    }

    /// The present state of the app.
    pub fn state(&self) -> AppState {
        self.core.state().app_state()
    }

    /// Everything known about the app now.
    pub fn info(&self) -> AppInfo {
        self.core.state().info()
    }

    /// The numbers of all sessions the app has had.
    pub fn sessions(&self) -> Numbers {
        let next = self.core.next_session();
        Numbers::from_range(Number(1)..=Number(next - 1))
    }

    /// Where the ranks are.
    pub fn placement(&self) -> Placement {
        self.core.state().placement().clone()
    }

    /// Number of nodes.
    pub fn node_count(&self) -> u32 {
        self.core.state().placement().node_count()
    }

    /// The numbers of the nodes with these names.
    ///
    /// # Errors
    /// The app has no such node.
    pub fn nodes_by_hosts<S: AsRef<str>>(&self, hosts: &[S]) -> Result<NodeSet> {
        let state = self.core.state();
        let find = |host: &S| {
            let host = host.as_ref();
            state.placement().find_host(host).ok_or_else(|| {
                let all: Vec<&str> = state.placement().hosts().collect();
                Error::Invalid {
                    message: format!("app {} has no node '{host}'", self.core.app),
                    hint: Some(format!("its nodes: {}", gantry_types::host_set::fold_hosts(&all))),
                }
            })
        };
        hosts.iter().map(find).collect()
    }

    /// The events of the app: the first one has its present state, the others follow as they happen.
    /// [`AppHandle::take_output`] gives the output.
    pub fn events(&self) -> Events {
        self.core.subscribe()
    }

    /// Releases held ranks, except ranks that a debugger traces. Waits until every node has done it. Cancelling the
    /// wait does not stop the release.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the app is not held (any more).
    pub async fn release(&self, timeout: Duration) -> Result<()> {
        self.core.check_alive()?;
        match self.state() {
            AppState::Held => {}
            AppState::Starting => return Err(Error::invalid(format!("app {} is still starting", self.id()))),
            AppState::Running | AppState::Ended => {
                return Err(Error::Invalid {
                    message: format!("app {} is not held", self.id()),
                    hint: Some("it was released before, or never held".to_owned()),
                });
            }
        }
        let core = Arc::clone(&self.core);
        let deadline = Instant::now() + bounded(timeout);
        // Use a separate task: the state must learn what the nodes did, even if the caller stops waiting.
        let released = tokio::spawn(async move {
            core.happened(Happening::Releasing);
            match core.ask(&core.live_nodes(), Order::Release, "releasing", deadline).await {
                Ok(answers) => {
                    core.happened(Happening::Released(answers.into_iter().map(|(node, _)| node).collect()));
                    core.let_launcher_go().await
                }
                Err(error) => {
                    core.happened(Happening::NotReleased);
                    Err(error)
                }
            }
        });
        released.await?
    }

    /// Sends `signal` to `ranks`, or to all. A held rank accepts SIGKILL only: any other signal would let it run for an
    /// instant, or would be lost. Waits until every node has sent it.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a held app and another signal than SIGKILL, or a rank that the app does not have.
    pub async fn signal(&self, signal: Signal, ranks: Option<&RankSet>, timeout: Duration) -> Result<()> {
        self.core.check_alive()?;
        if self.state() == AppState::Held && signal != Signal::KILL && signal != Signal::PROBE {
            return Err(Error::Invalid {
                message: format!("app {} is held and cannot take {signal}", self.id()),
                hint: Some("release it first, or send SIGKILL".to_owned()),
            });
        }
        let nodes = self.nodes_of(ranks)?;
        let deadline = Instant::now() + bounded(timeout);
        let order = Order::Signal { signal, ranks: ranks.cloned() };
        self.core.ask(&nodes, order, "sending a signal", deadline).await.map(drop)
    }

    /// Sends SIGKILL to all ranks and waits for their end.
    ///
    /// # Errors
    /// [`Error::TimedOut`] when ranks do not end in time.
    pub async fn kill(&self, timeout: Duration) -> Result<Exit> {
        if let Some(exit) = self.core.state().exit().cloned() {
            return Ok(exit);
        }
        let started = Instant::now();
        match self.signal(Signal::KILL, None, timeout).await {
            // The app ended meanwhile, as wanted.
            Ok(()) | Err(Error::Gone { .. }) => {}
            Err(error) => return Err(error),
        }
        within(timeout.saturating_sub(started.elapsed()), "waiting for killed ranks to end", self.wait())
            .await?
    }

    /// Waits until all ranks have ended. Daemons and sessions may still be ending; [`App::close`](super::App::close)
    /// waits for them.
    ///
    /// # Errors
    /// [`Error::Gone`] when the app was detached or closed before.
    pub async fn wait(&self) -> Result<Exit> {
        let exit = self.core.until(|state| state.exit().cloned()).await;
        exit.ok_or_else(|| Error::Gone { what: format!("app {}", self.id()) })
    }

    /// Waits until output that goes to descriptors ([`OutputTo::Fds`](crate::OutputTo::Fds)) is written: that of the
    /// ranks, and of processes that have it from them. Before, [`AppHandle::wait`] may have seen the ranks end.
    pub async fn output_written(&self) {
        self.core.outputs.written().await;
    }

    /// The output of the ranks, if the app was launched with [`OutputTo::Stream`](crate::OutputTo::Stream). The first
    /// call takes it; later calls get nothing.
    pub fn take_output(&self) -> Option<OutputStream> {
        self.core.take_rank_output()
    }

    /// Makes a session: a private storage place on every node.
    ///
    /// # Errors
    /// A node has no place for it.
    pub async fn session(&self, timeout: Duration) -> Result<Session> {
        Session::open(&self.core, Instant::now() + bounded(timeout)).await
    }

    /// As [`AppHandle::session`], but leaves out nodes that give no sign of life within a quarter of the timeout.
    /// [`Session::left_out`] names them.
    ///
    /// # Errors
    /// As [`AppHandle::session`]; or no node answers.
    pub async fn session_where_answered(&self, timeout: Duration) -> Result<Session> {
        Session::open_where_answered(&self.core, timeout).await
    }

    /// Waits until the app and everything that belonged to it is gone from every node.
    pub async fn gone(&self) {
        self.core.reached(Stage::Gone).await;
    }

    fn nodes_of(&self, ranks: Option<&RankSet>) -> Result<NodeSet> {
        let Some(ranks) = ranks else { return Ok(self.core.live_nodes()) };
        let state = self.core.state();
        ranks
            .iter()
            .map(|rank| {
                let place = state.placement().get(rank);
                place.map(|place| place.node).ok_or_else(|| {
                    let count = state.placement().rank_count();
                    Error::invalid(format!(
                        "app {} has {count} ranks; rank {rank} is not one of them",
                        self.core.app
                    ))
                })
            })
            .collect()
    }
}

pub(super) async fn within<T>(
    timeout: Duration,
    phase: &'static str,
    what: impl Future<Output = T>,
) -> Result<T> {
    let waited = tokio::time::timeout(timeout, what).await;
    waited.map_err(|_| Error::TimedOut { phase, after: timeout, missing: Vec::new() })
}
