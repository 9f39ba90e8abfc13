//! The messages between the tool and the process that submits a job for it, as frames on a socket pair. That process
//! first says [`Hello`](crate::protocol::FromGuard::Hello). The end of the socket without [`ToSubmitter::Owned`] means
//! that the job has no owner.

use std::time::Duration;

use gantry_types::error::Failure;
use gantry_wlm::{JobRef, JobStarter, Queued, Submission};
use serde::{Deserialize, Serialize};

/// How long a WLM is asked to cancel a job while it gives no answer.
pub const CANCELS_WITHIN: Duration = Duration::from_secs(600);

/// From the tool.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToSubmitter {
    /// Submit this job.
    Submit {
        /// The name of the WLM.
        wlm: String,
        /// The job.
        order: Order,
    },
    /// The job has an owner, which cancels it should the tool end.
    Owned,
}

/// A job to submit.
#[derive(Debug, Serialize, Deserialize)]
pub enum Order {
    /// A user's batch job.
    Script(Submission),
    /// The job of a launch. Contains the app's secret.
    Starter(Queued, JobStarter),
}

/// To the tool.
#[derive(Debug, Serialize, Deserialize)]
pub enum FromSubmitter {
    /// The WLM has accepted the job.
    Accepted(JobRef),
    /// It has not.
    Refused(Failure),
    /// The job had no owner: whether it is cancelled.
    Cancelled(Result<(), NotCancelled>),
}

/// A job that the WLM was asked to cancel, and has not.
#[derive(Debug, Serialize, Deserialize)]
pub struct NotCancelled {
    /// What it said.
    pub failure: Failure,
    /// Whether it is asked again, for [`CANCELS_WITHIN`].
    pub again: bool,
}
