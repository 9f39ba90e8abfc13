//! Events of an app, for its tool, for other commands and for scripts.
//!
//! The JSON of an event is one object with the key `event`; each variant documents its other keys. `gantry --json`
//! prints one object per line.

use gantry_types::error::{Failure, Kind};
use gantry_types::id::{AppId, DaemonId, Pid, Rank, SessionId};
use gantry_types::output::Stream;
pub use gantry_types::status::{CauseKind, EndCause};
use gantry_types::status::{ExitStatus, RankState};
use serde::{Deserialize, Serialize};

/// Something that happened to an app.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Event {
    /// A batch job was submitted.
    Submitted {
        /// The WLM's name for it.
        job: String,
        /// The WLM's name.
        wlm: String,
    },
    /// A batch job has no ranks yet.
    Waiting {
        /// The WLM's name for it.
        job: String,
        /// The workload manager's reason.
        message: String,
    },
    /// All ranks are stopped before their first instruction.
    Held {
        /// The app.
        app: AppId,
        /// The WLM's name.
        wlm: String,
        /// Every rank.
        ranks: Vec<RankInfo>,
    },
    /// All ranks run, and were not held.
    Started {
        /// The app.
        app: AppId,
        /// The WLM's name.
        wlm: String,
        /// Every rank.
        ranks: Vec<RankInfo>,
    },
    /// gantry has attached to ranks that ran already.
    Attached {
        /// The app.
        app: AppId,
        /// The WLM's name.
        wlm: String,
        /// Every rank.
        ranks: Vec<RankInfo>,
    },
    /// Held ranks were released.
    Released {
        /// The app.
        app: AppId,
    },
    /// A tool daemon runs.
    DaemonStarted {
        /// The app.
        app: AppId,
        /// The daemon's number in the app.
        daemon: DaemonId,
        /// Its node.
        host: String,
        /// Its process.
        pid: Pid,
    },
    /// A tool daemon ended.
    DaemonExited {
        /// The app.
        app: AppId,
        /// The daemon's number in the app.
        daemon: DaemonId,
        /// Its node.
        host: String,
        /// How it ended.
        #[serde(flatten)]
        status: Ending,
    },
    /// Files are on their way to nodes that lack them. Comes at the beginning, at the end, and at most ten times a
    /// second in between.
    Staging(Staging),
    /// Files were sent, and every node has them. Does not come if no node lacked anything.
    Staged(StagingEnd),
    /// A rank or a tool daemon wrote something.
    Output(Output),
    /// Output of the ranks, or of a daemon, cannot be written to the descriptor that the tool has chosen. The app goes
    /// on, and what cannot be written is dropped. Comes once for each stream of the ranks and of each daemon, maybe
    /// after `exited`. It does not come when a reader has closed its pipe, nor for the standard output of a launcher,
    /// which writes there itself.
    OutputLost {
        /// The app.
        app: AppId,
        /// `stdout` or `stderr`.
        stream: Stream,
        /// The operating system's reason.
        message: String,
    },
    /// A rank ended.
    RankExited {
        /// The app.
        app: AppId,
        /// The rank.
        rank: Rank,
        /// How it ended.
        #[serde(flatten)]
        status: Ending,
    },
    /// Hosts could not be reached, and the policy allows the app to go on without them. Comes once, after `held`,
    /// `started` or `attached`.
    HostsLeftOut {
        /// The app.
        app: AppId,
        /// The hosts, each with the reason.
        hosts: Vec<MissingHost>,
    },
    /// The launcher's proctable contradicts what the agents see. The app goes on, as the agents' view is proven. Comes
    /// once, after `held` or `started`.
    TableDiffers(TableDiffers),
    /// The ranks are one MPI world, which cannot go on, and gantry ends them: a rank called `MPI_Abort`, or ended
    /// before `MPI_Finalize`. Comes before `exited`.
    MpiFailed {
        /// The app.
        app: AppId,
        /// The rank that has failed, or whose node has noticed it.
        rank: Rank,
        /// The exit code of the app: that of `MPI_Abort`, or that of the rank.
        code: i32,
        /// The reason.
        message: String,
    },
    /// A rank has made an MPI call that gantry does not serve: it starts processes, or uses published names. Or it has
    /// loaded a library that does not speak PMI. Or its host does not reach another one. Or an agent cannot take its
    /// connection. The app goes on. Each of these five comes once for an app.
    MpiNote {
        /// The app.
        app: AppId,
        /// The first rank that did so, or the first on that host.
        rank: Rank,
        /// What happened, and the remedy.
        message: String,
    },
    /// Nodes can no longer be reached.
    NodesLost {
        /// The app.
        app: AppId,
        /// Their names.
        hosts: Vec<String>,
        /// How gantry noticed.
        reason: String,
    },
    /// All ranks have ended.
    Exited(Exit),
    /// The workload manager has ended the app, or a part of it. Comes before `exited` of a launched app, and after
    /// `exited` of an attached one.
    EndedBy {
        /// The app.
        app: AppId,
        /// The cause in one word.
        cause: CauseKind,
        /// The workload manager's message.
        message: String,
    },
    /// The reader of these events is too slow, and some were dropped here. Each dropped event concerned one rank,
    /// daemon or file. `gantry ps` shows the current state.
    EventsMissed {
        /// The app.
        app: AppId,
        /// How many.
        count: u64,
    },
    /// The tool has detached from the app, and the app goes on.
    Detached {
        /// The app.
        app: AppId,
    },
    /// Something failed.
    Error {
        /// The app, if there is one yet.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        app: Option<AppId>,
        /// The kind of failure.
        kind: Kind,
        /// The failure and its cause.
        message: String,
        /// The remedy.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        hint: Option<String>,
    },
}

impl Event {
    /// The event for `failure`.
    pub fn of_failure(app: Option<AppId>, failure: Failure) -> Self {
        Self::Error {
            app,
            kind: failure.kind(),
            message: failure.message().to_owned(),
            hint: failure.hint().map(str::to_owned),
        }
    }
}

/// Progress of sending files to the nodes of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Staging {
    /// The app.
    pub app: AppId,
    /// The session.
    pub session: SessionId,
    /// Bytes that are sent or on their way.
    pub bytes: u64,
    /// Bytes in total.
    pub total_bytes: u64,
    /// Number of files.
    pub files: u64,
    /// Number of nodes that lack some of them.
    pub nodes: u64,
}

/// Files and bytes that were sent to the nodes of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StagingEnd {
    /// The app.
    pub app: AppId,
    /// The session.
    pub session: SessionId,
    /// Bytes that left this machine on each of its links, compressed if they were.
    pub bytes_sent: u64,
    /// Number of files sent.
    pub files_sent: u64,
    /// Number of further files that every node had already.
    pub files_linked: u64,
    /// Number of nodes that lacked some.
    pub nodes: u64,
}

/// A host without an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MissingHost {
    /// Its name.
    pub host: String,
    /// The reason.
    pub reason: String,
}

impl MissingHost {
    pub(crate) fn new(host: String, why: &Failure) -> Self {
        Self { host, reason: why.message().to_owned() }
    }
}

/// A contradiction between a launcher's table of ranks and the agents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TableDiffers {
    /// The app.
    pub app: AppId,
    /// Number of ranks in the launcher's table.
    pub table_ranks: u32,
    /// Number of ranks that stand elsewhere in that table.
    pub count: u32,
    /// The first 16 of them, in rank order.
    pub ranks: Vec<RankDiffers>,
    /// The same as text.
    pub message: String,
}

impl TableDiffers {
    /// How many ranks are named.
    pub const MOST: usize = 16;
}

/// A rank whose place or process in its launcher's table differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RankDiffers {
    /// The rank.
    pub rank: Rank,
    /// Its node by its agent.
    pub host: String,
    /// Its process by its agent.
    pub pid: Option<Pid>,
    /// Its node by the table.
    pub table_host: String,
    /// Its process by the table.
    pub table_pid: Option<Pid>,
}

/// A rank, with its node and its state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RankInfo {
    /// The rank.
    pub rank: Rank,
    /// Its node's name.
    pub host: String,
    /// Its process.
    pub pid: Option<Pid>,
    /// Its program.
    pub exe: String,
    /// Held, running, ended.
    pub state: StateName,
    /// How it ended, when it did.
    #[serde(flatten)]
    pub ending: Ending,
}

/// The state of a rank, as one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StateName {
    /// Requested, not yet there.
    Starting,
    /// Stopped before its first instruction.
    Held,
    /// Released, or never held.
    Running,
    /// Ended.
    Exited,
    /// Its node cannot be reached.
    Lost,
}

impl StateName {
    /// The word, as in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Held => "held",
            Self::Running => "running",
            Self::Exited => "exited",
            Self::Lost => "lost",
        }
    }
}

impl From<RankState> for StateName {
    fn from(state: RankState) -> Self {
        match state {
            RankState::Starting => Self::Starting,
            RankState::Held => Self::Held,
            RankState::Running => Self::Running,
            RankState::Exited(_) => Self::Exited,
            RankState::Lost => Self::Lost,
        }
    }
}

/// How a process ended: a code or a signal. Neither is there when the end was not seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Ending {
    /// Exit code.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub code: Option<i32>,
    /// Name of the signal that killed it, as `SIGKILL`.
    #[serde(skip_serializing_if = "Option::is_none", default, with = "crate::as_text::optional")]
    pub signal: Option<gantry_types::signal::Signal>,
}

impl From<ExitStatus> for Ending {
    fn from(status: ExitStatus) -> Self {
        match status {
            ExitStatus::Code(code) => Self { code: Some(code), signal: None },
            ExitStatus::Signal(signal) => Self { code: None, signal: Some(signal) },
            ExitStatus::Unknown => Self { code: None, signal: None },
        }
    }
}

/// The end of an app.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Exit {
    /// The app.
    pub app: AppId,
    /// How each rank ended, in rank order.
    pub ranks: Vec<RankExit>,
    /// The app's exit code: the highest of its ranks, or that of `mpi_failed`. A signal N counts as 128 + N.
    pub code: i32,
    /// Why the workload manager has ended the app, if it has and that is known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cause: Option<EndCause>,
}

/// The end of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RankExit {
    /// The rank.
    pub rank: Rank,
    /// How it ended.
    #[serde(flatten)]
    pub status: Ending,
}

/// Bytes that a rank or a tool daemon wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Output {
    /// The app.
    pub app: AppId,
    /// The rank that wrote it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rank: Option<Rank>,
    /// The daemon that wrote it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub daemon: Option<DaemonId>,
    /// The node's name.
    pub host: String,
    /// `stdout` or `stderr`.
    pub stream: Stream,
    /// The output. In JSON: `text`, or `bytes` (a list of numbers) where it is not UTF-8.
    #[serde(flatten)]
    pub data: Data,
}

/// Bytes of output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Data(pub Vec<u8>);

#[derive(Serialize, Deserialize)]
struct DataForm<'a> {
    #[serde(skip_serializing_if = "Option::is_none", default)]
    text: Option<std::borrow::Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    bytes: Option<std::borrow::Cow<'a, [u8]>>,
}

impl Serialize for Data {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let form = match std::str::from_utf8(&self.0) {
            Ok(text) => DataForm { text: Some(text.into()), bytes: None },
            Err(_) => DataForm { text: None, bytes: Some((&self.0[..]).into()) },
        };
        form.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Data {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let form = DataForm::deserialize(deserializer)?;
        Ok(match form {
            DataForm { text: Some(text), .. } => Self(text.into_owned().into_bytes()),
            DataForm { bytes: Some(bytes), .. } => Self(bytes.into_owned()),
            DataForm { .. } => Self(Vec::new()),
        })
    }
}
