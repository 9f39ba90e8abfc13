//! What runs, as the seam names it.

use std::ffi::OsString;
use std::path::PathBuf;

use gantry_shared::wire::message::RankMarks;
use gantry_types::id::AppId;
use gantry_types::placement::Placement;

/// Something that runs already, in the words of its WLM: `1234` or `1234,1240` for processes of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobRef(pub String);

/// A batch job to be submitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submission {
    /// Exactly what one would give the WLM's own command: options, the script, the script's arguments.
    pub args: Vec<OsString>,
    /// If what its script launches first is to be held.
    pub held: Option<HeldScript>,
    /// Variables for the job, besides those of this process.
    pub env: Vec<(OsString, OsString)>,
    /// The directory in which that command is to run.
    pub cwd: PathBuf,
}

/// A script whose first launch is held: it finds programs of ours in the place of its launchers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldScript {
    /// The script; the submission's arguments are options only.
    pub script: OsString,
    /// A directory that every node sees, in which a program of ours has the names of launchers.
    pub launchers: PathBuf,
}

/// An app of ours, as far as a WLM needs to know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppRef {
    /// The app.
    pub app: AppId,
    /// The names of its nodes, by node number.
    pub hosts: Vec<String>,
    /// While agents are started: what it was adopted as, if it was.
    pub job: Option<JobRef>,
    /// While agents are started: opaque data of the WLM, from [`Direct::wlm_data`](crate::Direct), or [`read_reach_args`](crate::read_reach_args).
    pub wlm_data: Vec<String>,
}

/// Something that runs already and was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Adoption {
    /// Its name, so that it names nothing else later: of a job the step that was chosen, of a launcher's pid what it has started.
    pub job: JobRef,
    /// Where its ranks are.
    pub placement: Placement,
    /// What agents find the ranks by. None: the placement has their pids.
    pub marks: Option<RankMarks>,
}

/// What a WLM is asked about that has ended: an app, as far as its agents have seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedApp {
    /// Its name.
    pub job: JobRef,
    /// Names of the hosts whose agents were lost.
    pub lost: Vec<String>,
    /// It has not ended by itself: ranks were told to end or killed, or were lost with their agents.
    pub torn: bool,
}
