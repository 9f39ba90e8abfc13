//! Workload managers that run batch scripts.

use std::fmt;
use std::time::Duration;

use crate::error::Result;
use crate::host::Host;
use crate::job::{JobRef, Submission};

/// How long a command that submits may take. A job may be accepted before its command says so.
pub(crate) const ANSWER_WITHIN: Duration = Duration::from_secs(15 * 60);

/// A workload manager that runs batch scripts.
pub trait BatchJobs: Send + Sync + fmt::Debug {
    /// Submits a batch job. Runs a program of the WLM, and blocks while it runs.
    ///
    /// # Errors
    /// The WLM refuses: its own message.
    fn submit(&self, submission: &Submission, host: &dyn Host) -> Result<JobRef>;

    /// Checks, before anything is submitted, that this machine has the command of [`cancel`](Self::cancel).
    ///
    /// # Errors
    /// It has no such command. Never where the same command submits.
    fn check_cancel(&self, _host: &dyn Host) -> Result<()> {
        Ok(())
    }

    /// Cancels a job. Runs a program of the WLM, and blocks while it runs.
    ///
    /// # Errors
    /// [`Error::Unanswered`](crate::Error): the job may still be there. Otherwise the WLM's refusal: the job has ended, or
    /// is not this user's.
    fn cancel(&self, job: &JobRef, host: &dyn Host) -> Result<()>;
}
