//! WLMs that give nodes only to jobs. A launch from outside of a job submits a job, which starts the agents.

use std::ffi::OsString;
use std::fmt;
use std::path::Path;
use std::pin::Pin;

use async_trait::async_trait;
use gantry_types::error::Failure;
use gantry_types::id::Pid;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::error::Result;
use crate::host::Host;
use crate::job::JobRef;
use crate::launch::{AgentCommand, Direct, Queued};

/// File name of the program that acts in jobs. It is in the agent's directory.
pub const STARTER: &str = "gantry-guard";

/// The starter's last argument if it was sent to its node. Then it is in a separate directory, which it removes.
pub const SENT: &str = "sent";

/// The command that starts the agents in a job. It runs as long as they do, and reads a line on its standard input.
#[derive(Clone, Serialize, Deserialize)]
pub struct JobStarter {
    /// The path of [`STARTER`]. Its arguments are `start`, the WLM's name, and
    /// [`SendAgent`](gantry_types::launch::SendAgent) or [`SENT`].
    pub program: OsString,
    /// Shell lines of [`build_starter_script`](crate::build_starter_script), which find the program on its node. They
    /// contain secrets.
    pub prepare: Zeroizing<String>,
    /// The line that it reads. It contains the app's secret.
    pub input: Zeroizing<String>,
    /// The directory in which to submit the job.
    pub cwd: OsString,
}

impl fmt::Debug for JobStarter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobStarter")
            .field("program", &self.program)
            .field("cwd", &self.cwd)
            .finish_non_exhaustive()
    }
}

/// Exit code of the job's script if its agents could not reach the frontend, and so could not report why:
/// EX_UNAVAILABLE of `sysexits.h`.
pub const UNREACHABLE: u8 = 69;

/// When this future completes, the agents are asked to end.
pub type Stop<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// A WLM that gives nodes to jobs. Each call may run programs of the WLM, and blocks its thread while they run.
#[async_trait]
pub trait Queue: Send + Sync + fmt::Debug {
    /// Submits the job of a launch. The job runs `starter` on its first node.
    ///
    /// # Errors
    /// The WLM refuses: its own message.
    fn submit_starter(&self, queued: &Queued, starter: &JobStarter, host: &dyn Host) -> Result<JobRef>;

    /// Places the ranks of a launch, once its job has nodes.
    ///
    /// # Errors
    /// [`Error::NotYet`](crate::Error): the job waits for nodes; the error says for what. The job has ended. There are
    /// fewer places than ranks.
    fn find_nodes(&self, queued: &Queued, job: &JobRef, host: &dyn Host) -> Result<Direct>;

    /// In the job: starts an agent on each of its nodes, or on the named ones, and waits until all of them have ended.
    /// The agents' output goes to the job's output.
    ///
    /// # Errors
    /// Some agents could not be started, or have failed. No agent is left then.
    async fn run_agents(
        &self,
        agent: &AgentCommand,
        on: Option<&[String]>,
        stop: Stop<'_>,
        host: &dyn Host,
    ) -> Result<()>;

    /// The variables that let a process act for `job` on its first node. They are copied from `pid` on this machine, or
    /// from a process of the job that is searched for. With them a program outside of the job can act in it.
    ///
    /// # Errors
    /// The process has ended, belongs to another user, or is in another job. [`Error::NotYet`](crate::Error): there is
    /// no such process yet.
    fn read_variables(
        &self,
        job: &JobRef,
        pid: Option<Pid>,
        host: &dyn Host,
    ) -> Result<Vec<(OsString, OsString)>>;

    /// In the job, on its first node: finds its ranks. Returns a text for [`Wlm::adopt`](crate::Wlm::adopt). On the
    /// other nodes, `program` reports their ranks by [`leave`](Queue::leave).
    async fn look(&self, program: &Path, host: &dyn Host) -> String;

    /// In the job, on any node: reports why this process's agent ended without a link. The process that started it
    /// reads the report.
    ///
    /// # Errors
    /// The WLM refuses: its own message.
    async fn leave_word(&self, word: &Failure, host: &dyn Host) -> Result<()>;

    /// In the job, on another node: reports the ranks of this node to [`look`](Queue::look).
    ///
    /// # Errors
    /// The WLM refuses: its own message.
    async fn leave(&self, host: &dyn Host) -> Result<()>;
}
