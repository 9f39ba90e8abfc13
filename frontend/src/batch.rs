//! Batch jobs that a tool submits, and attaches to once their ranks exist.

use std::ffi::OsString;
use std::future::Future;
use std::time::Duration;

use gantry_guard::submission::Order;
use gantry_types::error::Kind;
use gantry_wlm::host::Machine;
use gantry_wlm::{HeldScript, Host, JobRef, Submission, Wlm, find_batch};
use tokio::sync::mpsc;
use tokio::time;

use crate::app::{App, NotThere, adopt, gone};
use crate::clock::{Clock, QueueTime};
use crate::config::Frontend;
use crate::error::{Error, Result};
use crate::guard::{Guard, GuardEvent};
use crate::helpers;
use crate::submission::{cancel, cancel_unowned, submit};

/// How long an error waits for the job's end. The guard goes on to cancel a job that is not gone by then.
const CANCELLED_WITHIN: Duration = Duration::from_secs(10);

/// A submitted batch job before its attachment. It belongs to its owner: dropping it cancels the job, and so does the
/// death of the process. After the attachment the job is like any other. A question to the workload manager that gets no
/// answer is repeated. If the guard that would cancel the job ends before there are ranks, the job is cancelled, too.
#[derive(Debug)]
pub struct Batch {
    frontend: Frontend,
    wlm: &'static dyn Wlm,
    job: JobRef,
    /// Its first ranks are held, so it does no work without a tool.
    held: bool,
    queue_timeout: Option<Duration>,
    guard: Guard,
    /// The guard starts nothing, so its end is the only event.
    guard_events: mpsc::UnboundedReceiver<GuardEvent>,
}

impl Frontend {
    /// Submits a batch job. `args` are exactly the arguments of the workload manager's own command. Waits at most until
    /// the timeout for the job to be accepted. If the future is dropped meanwhile, the job may or may not have been
    /// accepted; if it was, it is cancelled.
    ///
    /// # Errors
    /// The workload manager refuses the job, with its own message; it has no batch jobs; or its command that cancels a
    /// job is missing.
    pub async fn submit<A: Into<OsString>>(
        &self,
        args: impl IntoIterator<Item = A>,
        timeout: Duration,
    ) -> Result<Batch> {
        let args = args.into_iter().map(Into::into).collect();
        self.submit_as(Submission { args, held: None, env: Vec::new(), cwd: own_dir()? }, timeout).await
    }

    /// As [`Frontend::submit`], for a script whose first launch will be held. `options` are those of the workload
    /// manager's own command. `env` are variables for the job besides those of this process. A script that names its
    /// launcher by a path is not held. Gantry must be installed where the nodes see it, too.
    ///
    /// # Errors
    /// As [`Frontend::submit`]; gantry is not installed.
    pub async fn submit_held<A: Into<OsString>>(
        &self,
        script: impl Into<OsString>,
        options: impl IntoIterator<Item = A>,
        env: Vec<(OsString, OsString)>,
        timeout: Duration,
    ) -> Result<Batch> {
        let held = HeldScript { script: script.into(), launchers: helpers::find_launchers()?.into() };
        let args = options.into_iter().map(Into::into).collect();
        self.submit_as(Submission { args, held: Some(held), env, cwd: own_dir()? }, timeout).await
    }

    async fn submit_as(&self, submission: Submission, timeout: Duration) -> Result<Batch> {
        let wlm = self.choose_aside().await?.wlm;
        find_batch(wlm)?;
        let program = helpers::find(helpers::GUARD)?;
        let held = submission.held.is_some();
        let submitting = async {
            let (guard, guard_events) = Guard::start(&program, None).await?;
            let job = submit(&program, wlm, Order::Script(submission), &guard).await?;
            Ok(Batch { frontend: self.clone(), wlm, job, held, queue_timeout: None, guard, guard_events })
        };
        let late = |_| Error::TimedOut { phase: "submitting a job", after: timeout, missing: Vec::new() };
        time::timeout(timeout, submitting).await.map_err(late)?
    }
}

fn own_dir() -> Result<OsString> {
    let dir = Machine.current_dir().map_err(|e| Error::io("cannot find the current directory", e))?;
    Ok(dir.into_os_string())
}

impl Batch {
    /// The job's name, as the workload manager's own commands know it.
    pub fn job(&self) -> &str {
        &self.job.0
    }

    /// The name of its workload manager.
    pub fn wlm(&self) -> &'static str {
        self.wlm.name()
    }

    /// How long the job may wait for its nodes. Default: no limit.
    #[must_use]
    pub fn queue_timeout(mut self, timeout: Duration) -> Self {
        self.queue_timeout = Some(timeout);
        self
    }

    fn clock(&self, timeout: Duration) -> Clock {
        Clock::new(timeout, QueueTime::Apart(self.queue_timeout))
    }

    /// Waits until the job has ranks, and attaches to them. The ranks are not held, so they may have run for a while by
    /// then. `news` gets the workload manager's message about what the job waits for, each time it is asked. Time in
    /// the queue does not count towards `timeout`: see [`Batch::queue_timeout`].
    ///
    /// # Errors
    /// A timeout expired, and there were no ranks yet by the workload manager's last word: the job is cancelled. The
    /// error comes when the job is gone, or ten seconds later; the guard then goes on to cancel it. The job
    /// has ended without any ranks. [`Error::JobLeft`] after every other error, for instance if a node does not start an
    /// agent: the job is detached from, because it may be in good order. A job of [`Frontend::submit_held`] is cancelled
    /// after every error: its ranks would stay held until the job's time limit.
    pub async fn attach(mut self, timeout: Duration, mut news: impl FnMut(&str) + Send) -> Result<App> {
        let (clock, owner) = (self.clock(timeout), Some(&mut self.guard_events));
        let attached = self.frontend.attach_until(self.wlm, &self.job, Some(&mut news), owner, &clock).await;
        self.settle(attached).await
    }

    /// Waits until the job has ranks, then detaches from it. Returns the name to attach to.
    ///
    /// # Errors
    /// As [`Batch::attach`].
    pub async fn wait_for_ranks(self, timeout: Duration) -> Result<String> {
        self.hand_over(timeout, async |name| Ok(name)).await
    }

    /// As [`Batch::wait_for_ranks`]. `take` gets the name while the job still belongs to its owner. Its result is
    /// returned.
    ///
    /// # Errors
    /// As [`Batch::attach`]; an error of `take` is one of them.
    pub async fn hand_over<T, F>(mut self, timeout: Duration, take: impl FnOnce(String) -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let (clock, owner) = (self.clock(timeout), Some(&mut self.guard_events));
        let taken = match adopt(self.wlm, &self.job, &[], &mut Some(&mut |_| {}), owner, &clock).await {
            Ok(found) => tokio::select! {
                taken = take(found.job.0) => taken.map_err(NotThere::Failed),
                () = gone(Some(&mut self.guard_events)) => Err(NotThere::Unowned),
            },
            Err(not_there) => Err(not_there),
        };
        self.settle(taken).await
    }

    /// Cancels a job that failed without ranks or is held, and detaches from every other one.
    async fn settle<T>(self, found: std::result::Result<T, NotThere>) -> Result<T> {
        let error = match found {
            Ok(found) => {
                self.let_go().await;
                return Ok(found);
            }
            Err(NotThere::Unowned) => return Err(cancel_unowned(self.wlm, &self.job).await),
            Err(NotThere::NotYet(error)) => return Err(self.cancel_for(error).await),
            Err(NotThere::Failed(error)) if self.held => return Err(self.cancel_for(error).await),
            Err(NotThere::Failed(error)) => error,
        };
        let job = self.job.0.clone();
        self.let_go().await;
        Err(if error.kind() == Kind::Gone { error } else { Error::JobLeft { error: Box::new(error), job } })
    }

    /// Cancels the job, so that the caller has the error when the job is gone.
    async fn cancel_for(self, error: Error) -> Error {
        match time::timeout(CANCELLED_WITHIN, cancel(self.wlm, &self.job)).await {
            Ok(Ok(())) => self.let_go().await,
            // Dropping it has the guard cancel the job, for as long as that takes.
            Ok(Err(left)) => tracing::warn!(%left, job = self.job.0, "the job is not cancelled yet"),
            Err(_) => tracing::warn!(job = self.job.0, "the job is not cancelled yet: no answer"),
        }
        error
    }

    /// Detaches from the job. A guard that has ended meanwhile does not cancel it either.
    async fn let_go(self) {
        self.detach().await.ok();
    }

    /// Detaches from the job, which continues without an owner.
    ///
    /// # Errors
    /// The guard is gone.
    pub async fn detach(self) -> Result<()> {
        self.guard.at_loss(None).await?;
        self.guard.dismiss().await;
        Ok(())
    }

    /// Cancels the job and waits until the workload manager has confirmed it, at most until the timeout expires.
    ///
    /// # Errors
    /// The workload manager's error, or the timeout expired. The guard then cancels the job.
    pub async fn cancel(self, timeout: Duration) -> Result<()> {
        let late = |_| Error::TimedOut { phase: "cancelling a job", after: timeout, missing: Vec::new() };
        time::timeout(timeout, cancel(self.wlm, &self.job)).await.map_err(late)??;
        self.let_go().await;
        Ok(())
    }
}
