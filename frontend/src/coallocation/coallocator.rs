//! The entry point for requests of co-allocated jobs.

use std::time::Duration;

use super::job::{Job, name_of};
use super::output::SubjobOutput;
use super::planner::Planner;
use super::state::SubjobId;
use crate::clock::QueueTime;
use crate::config::Config;
use crate::error::{Error, Result};

/// Requests the parts of jobs from workload managers.
///
/// ```no_run
/// use std::time::Duration;
/// use gantry_frontend::coallocation::{Coallocator, SubjobOutput, Unready};
/// use gantry_frontend::Config;
///
/// # async fn tool() -> gantry_frontend::Result<()> {
/// let minute = Duration::from_secs(60);
/// let coallocator = Coallocator::new(Config::default(), SubjobOutput::Null)?;
/// let job = coallocator.request(
///     "+(&(resourceManagerContact=localhost)(label=a)(count=2)(executable=./left))
///       (&(resourceManagerContact=localhost)(label=b)(count=2)(executable=./right))",
///     minute,
/// )?;
/// job.release(Unready::Await, minute).await?;
/// let exit = job.wait().await;
/// assert_eq!(exit.code, 0);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Coallocator {
    planner: Planner,
}

impl Coallocator {
    /// Makes a coallocator with this configuration for every subjob's app. Output without a destination of its own goes
    /// to `output`. Reads the file of contacts.
    ///
    /// # Errors
    /// The file of contacts is malformed.
    pub fn new(config: Config, output: SubjobOutput) -> Result<Self> {
        Ok(Self { planner: Planner::new(config, output)? })
    }

    /// How long each subjob of later jobs may wait for nodes. That time does not count towards the job's timeout.
    /// Default: no limit.
    #[must_use]
    pub fn queue_timeout(mut self, timeout: Duration) -> Self {
        self.planner.queue = QueueTime::Apart(Some(timeout));
        self
    }

    /// Requests a job. Checks all its subjobs first: if one cannot be honoured, none is started. Then launches all at
    /// once, each within `timeout`; time in a queue does not count. [`Job::events`] and [`Job::states`] report the
    /// progress. Files for output are emptied when the first subjob that writes to them starts. Must be called inside a
    /// tokio runtime.
    ///
    /// # Errors
    /// [`Error::Invalid`] with all that is wrong with the request.
    pub fn request(&self, description: &str, timeout: Duration) -> Result<Job> {
        self.request_each(description, timeout)?.into_job()
    }

    /// As [`Coallocator::request`], with a result for every subrequest. There is a job if no result is an error.
    ///
    /// # Errors
    /// [`Error::Invalid`]: the text is not a request, or two of its subjobs have the same label.
    pub fn request_each(&self, description: &str, timeout: Duration) -> Result<Requested> {
        let subrequests = self.planner.read(description)?;
        let mut planned = Vec::with_capacity(subrequests.len());
        let mut results = Vec::with_capacity(subrequests.len());
        for (subrequest, number) in subrequests.into_iter().zip(0..) {
            let label = name_of(subrequest.label.as_deref(), SubjobId(number));
            let outcome = self.planner.plan(subrequest).map(|plan| planned.push(plan));
            results.push(SubrequestResult { label, outcome });
        }
        if results.iter().any(|result| result.outcome.is_err()) {
            return Ok(Requested { job: None, results });
        }
        let labels: Vec<&str> = planned.iter().filter_map(|plan| plan.label.as_deref()).collect();
        if let Some(label) =
            labels.iter().enumerate().find_map(|(n, label)| labels[..n].contains(label).then_some(label))
        {
            return Err(Error::invalid(format!("two subjobs have the label '{label}'")));
        }
        let job = Some(Job::start(planned, timeout, self.planner.clone()));
        Ok(Requested { job, results })
    }
}

/// The result of a request.
#[derive(Debug)]
#[must_use = "the job is cancelled when it is dropped"]
#[non_exhaustive]
pub struct Requested {
    /// The job. None: it cannot be started as requested, and no part of it was started.
    pub job: Option<Job>,
    /// The result of every subrequest, in their order.
    pub results: Vec<SubrequestResult>,
}

impl Requested {
    /// The job.
    ///
    /// # Errors
    /// [`Error::Invalid`] with all that is wrong, if there is no job.
    pub fn into_job(self) -> Result<Job> {
        let Self { job, results } = self;
        job.ok_or_else(|| build_refusal(results))
    }
}

/// The result of a subrequest.
#[derive(Debug)]
#[non_exhaustive]
pub struct SubrequestResult {
    /// The subjob's label, else its number.
    pub label: String,
    /// Whether its manager can start it as requested.
    pub outcome: Result<()>,
}

/// The error for subjobs that cannot be started as requested.
fn build_refusal(results: Vec<SubrequestResult>) -> Error {
    let wrong = results.into_iter().filter_map(|result| Some((result.label, result.outcome.err()?)));
    let wrong: Vec<(String, Error)> = wrong.collect();
    let hint = wrong.iter().find_map(|(_, error)| error.hint());
    let wrong: Vec<String> = wrong.iter().map(|(label, error)| format!("subjob {label}: {error}")).collect();
    Error::Invalid { message: wrong.join("; "), hint }
}
