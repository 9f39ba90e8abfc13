//! Running jobs, and their names in WLMs.

use std::ffi::OsString;

use gantry_shared::wire::message::RankMarks;
use gantry_types::id::AppId;
use gantry_types::placement::Placement;
use serde::{Deserialize, Serialize};

/// A running job, by the name that its WLM uses: `1234`, or `1234,1240` for processes on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRef(pub String);

/// The relevant phases of a job. The WLM has its own words for its states.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobPhase {
    /// It has no nodes yet, or none at the moment.
    Waiting,
    /// It has nodes, and ranks can run.
    Running,
    /// It is ending: its ranks are being stopped, or have ended.
    Ending,
    /// It has ended.
    Ended,
}

/// A batch job to submit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Submission {
    /// The arguments exactly as for the WLM's own command: options, the script, the script's arguments.
    pub args: Vec<OsString>,
    /// Set if the first launch of its script is to be held.
    pub held: Option<HeldScript>,
    /// Variables for the job, in addition to those of this process.
    pub env: Vec<(OsString, OsString)>,
    /// The directory in which the command runs.
    pub cwd: OsString,
}

/// A script whose first launch is held: it finds programs of gantry in place of its launchers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldScript {
    /// The script. The submission's arguments contain only options then.
    pub script: OsString,
    /// A directory visible on every node. It contains a program of gantry under the names of launchers.
    pub launchers: OsString,
}

/// The facts that a WLM needs about an app of gantry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppRef {
    /// The app.
    pub app: AppId,
    /// The names of its nodes, by node number.
    pub hosts: Vec<String>,
    /// While agents are started: the job to which gantry attached, if it did.
    pub job: Option<JobRef>,
    /// While agents are started: opaque data of the WLM, from [`Direct::wlm_data`](crate::Direct), or
    /// [`read_reach_args`](crate::read_reach_args).
    pub wlm_data: Vec<String>,
}

/// A running job that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Adoption {
    /// Its name, which is unambiguous later: the chosen step of a job, or the ranks started by a launcher's pid.
    pub job: JobRef,
    /// Where its ranks are.
    pub placement: Placement,
    /// The marks by which agents find the ranks. `None`: the placement has their pids.
    pub marks: Option<RankMarks>,
}

/// An ended app, as its agents have seen it. The WLM is asked for the cause of its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedApp {
    /// Its name.
    pub job: JobRef,
    /// Names of the hosts whose agents were lost.
    pub lost: Vec<String>,
    /// The app did not end by itself: ranks were told to end, were killed, or were lost with their agents.
    pub torn: bool,
}
