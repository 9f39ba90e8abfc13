//! Workload managers that run batch scripts.

use std::ffi::OsString;
use std::fmt;

use crate::error::Result;
use crate::host::Host;
use crate::job::{JobRef, Submission};

/// A workload manager that runs batch scripts.
pub trait BatchJobs: Send + Sync + fmt::Debug {
    /// Submits a batch job. Runs a program of the WLM, and blocks while it runs.
    ///
    /// # Errors
    /// The WLM refuses: its own message.
    fn submit(&self, submission: &Submission, host: &dyn Host) -> Result<JobRef>;

    /// Checks, before anything is submitted, that this machine has the command of [`plan_cancel`](Self::plan_cancel).
    ///
    /// # Errors
    /// It has no such command. Never where the same command submits.
    fn check_cancel(&self, _host: &dyn Host) -> Result<()> {
        Ok(())
    }

    /// The command that cancels a submitted job. It prints nothing when it succeeds.
    ///
    /// # Errors
    /// This machine has no such command.
    fn plan_cancel(&self, job: &JobRef, host: &dyn Host) -> Result<Vec<OsString>>;
}
