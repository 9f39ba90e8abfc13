//! Submits jobs so that an accepted job always has an owner, whoever ends meanwhile.
//!
//! A process of its own submits: the guard's executable, as `gantry-guard submit`. It cancels the job if its socket ends
//! before the guard owns the job.

use std::fs::File;
use std::path::Path;

use gantry_guard::protocol::OwnedJob;
use gantry_guard::submission::{CANCELS_WITHIN, FromSubmitter, NotCancelled, Order, ToSubmitter};
use gantry_wlm::host::{Machine, spawn_orphan};
use gantry_wlm::{JobRef, Wlm, find_batch};
use tokio::io::AsyncWriteExt;
use tokio::net::unix::OwnedWriteHalf;
use tokio::task::spawn_blocking;

use crate::error::{Error, Result, WlmError};
use crate::guard::{Guard, Helper, encode_command, read_message};
use crate::helpers;

/// Submits a job by the executable `program`, and gives it to `guard`. Dropping the future cancels the job, even if it
/// is accepted later.
///
/// # Errors
/// This machine cannot cancel jobs, the WLM refuses, or the guard has ended: then the job is cancelled.
pub(crate) async fn submit(
    program: &Path,
    wlm: &'static dyn Wlm,
    order: Order,
    guard: &Guard,
) -> Result<JobRef> {
    let Helper { mut from, mut to, mut incoming, .. } = Helper::start(program, &["submit"]).await?;
    say(&mut to, &ToSubmitter::Submit { wlm: wlm.name().to_owned(), order }).await?;
    let job = match read_message(&mut from, &mut incoming).await {
        Some(FromSubmitter::Accepted(job)) => job,
        Some(FromSubmitter::Refused(failure)) => {
            return Err(gantry_wlm::Error::Failed(failure).into());
        }
        Some(FromSubmitter::Cancelled(_)) | None => return Err(unheard()),
    };
    let Err(error) = guard.at_loss(Some(owned(wlm, &job))).await else {
        // If it has ended, the job has its owner all the same.
        say(&mut to, &ToSubmitter::Owned).await.ok();
        return Ok(job);
    };
    drop(to);
    let cancelled = match read_message(&mut from, &mut incoming).await {
        Some(FromSubmitter::Cancelled(cancelled)) => cancelled.map_err(|left| explain_left(&left)),
        _ => Err("the process that would do it has ended".to_owned()),
    };
    Err(without_owner(&job, &error, cancelled))
}

/// A job for [`Guard::at_loss`].
pub(crate) fn owned(wlm: &dyn Wlm, job: &JobRef) -> OwnedJob {
    OwnedJob { wlm: wlm.name().to_owned(), job: job.clone() }
}

/// Tells the process that submits.
///
/// # Errors
/// The process did not get the whole message, and does not act on it.
async fn say(to: &mut OwnedWriteHalf, message: &ToSubmitter) -> Result<()> {
    let bytes = encode_command(message)?;
    to.write_all(&bytes).await.map_err(|error| Error::Lost {
        what: vec!["gantry-guard".to_owned()],
        reason: format!("{error}, before it got the whole job; nothing was submitted"),
    })
}

fn unheard() -> Error {
    let reason = "gantry-guard has ended before the workload manager answered; \
                  see whether the job is there, and cancel it";
    Error::Lost { what: vec!["a submission".to_owned()], reason: reason.to_owned() }
}

/// Cancels a job whose guard has ended, because nobody would if this process ended, too. Returns the error that says so.
pub(crate) async fn cancel_unowned(wlm: &'static dyn Wlm, job: &JobRef) -> Error {
    let cancelled = match cancel(wlm, job).await {
        Ok(()) => Ok(()),
        Err(error) => {
            let again = is_unanswered(&error) && cancels_later(wlm, job).await;
            Err(explain_left(&NotCancelled { failure: error.to_failure(), again }))
        }
    };
    without_owner(job, &Error::Gone { what: "the guard".to_owned() }, cancelled)
}

fn is_unanswered(error: &Error) -> bool {
    matches!(error, Error::Wlm(WlmError(gantry_wlm::Error::Unanswered(_))))
}

/// Whether a process asks the WLM again from now on.
async fn cancels_later(wlm: &dyn Wlm, job: &JobRef) -> bool {
    let started = cancel_later(wlm, job).await;
    started.inspect_err(|error| tracing::debug!(%error, job = job.0, "the job stays")).is_ok()
}

/// Starts a process that asks the WLM again.
async fn cancel_later(wlm: &dyn Wlm, job: &JobRef) -> Result<()> {
    let program = helpers::find(helpers::GUARD)?;
    let args = ["cancel".to_owned(), wlm.name().to_owned(), job.0.clone()];
    let start = move || spawn_orphan(&program, &args, File::open("/dev/null")?.into());
    spawn_blocking(start).await?.map_err(|e| Error::io("cannot start gantry-guard", e))
}

fn explain_left(NotCancelled { failure, again }: &NotCancelled) -> String {
    match again {
        true => format!("{failure}; gantry tries again for {} minutes", CANCELS_WITHIN.as_secs() / 60),
        false => failure.to_string(),
    }
}

/// The error for a job that has lost its owner, and what came of its cancellation.
fn without_owner(job: &JobRef, why: &Error, cancelled: std::result::Result<(), String>) -> Error {
    let reason = match cancelled {
        Ok(()) => format!("it was cancelled, because it had no owner: {why}"),
        Err(left) => format!("it has no owner: {why}; it is not cancelled: {left}"),
    };
    Error::Lost { what: vec![format!("job {}", job.0)], reason }
}

/// Cancels a job, and waits until the WLM has confirmed it.
///
/// # Errors
/// The WLM's error.
pub(crate) async fn cancel(wlm: &'static dyn Wlm, job: &JobRef) -> Result<()> {
    let (batch, job) = (find_batch(wlm)?, job.clone());
    Ok(spawn_blocking(move || batch.cancel(&job, &Machine)).await??)
}

#[cfg(test)]
mod tests {
    use gantry_types::error::Kind;
    use gantry_wlm::Submission;
    use tokio::net::UnixStream;

    use super::*;

    #[tokio::test]
    async fn a_job_that_does_not_reach_the_process_that_submits_is_not_submitted() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (_from, mut to) = ours.into_split();
        let submit = |argument: String| {
            let (args, env, cwd) = (vec![argument.into()], Vec::new(), "/".into());
            let order = Order::Script(Submission { args, held: None, env, cwd });
            ToSubmitter::Submit { wlm: "fake".to_owned(), order }
        };
        let error = say(&mut to, &submit("x".repeat(1 << 20))).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid);
        drop(theirs);
        let error = say(&mut to, &submit("x".to_owned())).await.unwrap_err();
        assert!(error.to_string().contains("nothing was submitted"), "{error}");
    }
}
