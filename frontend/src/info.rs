//! The state of an app at one moment, as `gantry ps` shows it.

use gantry_types::id::{AppId, DaemonId, Pid};
use serde::{Deserialize, Serialize};

use crate::event::{Ending, Exit, MissingHost, RankInfo, Staging};

/// An app at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AppInfo {
    /// The app.
    pub app: AppId,
    /// The WLM's name.
    pub wlm: String,
    /// The state of the app.
    pub state: AppState,
    /// Whether it was attached to; otherwise it was launched.
    pub attached: bool,
    /// The process that owns it.
    pub owner: Pid,
    /// The launch's arguments, or the target of the attachment. Do not parse it.
    pub command: Vec<String>,
    /// The WLM's name for what runs, where it has one, such as `JOB.STEP`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub job: Option<String>,
    /// Every rank.
    pub ranks: Vec<RankInfo>,
    /// Hosts that could not be reached and that the policy allows to be missing.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub left_out: Vec<MissingHost>,
    /// Every tool daemon that was started.
    pub daemons: Vec<DaemonInfo>,
    /// Files that are on their way to its nodes.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub staging: Vec<Staging>,
    /// Its end, when it has ended.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub exit: Option<Exit>,
}

/// A tool daemon's process on one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DaemonInfo {
    /// The daemon's number in the app.
    pub daemon: DaemonId,
    /// Its node.
    pub host: String,
    /// Its process.
    pub pid: Pid,
    /// Whether it has ended.
    pub ended: bool,
    /// How it ended, when it did.
    #[serde(flatten)]
    pub ending: Ending,
}

/// The state of an app.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum AppState {
    /// Ordered, not all ranks are there.
    Starting,
    /// Every rank is stopped before its first instruction.
    Held,
    /// It runs.
    Running,
    /// Every rank has ended or is lost.
    Ended,
}

impl AppState {
    /// The word, as in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Held => "held",
            Self::Running => "running",
            Self::Ended => "ended",
        }
    }
}
