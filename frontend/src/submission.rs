//! Submits jobs so that an accepted job always has an owner, which cancels it should this process end.

use std::ffi::OsString;
use std::sync::mpsc;
use std::time::Duration;

use gantry_wlm::caps::batch::BatchJobs;
use gantry_wlm::host::Machine;
use gantry_wlm::{Host, JobRef};
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;

use crate::error::{Error, Result};

/// How long the WLM may take to cancel a job that has no owner.
const PATIENCE: Duration = Duration::from_secs(60);

/// A submitted job.
#[derive(Debug)]
pub(crate) struct Submitted<T> {
    pub(crate) job: JobRef,
    /// The command that cancels it.
    pub(crate) cancel: Vec<OsString>,
    /// What else the submission gave.
    pub(crate) rest: T,
}

/// Submits a job by `submit`, which may block, and passes the command that cancels it to its owner by `own`. If there is
/// no owner, or the runtime ends before, an accepted job is cancelled.
///
/// # Errors
/// This machine cannot cancel jobs, the WLM refuses, or there is no owner.
pub(crate) async fn submit_owned<T, F>(
    batch: &'static dyn BatchJobs,
    submit: impl FnOnce() -> gantry_wlm::Result<(JobRef, T)> + Send + 'static,
    own: impl FnOnce(Vec<OsString>) -> F,
) -> Result<Submitted<T>>
where
    T: Send + 'static,
    F: Future<Output = Result<()>>,
{
    batch.check_cancel(&Machine)?;
    let (accept, accepted) = oneshot::channel();
    let (owned, ownership) = mpsc::channel();
    // The thread goes on when the runtime has ended.
    let thread = spawn_blocking(move || {
        let (job, rest) = submit()?;
        let cancel = batch.plan_cancel(&job, &Machine)?;
        drop(accept.send(Submitted { job: job.clone(), cancel: cancel.clone(), rest }));
        match ownership.recv() {
            Ok(()) => Ok(()),
            Err(_nobody) => cancel_job(&job, &cancel, PATIENCE),
        }
    });
    let Ok(submitted) = accepted.await else {
        thread.await??;
        return Err(Error::Internal("a submission gave no job".to_owned()));
    };
    let Err(error) = own(submitted.cancel.clone()).await else {
        // Without the thread the job has its owner all the same.
        owned.send(()).err();
        return Ok(submitted);
    };
    drop(owned);
    Err(without_owner(&submitted.job, &error, thread.await?))
}

/// Cancels a job whose guard has ended, because nobody would if this process ended, too. Returns the error that says so.
pub(crate) async fn cancel_unowned(job: JobRef, command: Vec<OsString>) -> Error {
    let named = job.clone();
    let cancelling = spawn_blocking(move || cancel_job(&job, &command, PATIENCE));
    let cancelled = cancelling.await.unwrap_or_else(|error| Err(error.into()));
    without_owner(&named, &Error::Gone { what: "the guard".to_owned() }, cancelled)
}

/// The error for a job that has lost its owner, and what came of its cancellation.
fn without_owner(job: &JobRef, why: &Error, cancelled: Result<()>) -> Error {
    let reason = match cancelled {
        Ok(()) => format!("it was cancelled, because it had no owner: {why}"),
        Err(left) => format!("it has no owner: {why}; it is not cancelled: {left}"),
    };
    Error::Lost { what: vec![format!("job {}", job.0)], reason }
}

/// Cancels a job by the command of [`BatchJobs::plan_cancel`], and waits until the WLM has confirmed it.
///
/// # Errors
/// The WLM's error.
pub(crate) fn cancel_job(job: &JobRef, command: &[OsString], timeout: Duration) -> Result<()> {
    let said = Machine.ask(command, timeout);
    let said = said.map_err(|e| Error::io(format!("cannot cancel job {}", job.0), e))?;
    match said.stderr.trim() {
        "" => Ok(()),
        reason => Err(Error::Lost { what: vec![format!("job {}", job.0)], reason: reason.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::path::{Path, PathBuf};
    use std::time::Instant;

    use gantry_wlm::Submission;

    use super::*;

    /// A job is a file. The command that cancels it removes the file.
    #[derive(Debug)]
    struct Files;

    impl BatchJobs for Files {
        fn submit(&self, _submission: &Submission, _host: &dyn Host) -> gantry_wlm::Result<JobRef> {
            unreachable!("not by the tests")
        }

        fn plan_cancel(&self, job: &JobRef, _host: &dyn Host) -> gantry_wlm::Result<Vec<OsString>> {
            Ok(vec!["/bin/rm".into(), job.0.clone().into()])
        }
    }

    fn make(folder: &Path) -> (JobRef, PathBuf) {
        let path = folder.join("job");
        std::fs::write(&path, "").unwrap();
        (JobRef(path.display().to_string()), path)
    }

    #[tokio::test]
    async fn a_job_has_an_owner_or_is_cancelled() {
        let folder = tempfile::tempdir().unwrap();
        let (job, path) = make(folder.path());
        let there = job.clone();
        let mut told = None;
        let own = async |cancel| {
            told = Some(cancel);
            Ok(())
        };
        let owned = submit_owned(&Files, || Ok((there, 5)), own).await.unwrap();
        assert_eq!((&owned.job, Some(&owned.cancel), owned.rest), (&job, told.as_ref(), 5));
        assert!(path.exists());
        let own = async |_| Err(Error::Gone { what: "the guard".to_owned() });
        let error = submit_owned(&Files, || Ok((job, ())), own).await.unwrap_err().to_string();
        assert!(error.ends_with("it was cancelled, because it had no owner: the guard is gone"), "{error}");
        assert!(!path.exists());
        let own = async |_| Err(Error::Gone { what: "the guard".to_owned() });
        let error = submit_owned(&Files, || Ok((owned.job, ())), own).await.unwrap_err().to_string();
        assert!(error.contains("it is not cancelled: ") && error.contains("No such file"), "{error}");
    }

    #[test]
    fn a_job_that_has_no_owner_when_the_runtime_ends_is_cancelled() {
        for accepted_before in [true, false] {
            let folder = tempfile::tempdir().unwrap();
            let (job, path) = make(folder.path());
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
            let (begun, begins) = mpsc::channel();
            let (accept, acceptance) = mpsc::channel();
            let tell = begun.clone();
            let submit = move || {
                begun.send(()).unwrap();
                acceptance.recv().unwrap();
                Ok((job, ()))
            };
            let own = move |_| {
                tell.send(()).unwrap();
                pending()
            };
            let submitting = runtime.spawn(submit_owned(&Files, submit, own));
            begins.recv().unwrap();
            if accepted_before {
                accept.send(()).unwrap();
                begins.recv().unwrap();
            }
            runtime.shutdown_background();
            let until = Instant::now() + PATIENCE;
            let wait = |done: &dyn Fn() -> bool| {
                while !done() {
                    assert!(Instant::now() < until, "the job has no owner");
                    std::thread::yield_now();
                }
            };
            wait(&|| submitting.is_finished());
            if !accepted_before {
                accept.send(()).unwrap();
            }
            wait(&|| !path.exists());
        }
    }
}
