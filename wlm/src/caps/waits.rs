//! Launchers that wait for nodes before they start ranks.

use std::fmt;

use gantry_types::id::Pid;

use crate::error::Result;
use crate::host::Host;
use crate::job::JobRef;

/// A launcher's message about its wait for nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WaitLine {
    /// The wait starts.
    Begins(LauncherWait),
    /// The wait has ended.
    Ends,
}

/// A launcher's wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LauncherWait {
    /// The job that waits for nodes, or that must have free ones.
    pub job: JobRef,
    /// Whether the launcher submitted this job. Otherwise the launcher runs inside of the job, and its step waits.
    pub submitted: bool,
    /// The reason, for people. Empty: the launcher does not report one, and may not wait at all. gantry asks the WLM a
    /// moment later.
    pub message: String,
}

/// A WLM whose launcher waits for nodes.
pub trait LauncherWaits: Send + Sync + fmt::Debug {
    /// Parses a line of the launcher's standard error. `None`: it is not about a wait.
    fn read_line(&self, line: &str) -> Option<WaitLine>;

    /// Asks why a submitted job waits. Blocks while a program of the WLM runs. `None`: the job does not wait any more.
    ///
    /// # Errors
    /// The WLM refuses: its own message.
    fn ask_reason(&self, job: &JobRef, host: &dyn Host) -> Result<Option<String>>;

    /// The job of this process, if its launchers may wait for free nodes without a message.
    fn own_job(&self, host: &dyn Host) -> Option<JobRef>;

    /// Whether a launcher waits that the process `above` has started, directly or through others. It waits in `job`;
    /// without `job`, for nodes of a job that it has submitted. Blocks while a program of the WLM runs.
    ///
    /// # Errors
    /// The WLM refuses: its own message.
    fn look(&self, job: Option<&JobRef>, above: Pid, host: &dyn Host) -> Result<Option<LauncherWait>>;
}
