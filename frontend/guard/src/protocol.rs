//! The messages between the tool and its guard, as frames on a socket pair. The most important message is the end of
//! the socket without a `Detach`.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use gantry_shared::wire::message::Blob;
use gantry_types::error::Failure;
use gantry_types::id::Pid;
use gantry_types::placement::Placement;
use gantry_types::status::ExitStatus;
use gantry_wlm::JobRef;
use gantry_wlm::mpir::AtBreakpoint;
use serde::{Deserialize, Serialize};

/// The tool's number for a process that the guard starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProcessId(pub u32);

/// From the tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToGuard {
    /// Start an agent.
    StartAgent(StartAgent),
    /// Start a launcher. Descriptors come with this frame's first byte: the launcher's standard input, output and
    /// error, then the read ends of pipes that the guard must drain after the tool has detached and ended.
    StartLauncher(StartLauncher),
    /// Start a command of the WLM that starts agents on other machines.
    StartStep(StartStep),
    /// The launcher's ranks are there, with agents that end them if the tool is killed.
    RanksThere,
    /// Let the launcher continue from its breakpoint, if it is stopped there.
    LetLauncherGo,
    /// Report the launcher's job of the WLM, if the launcher shows it.
    TellJob,
    /// Read the proctable that the launcher keeps for debuggers, if it has one.
    ReadTable {
        /// The launcher is a program that another one starts.
        wrapped: bool,
    },
    /// Cancel this job when the tool is gone. None: cancel none.
    AtLoss(Option<OwnedJob>),
    /// The agents of a step are there. They end by themselves if the tool is killed.
    AgentsThere,
    /// Remove this socket when the tool is gone: a killed tool cannot do it itself.
    RemoveSocket(OsString),
    /// From now on the tool's end has no effect: all processes continue.
    Detach,
}

/// A job that belongs to the tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnedJob {
    /// The name of its WLM.
    pub wlm: String,
    /// The job.
    pub job: JobRef,
}

/// An agent to start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartAgent {
    /// Its number.
    pub id: ProcessId,
    /// The executable.
    pub program: OsString,
    /// Its standard input. Contains the app's secret.
    pub ticket: Blob,
    /// Its directory for session storage, if it was told one. It is swept if the agent is killed.
    pub stage_base: Option<OsString>,
}

/// A launcher to start. It gets a process group of its own, and dies with the guard.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartLauncher {
    /// Its number.
    pub id: ProcessId,
    /// The executable and its arguments.
    pub argv: Vec<OsString>,
    /// The whole environment. Contains the app's secret.
    pub env: Vec<(OsString, OsString)>,
    /// The directory to start in.
    pub cwd: OsString,
    /// Run it under control, as a debugger does, until its ranks are there and stopped.
    pub driven: Option<Drive>,
}

/// How to run a launcher that holds its ranks itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drive {
    /// The timeout for its ranks.
    pub timeout: Duration,
    /// What to do with it then.
    pub at_breakpoint: AtBreakpoint,
}

/// The ranks of a driven launcher.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldRanks {
    /// Their places, with pids.
    pub placement: Placement,
    /// The WLM's job, if the launcher shows it.
    pub job: Option<String>,
    /// The step of that job.
    pub step: Option<String>,
    /// They are stopped before their first instruction. Otherwise they wait for the launcher at some later point.
    pub stopped: bool,
    /// The launcher is stopped at its breakpoint until it is released.
    pub stands: bool,
}

/// The proctable that a launcher keeps for debuggers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum LauncherTable {
    /// The places of the ranks, according to the launcher.
    There(Placement),
    /// The table is empty or being filled; with the details.
    NotYet(String),
    /// It has none, but is a PMIx server, which answers programs that load this library. That takes longer than the
    /// guard may wait.
    ByPmix {
        /// The server.
        launcher: Pid,
        /// The library that the launcher has loaded.
        library: PathBuf,
    },
    /// It has no readable table; with the reason.
    Never(String),
}

/// A command that runs as long as the agents that it starts elsewhere. It gets its own process group, and outlives
/// the guard: if it died with the guard, its agents would be killed before their clean-up.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartStep {
    /// Its number.
    pub id: ProcessId,
    /// The executable and its arguments.
    pub argv: Vec<OsString>,
    /// The whole environment.
    pub env: Vec<(OsString, OsString)>,
    /// Its standard input. Contains the app's secret.
    pub ticket: Blob,
}

impl fmt::Debug for StartStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StartStep").field("id", &self.id).field("argv", &self.argv).finish_non_exhaustive()
    }
}

/// The most descriptors of a frame: a launcher's three, and two pipes to drain.
pub const MAX_DESCRIPTORS: usize = 5;

impl fmt::Debug for StartLauncher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StartLauncher")
            .field("id", &self.id)
            .field("argv", &self.argv)
            .finish_non_exhaustive()
    }
}

/// To the tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromGuard {
    /// The guard runs.
    Hello {
        /// Its build, which must be the library's.
        release: String,
        /// Its pid.
        pid: Pid,
    },
    /// The process runs.
    Started {
        /// Which.
        id: ProcessId,
        /// Its pid.
        pid: Pid,
    },
    /// The process could not be started.
    NotStarted {
        /// Which.
        id: ProcessId,
        /// Why.
        failure: Failure,
    },
    /// The ranks of a driven launcher are there and stopped.
    Held(Box<HeldRanks>),
    /// They did not come, and the launcher was killed.
    NotHeld(Failure),
    /// The job and the step of the launcher, if it shows them: the answer to `TellJob`.
    Job(Option<(String, String)>),
    /// The launcher's proctable: the answer to `ReadTable`.
    Table(LauncherTable),
    /// The process ended.
    Exited {
        /// Which.
        id: ProcessId,
        /// How.
        status: ExitStatus,
        /// The last lines of its standard error.
        last_words: String,
    },
}
