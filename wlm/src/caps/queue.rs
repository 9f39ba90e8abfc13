//! WLMs that give nodes to jobs only: a launch from elsewhere is a job that brings the agents.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::pin::Pin;

use async_trait::async_trait;
use gantry_types::error::Failure;
use gantry_types::id::Pid;
use gantry_types::launch::SendAgent;
use zeroize::Zeroizing;

use crate::error::Result;
use crate::give::Gifts;
use crate::host::Host;
use crate::job::JobRef;
use crate::launch::{AgentCommand, Direct, Queued};

/// File name of the program that acts in jobs. It is where the agent is.
pub const STARTER: &str = "gantry-guard";

/// The starter's last argument where it was sent to its node, in a directory of its own that it removes.
pub const SENT: &str = "sent";

/// What is to run in a job for its agents to start: a command that stays as long as they do, and what it reads on its standard input.
#[derive(Clone)]
pub struct JobStarter {
    /// The path of [`STARTER`], whose arguments are `start`, the WLM's name and [`SendAgent`] or [`SENT`].
    pub program: PathBuf,
    /// The path of the agent, beside it.
    pub agent: PathBuf,
    /// Whether both are sent to nodes.
    pub send: SendAgent,
    /// Addresses by which nodes reach this host.
    pub addresses: Vec<String>,
    /// A line that it reads. It holds the app's secret.
    pub input: Zeroizing<String>,
    /// The directory in which the job is to be submitted.
    pub cwd: PathBuf,
}

impl fmt::Debug for JobStarter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobStarter")
            .field("program", &self.program)
            .field("cwd", &self.cwd)
            .finish_non_exhaustive()
    }
}

/// What the job's script ends with if its agents could not reach the frontend, and so could not say why: EX_UNAVAILABLE of `sysexits.h`.
pub const UNREACHABLE: u8 = 69;

/// When it is over, agents are asked to end.
pub type Stop<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// A WLM that gives nodes to jobs. Each call may run programs of the WLM, and blocks its thread while they run.
#[async_trait]
pub trait Queue: Send + Sync + fmt::Debug {
    /// Submits the job of a launch, in which `starter` is run on the first node. What that node may have to fetch is given as long as [`Gifts`] are there.
    ///
    /// # Errors
    /// The WLM's own words.
    async fn submit_starter(
        &self,
        queued: &Queued,
        starter: &JobStarter,
        host: &dyn Host,
    ) -> Result<(JobRef, Gifts)>;

    /// Where the ranks of a launch go, when its job has nodes.
    ///
    /// # Errors
    /// [`Error::NotYet`](crate::Error): it waits for them, and for what; it has ended; there are fewer places than ranks.
    fn find_nodes(&self, queued: &Queued, job: &JobRef, host: &dyn Host) -> Result<Direct>;

    /// In the job: starts an agent on each of its nodes, or on those that are named, and stays until all of them have ended. What they say goes where the WLM
    /// puts a job's output.
    ///
    /// # Errors
    /// Some could not be started, or have ended in an error; none is left then.
    async fn run_agents(
        &self,
        agent: &AgentCommand,
        on: Option<&[String]>,
        stop: Stop<'_>,
        host: &dyn Host,
    ) -> Result<()>;

    /// The variables with which a process speaks for `job` on its first node: those of `pid` on this machine, or of one that is found. With them a program
    /// acts in the job that is not of it.
    ///
    /// # Errors
    /// It has ended, is another user's, or is in another job. [`Error::NotYet`](crate::Error): there is none yet.
    fn read_variables(
        &self,
        job: &JobRef,
        pid: Option<Pid>,
        host: &dyn Host,
    ) -> Result<Vec<(OsString, OsString)>>;

    /// In the job, on its first node: where its ranks are, as a text for [`Wlm::adopt`](crate::Wlm::adopt). `program` looks on other nodes, by
    /// [`leave`](Queue::leave).
    async fn look(&self, program: &Path, host: &dyn Host) -> String;

    /// In the job, on any node: leaves word of why an agent, which this process was, has ended without a link. Who started it reads that.
    ///
    /// # Errors
    /// The WLM's own words.
    async fn leave_word(&self, word: &Failure, host: &dyn Host) -> Result<()>;

    /// In the job, on another node: leaves word of what is there for [`look`](Queue::look).
    ///
    /// # Errors
    /// The WLM's own words.
    async fn leave(&self, host: &dyn Host) -> Result<()>;
}
