//! What happens to an app, as its tool, other commands and scripts see it.
//!
//! The JSON of an event is one object with the key `event`; see each variant for the others. It is what `gantry --json` prints a line each.

use gantry_shared::error::{Failure, Kind};
use gantry_shared::id::{AppId, DaemonId, Pid, Rank, SessionId};
use gantry_shared::status::{ExitStatus, RankState};
use gantry_shared::wire::message::Stream;
pub use gantry_wlm::{CauseKind, EndCause};
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
        /// What it waits for, in the WLM's words.
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
    /// All ranks run; they were not held.
    Started {
        /// The app.
        app: AppId,
        /// The WLM's name.
        wlm: String,
        /// Every rank.
        ranks: Vec<RankInfo>,
    },
    /// Ranks that ran already are looked after now.
    Attached {
        /// The app.
        app: AppId,
        /// The WLM's name.
        wlm: String,
        /// Every rank.
        ranks: Vec<RankInfo>,
    },
    /// Held ranks were let go.
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
    /// Files are on their way to nodes that lack them: told at the beginning, at the end, and no more than ten times a second between.
    Staging(Staging),
    /// Files were sent, and every node has them. Where no node lacks anything, nothing is told.
    Staged(StagingEnd),
    /// A rank or a tool daemon wrote something.
    Output(Output),
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
    /// Hosts could not be reached, and it went on without them, as its policy allows. Told once, after the event that tells how the app stands.
    HostsLeftOut {
        /// The app.
        app: AppId,
        /// Which, each with the reason.
        hosts: Vec<MissingHost>,
    },
    /// The table of ranks that the launcher keeps for debuggers contradicts what its ranks' agents see. The app goes on: what agents tell is proven.
    /// Told once, after the event that tells how the app stands.
    TableDiffers(TableDiffers),
    /// The ranks are MPI programs that no MPI launcher has started. Each of them is rank 0 of a world of its own. Told once.
    MpiSingletons(MpiSingletons),
    /// Nodes can no longer be reached.
    NodesLost {
        /// The app.
        app: AppId,
        /// Their names.
        hosts: Vec<String>,
        /// What was seen.
        reason: String,
    },
    /// All ranks have ended.
    Exited(Exit),
    /// The WLM has ended the app, or a part of it. Told before the end of an app that we launched, and after the end of one that was attached to.
    EndedBy {
        /// The app.
        app: AppId,
        /// Why, in one word.
        cause: CauseKind,
        /// The WLM's own words.
        message: String,
    },
    /// The reader of these events has fallen behind, and so many were left out here. Each told of one rank, daemon or file; `gantry ps`, or
    /// the app's info, has what they told.
    EventsMissed {
        /// The app.
        app: AppId,
        /// How many.
        count: u64,
    },
    /// The tool let go of the app, which goes on without it.
    Detached {
        /// The app.
        app: AppId,
    },
    /// Something failed.
    Error {
        /// The app, if there is one yet.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        app: Option<AppId>,
        /// What kind of failure.
        kind: Kind,
        /// What failed and why.
        message: String,
        /// What to do about it.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        hint: Option<String>,
    },
}

impl Event {
    /// The event that tells of `failure`.
    pub fn of_failure(app: Option<AppId>, failure: Failure) -> Self {
        Self::Error {
            app,
            kind: failure.kind(),
            message: failure.message().to_owned(),
            hint: failure.hint().map(str::to_owned),
        }
    }
}

/// How far files are on their way to the nodes of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Staging {
    /// The app.
    pub app: AppId,
    /// The session.
    pub session: SessionId,
    /// How many bytes are on their way or there.
    pub bytes: u64,
    /// How many there are.
    pub total_bytes: u64,
    /// How many files they are.
    pub files: u64,
    /// How many nodes lack some of them.
    pub nodes: u64,
}

/// What was sent to the nodes of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StagingEnd {
    /// The app.
    pub app: AppId,
    /// The session.
    pub session: SessionId,
    /// Bytes that left this machine on each of its links, compressed if they were.
    pub bytes_sent: u64,
    /// How many files were sent.
    pub files_sent: u64,
    /// How many more were asked for, which every node had already.
    pub files_linked: u64,
    /// How many nodes lacked some.
    pub nodes: u64,
}

/// A host without an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingHost {
    /// Its name.
    pub host: String,
    /// Why there is none.
    pub reason: String,
}

impl MissingHost {
    pub(crate) fn new(host: String, why: &Failure) -> Self {
        Self { host, reason: why.message().to_owned() }
    }
}

/// MPI programs that no MPI launcher has started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MpiSingletons {
    /// The app.
    pub app: AppId,
    /// The program.
    pub program: String,
    /// The MPI library that it needs.
    pub library: String,
    /// The same for people, with what to do.
    pub message: String,
}

/// What a launcher says of its ranks that is not so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableDiffers {
    /// The app.
    pub app: AppId,
    /// How many ranks the launcher's table has.
    pub table_ranks: u32,
    /// How many of the app's ranks are somewhere else by it.
    pub count: u32,
    /// Which, in rank order: the first [`TableDiffers::MOST`] of them.
    pub ranks: Vec<RankDiffers>,
    /// The same for people.
    pub message: String,
}

impl TableDiffers {
    /// How many ranks are named.
    pub const MOST: usize = 16;
}

/// A rank that is somewhere else by its launcher's table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankDiffers {
    /// The rank.
    pub rank: Rank,
    /// Its node, as its agent knows it.
    pub host: String,
    /// Its process, as its agent knows it.
    pub pid: Option<Pid>,
    /// Its node by the table.
    pub table_host: String,
    /// Its process by the table.
    pub table_pid: Option<Pid>,
}

/// A rank, where it is and what it does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankInfo {
    /// The rank.
    pub rank: Rank,
    /// Its node's name.
    pub host: String,
    /// Its process.
    pub pid: Option<Pid>,
    /// What it runs.
    pub exe: String,
    /// Held, running, ended.
    pub state: StateName,
    /// How it ended, when it did.
    #[serde(flatten)]
    pub ending: Ending,
}

/// Where a rank stands, by one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StateName {
    /// Ordered, not yet seen.
    Starting,
    /// Stopped before its first instruction.
    Held,
    /// Let go, or never held.
    Running,
    /// Ended.
    Exited,
    /// Out of reach.
    Lost,
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

/// How a process ended: exactly one of the two is there, or neither when nobody could know.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ending {
    /// Exit code.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub code: Option<i32>,
    /// Name of the signal that killed it, as `SIGKILL`.
    #[serde(skip_serializing_if = "Option::is_none", default, with = "signal_name")]
    pub signal: Option<gantry_shared::signal::Signal>,
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

mod signal_name {
    use gantry_shared::signal::Signal;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(
        signal: &Option<Signal>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match signal {
            Some(signal) => serializer.collect_str(signal),
            None => serializer.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Signal>, D::Error> {
        let name = Option::<String>::deserialize(deserializer)?;
        name.map(|name| name.parse().map_err(serde::de::Error::custom)).transpose()
    }
}

/// The end of an app.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// The app.
    pub app: AppId,
    /// How each rank ended, in rank order.
    pub ranks: Vec<RankExit>,
    /// The app's exit code: the highest of its ranks', a signal counting as 128 and its number.
    pub code: i32,
    /// Why the WLM has ended it, if it has and that was known by then.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cause: Option<EndCause>,
}

/// The end of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankExit {
    /// The rank.
    pub rank: Rank,
    /// How it ended.
    #[serde(flatten)]
    pub status: Ending,
}

/// Bytes that a rank or a tool daemon wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    /// The app.
    pub app: AppId,
    /// The rank, if a rank wrote it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rank: Option<Rank>,
    /// The daemon, if a daemon wrote it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub daemon: Option<DaemonId>,
    /// The node's name.
    pub host: String,
    /// Where it was written to.
    pub stream: Stream,
    /// What was written. In JSON: `text`, or `bytes` (a list of numbers) where it is not UTF-8.
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
