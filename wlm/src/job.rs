//! What runs, as the seam names it.

use gantry_shared::id::AppId;
use gantry_shared::placement::Placement;
use gantry_shared::wire::message::RankMarks;

/// Something that runs already, in the words of its WLM: `1234` or `1234,1240` for processes of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobRef(pub String);

/// An app of ours, as far as a WLM needs to know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppRef {
    /// The app.
    pub app: AppId,
    /// The names of its nodes, by node number.
    pub hosts: Vec<String>,
    /// While agents are started: what it was adopted as, if it was.
    pub job: Option<JobRef>,
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
