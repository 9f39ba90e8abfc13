//! Tool daemons: the tool's own program, one per node by default, started in a session.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gantry_shared::deadline::bounded;
use gantry_shared::wire::message::{Answer, Order, StartDaemon, To};
use gantry_types::id::{DaemonId, NodeId, Pid};
use gantry_types::output::DaemonOutput;
use gantry_types::rank_set::NodeSet;
use gantry_types::signal::Signal;
use gantry_types::status::ExitStatus;
use tokio::time::Instant;

use crate::app::OutputStream;
use crate::app::core::Core;
use crate::app::state::Happening;
use crate::error::{Error, Result};
use crate::lock::lock;

/// A tool daemon on its nodes. It belongs to its session, not to this handle: dropping the handle does nothing to it.
#[derive(Debug)]
pub struct Daemon {
    core: Arc<Core>,
    id: DaemonId,
    processes: Vec<(NodeId, Pid)>,
    output: Mutex<Option<OutputStream>>,
}

/// A start in progress. Dropping it before its end makes the nodes end the daemon.
#[derive(Debug)]
struct Start<'a> {
    core: &'a Core,
    id: DaemonId,
    nodes: NodeSet,
    over: bool,
}

impl Start<'_> {
    fn succeeded(mut self) {
        self.over = true;
    }
}

impl Drop for Start<'_> {
    fn drop(&mut self) {
        if !self.over {
            let kill = Order::SignalDaemon { daemon: self.id, signal: Signal::KILL };
            self.core.overlay.tell(To::Nodes(self.nodes.clone()), kill);
            self.core.outputs.forget(Some(self.id));
        }
    }
}

impl Daemon {
    /// Starts it on all `nodes`, or on none.
    pub(crate) async fn start(
        core: &Arc<Core>,
        nodes: NodeSet,
        order: StartDaemon,
        deadline: Instant,
    ) -> Result<Self> {
        let id = order.daemon;
        // Make the sink before the first byte can arrive.
        let forwards = order.output == DaemonOutput::Forward;
        let output = forwards.then(|| core.outputs.stream(Some(id), nodes.clone()));
        let start = Start { core, id, nodes, over: false };
        let order = Order::StartDaemon(order);
        let answers = core.ask(&start.nodes, order, "starting a daemon", deadline).await?;
        let mut processes = Vec::with_capacity(answers.len());
        for (node, answer) in answers {
            match answer {
                Answer::Daemon(pid) => processes.push((node, pid)),
                other => return Err(Error::Protocol(format!("an agent answered {other:?} to a daemon"))),
            }
        }
        processes.sort_unstable();
        start.succeeded();
        core.happened(Happening::DaemonThere(id, processes.clone()));
        Ok(Self { core: Arc::clone(core), id, processes, output: Mutex::new(output) })
    }

    /// The daemon's number in its app.
    pub fn id(&self) -> DaemonId {
        self.id
    }

    /// Its processes, by node.
    pub fn processes(&self) -> &[(NodeId, Pid)] {
        &self.processes
    }

    /// Its output, if it was started with [`DaemonOutput::Forward`]. The first call takes it; later ones get nothing.
    pub fn take_output(&self) -> Option<OutputStream> {
        lock(&self.output).take()
    }

    /// Has a thread write its output to descriptors, in whole pieces, instead of [`Daemon::take_output`]. What cannot
    /// be written is dropped: [`Event::OutputLost`](crate::Event::OutputLost).
    ///
    /// # Errors
    /// The output was taken before, or does not come here; no thread can be made.
    pub fn write_output_to(&self, stdout: OwnedFd, stderr: OwnedFd) -> Result<()> {
        let stream = self.take_output().ok_or_else(|| Error::Invalid {
            message: format!("the output of daemon {} was taken, or does not come here", self.id),
            hint: Some("start the daemon with DaemonOutput::Forward, and take its output once".to_owned()),
        })?;
        self.core.write_output(stream, (stdout, stderr))
    }

    /// Waits until it has ended on every node, and returns how. A node that is lost counts as [`ExitStatus::Unknown`].
    pub async fn wait(&self) -> Vec<(NodeId, ExitStatus)> {
        let ends = self.core.until(|state| state.daemon_ends(self.id)).await;
        ends.unwrap_or_else(|| self.processes.iter().map(|(node, _)| (*node, ExitStatus::Unknown)).collect())
    }

    /// Sends a signal to it on every node where it runs.
    ///
    /// # Errors
    /// The app has ended, or a node did not answer in time.
    pub async fn signal(&self, signal: Signal, timeout: Duration) -> Result<()> {
        let nodes: NodeSet = self.processes.iter().map(|(node, _)| *node).collect();
        let nodes = nodes.intersection(&self.core.live_nodes());
        let order = Order::SignalDaemon { daemon: self.id, signal };
        self.core
            .ask(&nodes, order, "sending a signal to a daemon", Instant::now() + bounded(timeout))
            .await
            .map(drop)
    }
}
