//! Descriptions of a job and its subjobs.

use gantry_types::error::Kind;
use gantry_types::output::Stream;
use serde::Serialize;

use super::state::{JobState, SubjobState};

/// A subjob at one moment.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct SubjobInfo {
    /// Its label, else its number in the order of the request.
    pub label: String,
    /// The name of its workload manager.
    pub wlm: &'static str,
    /// Its state.
    pub state: SubjobState,
    /// Why it failed, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The kind of that failure.
    #[serde(skip)]
    pub(super) kind: Option<Kind>,
    /// The exit code of its app, once it has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
}

/// The end of a job.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct JobExit {
    /// 0 if every subjob was released and ended well; else the first code that is not 0, or 1 for a subjob that failed.
    pub code: i32,
    /// Why it was killed, if it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The kind of the failure that killed it. None: it was cancelled, or its processes ended too early.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<Kind>,
    /// Every subjob that was not deleted.
    pub subjobs: Vec<SubjobInfo>,
}

/// Something that happened to a job.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum JobEvent {
    /// The state of a subjob has changed.
    Subjob(SubjobInfo),
    /// The state of the job has changed.
    Job {
        /// Where.
        state: JobState,
    },
    /// A note about the MPI world of a subjob's ranks. The first about each subject is reported.
    MpiNote {
        /// The label of the subjob.
        label: String,
        /// The sentence, with the remedy.
        message: String,
    },
    /// Output of a subjob's ranks cannot be written. The first failure of each stream is reported.
    OutputLost {
        /// The label of the subjob.
        label: String,
        /// `stdout` or `stderr`.
        stream: Stream,
        /// The operating system's reason.
        message: String,
    },
}
