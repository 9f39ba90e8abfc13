//! Launchers that wait for nodes before they start ranks.

use std::fmt;

use gantry_types::id::Pid;

use crate::error::Result;
use crate::host::Host;
use crate::job::JobRef;

/// What a launcher's line says about its wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WaitLine {
    /// It waits from now on.
    Begins(LauncherWait),
    /// It waits no longer.
    Ends,
}

/// A launcher's wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LauncherWait {
    /// The job that has to get nodes, or has to have some free.
    pub job: JobRef,
    /// Whether the launcher has submitted this job. Otherwise it runs in it, and a step has to wait.
    pub submitted: bool,
    /// What it waits for, for people. Empty: the launcher does not say, and it may not wait at all. It is asked for in a moment.
    pub message: String,
}

/// A WLM whose launcher waits for nodes.
pub trait LauncherWaits: Send + Sync + fmt::Debug {
    /// Reads a line of the launcher's standard error. None: it is not about a wait.
    fn read_line(&self, line: &str) -> Option<WaitLine>;

    /// Asks why a submitted job waits. Blocks as long as a program of the WLM takes. None: it does not wait any more.
    ///
    /// # Errors
    /// The WLM's own words.
    fn ask_reason(&self, job: &JobRef, host: &dyn Host) -> Result<Option<String>>;

    /// The job that this process is in, where a launcher may wait for room without a word.
    fn own_job(&self, host: &dyn Host) -> Option<JobRef>;

    /// Whether a launcher waits that the process `above` has started, itself or by others: in `job`, or without one for nodes of a job that it has submitted.
    /// Blocks as long as a program of the WLM takes.
    ///
    /// # Errors
    /// The WLM's own words.
    fn look(&self, job: Option<&JobRef>, above: Pid, host: &dyn Host) -> Result<Option<LauncherWait>>;
}
