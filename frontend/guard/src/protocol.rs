//! What the tool and its guard say to each other, as frames on a socket pair. The socket's end without a word is the message that matters most.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use gantry_shared::wire::message::Blob;
use gantry_types::error::Failure;
use gantry_types::id::Pid;
use gantry_types::placement::Placement;
use gantry_types::status::ExitStatus;
use gantry_wlm::mpir::AtBreakpoint;
use serde::{Deserialize, Serialize};

/// Number by which the tool knows a process that it had the guard start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProcessId(pub u32);

/// From the tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToGuard {
    /// Start an agent.
    StartAgent(StartAgent),
    /// Start a launcher. With this frame's first byte come descriptors: the launcher's standard input, output and error, and then those
    /// ends of pipes that somebody has to read on once the tool has let go and is gone.
    StartLauncher(StartLauncher),
    /// Start a command of the WLM that starts agents on other machines.
    StartStep(StartStep),
    /// The launcher's ranks are there, with agents that end them should the tool be killed.
    RanksThere,
    /// Let the launcher go on from its breakpoint, if it stands there.
    LetLauncherGo,
    /// Say which job of the WLM the launcher has made, if it can tell.
    TellJob,
    /// Read the table of ranks that the launcher keeps for debuggers, if it has one.
    ReadTable {
        /// The launcher is a program that another one starts.
        wrapped: bool,
    },
    /// Run this command, by its path and its arguments, when the tool is gone; none: no longer.
    AtLoss(Option<Vec<OsString>>),
    /// The agents that a step has started are there, and end by themselves should the tool be killed.
    AgentsThere,
    /// Remove this socket when the tool is gone: a killed tool cannot do it itself.
    RemoveSocket(OsString),
    /// From now on the tool's end means nothing: what runs goes on.
    Detach,
}

/// An agent to start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartAgent {
    /// Its number.
    pub id: ProcessId,
    /// The executable.
    pub program: OsString,
    /// What it reads on its standard input. Holds the app's secret.
    pub ticket: Blob,
    /// Where it was told to keep session storage, if anywhere: swept after it should it be killed.
    pub stage_base: Option<OsString>,
}

/// A launcher to start. It gets a process group of its own, and dies with the guard.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartLauncher {
    /// Its number.
    pub id: ProcessId,
    /// The executable and its arguments.
    pub argv: Vec<OsString>,
    /// The whole environment. Holds the app's secret.
    pub env: Vec<(OsString, OsString)>,
    /// The directory to start in.
    pub cwd: OsString,
    /// It is run as a debugger does it until its ranks are there and stopped.
    pub driven: Option<Drive>,
}

/// How a launcher is run that holds its ranks itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drive {
    /// How long it may take until its ranks are there.
    pub timeout: Duration,
    /// What is done with it then.
    pub at_breakpoint: AtBreakpoint,
}

/// Where the ranks of a driven launcher are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldRanks {
    /// With pids.
    pub placement: Placement,
    /// The WLM's job, if the launcher tells.
    pub job: Option<String>,
    /// The step of that job.
    pub step: Option<String>,
    /// They are stopped before their first instruction. Else they wait somewhere for the launcher.
    pub stopped: bool,
    /// The launcher stands at its breakpoint until it is let go.
    pub stands: bool,
}

/// What a launcher tells debuggers of its ranks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum LauncherTable {
    /// Where they are, by its own account.
    There(Placement),
    /// It has a table, which is not filled, or is just being filled; with what was found.
    NotYet(String),
    /// It has none, but is a PMIx server, which tells those that use this library. The guard has no time for that.
    ByPmix {
        /// The server.
        launcher: Pid,
        /// The library that it has loaded itself.
        library: PathBuf,
    },
    /// It has none that could be read; with the reason.
    Never(String),
}

/// A command that runs as long as the agents that it starts elsewhere. It gets a process group of its own. It outlives the guard: were it to die
/// with it, agents would be killed before they have cleaned up.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartStep {
    /// Its number.
    pub id: ProcessId,
    /// The executable and its arguments.
    pub argv: Vec<OsString>,
    /// The whole environment.
    pub env: Vec<(OsString, OsString)>,
    /// What it reads on its standard input. Holds the app's secret.
    pub ticket: Blob,
}

impl fmt::Debug for StartStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StartStep").field("id", &self.id).field("argv", &self.argv).finish_non_exhaustive()
    }
}

/// Most descriptors that come with a frame: a launcher's three, and two to read on.
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
        /// Its version, which must be the library's.
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
    /// They are not, and the launcher was ended.
    NotHeld(Failure),
    /// The job and the step of the launcher, if it can tell: the answer to `TellJob`.
    Job(Option<(String, String)>),
    /// The launcher's table of ranks: the answer to `ReadTable`.
    Table(LauncherTable),
    /// The process ended.
    Exited {
        /// Which.
        id: ProcessId,
        /// How.
        status: ExitStatus,
        /// The last that it wrote on standard error.
        last_words: String,
    },
}
