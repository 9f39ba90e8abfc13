//! Section "co-allocation": one job over several workload managers.

use std::ffi::{c_char, c_int};
use std::io;
use std::os::fd::IntoRawFd;
use std::os::unix::net::UnixStream as Pair;
use std::sync::Arc;
use std::time::Duration;

use gantry_frontend::Error;
use gantry_frontend::coallocation::{
    Coallocator, JobEvent, JobEvents, SubjobInfo, SubjobOutput, SubjobState, Unready,
};
use gantry_shared_capi::{Fault, deadline, enter, memory, text};
use gantry_types::error::Kind;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;

use crate::handles::Owned;
use crate::process::{fault, process};

fn job(id: i64) -> Result<Owned, Fault> {
    Ok(Arc::clone(&*process().jobs.get(id)?))
}

/// Requests a job.
///
/// # Safety
/// `description` is null or a string; `count` and `results` are null or point to writable variables.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gantry_requestJob(
    description: *const c_char,
    count: *mut c_int,
    results: *mut *mut c_int,
) -> i64 {
    enter("gantry_requestJob", 0, || {
        let nothing = std::ptr::null_mut();
        // SAFETY: guaranteed by the caller.
        unsafe { set(count, 0) };
        // SAFETY: guaranteed by the caller.
        unsafe { set(results, nothing) };
        // SAFETY: guaranteed by the caller.
        let description = unsafe { text::required_name(description, "the description") }?.to_owned();
        let process = process();
        let config = process.frontend().config().clone();
        let (deadline, queue) = (deadline::of_launches(), deadline::of_queues());
        let requested = process.try_wait(async move {
            let mut coallocator = Coallocator::new(config, SubjobOutput::Null)?;
            if let Some(queue) = queue {
                coallocator = coallocator.queue_timeout(queue);
            }
            coallocator.request_each(&description, deadline)
        })?;
        let kinds = requested.results.iter().map(|it| it.outcome.as_ref().err().map(Error::kind));
        let kinds: Vec<c_int> =
            kinds.map(|kind| kind.map_or(0, gantry_shared_capi::fault::number_of)).collect();
        if !results.is_null() {
            let given = memory::array(&kinds, 0)?;
            // SAFETY: guaranteed by the caller.
            unsafe { set(results, given) };
        }
        // SAFETY: guaranteed by the caller.
        unsafe { set(count, c_int::try_from(kinds.len()).unwrap_or(c_int::MAX)) };
        match requested.into_job() {
            Ok(job) => Ok(process.jobs.add(&process.ids, Arc::new(job))),
            Err(error) => Err(fault(&error)),
        }
    })
}

/// Writes a result if its pointer is not null.
///
/// # Safety
/// It is null or writable.
unsafe fn set<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: guaranteed by the caller.
        unsafe { place.write(value) };
    }
}

/// Adds a subjob.
///
/// # Safety
/// `description` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gantry_addSubjob(job_id: i64, description: *const c_char) -> c_int {
    enter("gantry_addSubjob", 1, || {
        // SAFETY: guaranteed by the caller.
        let description = unsafe { text::required_name(description, "the description") }?.to_owned();
        let job = job(job_id)?;
        process().try_wait(async move { job.add(&description).await }).map(|()| 0)
    })
}

/// Takes a subjob out.
///
/// # Safety
/// `label` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gantry_deleteSubjob(job_id: i64, label: *const c_char) -> c_int {
    enter("gantry_deleteSubjob", 1, || {
        // SAFETY: guaranteed by the caller.
        let label = unsafe { text::required_name(label, "the label") }?.to_owned();
        let job = job(job_id)?;
        process().try_wait(async move { job.delete(&label).await }).map(|()| 0)
    })
}

/// Lets all go.
#[unsafe(no_mangle)]
pub extern "C" fn gantry_releaseJob(job_id: i64, wait_for_subjobs: c_int) -> c_int {
    enter("gantry_releaseJob", 1, || {
        let (job, deadline) = (job(job_id)?, deadline::of_launches());
        let unready = if wait_for_subjobs == 0 { Unready::Cancel } else { Unready::Await };
        process().try_wait(async move { job.release(unready, deadline).await }).map(|()| 0)
    })
}

/// Ends all.
#[unsafe(no_mangle)]
pub extern "C" fn gantry_cancelJob(job_id: i64) -> c_int {
    enter("gantry_cancelJob", 1, || {
        let job = job(job_id)?;
        process().try_wait(async move { job.cancel().await }).map(|()| 0)
    })
}

/// The states of the subjobs.
///
/// # Safety
/// All three are null or point to writable variables.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gantry_getSubjobStates(
    job_id: i64,
    count: *mut c_int,
    states: *mut *mut c_int,
    labels: *mut *mut *mut c_char,
) -> c_int {
    enter("gantry_getSubjobStates", 1, || {
        let all = job(job_id)?.states();
        let numbers: Vec<c_int> = all.iter().map(number_of).collect();
        let names: Vec<&[u8]> = all.iter().map(|info| info.label.as_bytes()).collect();
        if !labels.is_null() {
            let given = memory::strings(&names)?;
            // SAFETY: guaranteed by the caller.
            unsafe { set(labels, given) };
        }
        if !states.is_null() {
            let given = memory::array(&numbers, 0)?;
            // SAFETY: guaranteed by the caller.
            unsafe { set(states, given) };
        }
        // SAFETY: guaranteed by the caller.
        unsafe { set(count, c_int::try_from(all.len()).unwrap_or(c_int::MAX)) };
        Ok(0)
    })
}

/// `gantry_subjob_state_t`.
fn number_of(info: &SubjobInfo) -> c_int {
    match info.state {
        SubjobState::Pending => 0,
        SubjobState::Active => 1,
        SubjobState::CheckedIn => 2,
        SubjobState::Released => 3,
        SubjobState::Done => 4,
        SubjobState::Failed => 5,
    }
}

/// Waits for the end of all.
///
/// # Safety
/// `exit_code` is null or points to an int that may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gantry_waitJob(job_id: i64, exit_code: *mut c_int) -> c_int {
    enter("gantry_waitJob", 1, || {
        let (job, deadline) = (job(job_id)?, deadline::of_thread());
        let exit = process().try_wait(async move {
            let Some(after) = deadline else { return Ok(job.wait().await) };
            let phase = "waiting for the job's end";
            let late = |_| Error::TimedOut { phase, after, missing: Vec::new() };
            tokio::time::timeout(after, job.wait()).await.map_err(late)
        })?;
        // SAFETY: guaranteed by the caller.
        unsafe { set(exit_code, exit.code) };
        Ok(0)
    })
}

/// The timeout for telling the apps of a job that the tool detaches, if no deadline was set.
const LETTING_BE: Duration = Duration::from_secs(30);

/// Leaves a job to itself, and forgets it.
#[unsafe(no_mangle)]
pub extern "C" fn gantry_detachJob(job_id: i64) -> c_int {
    enter("gantry_detachJob", 1, || {
        let (process, left) = (process(), job(job_id)?);
        let deadline = deadline::of_thread().unwrap_or(LETTING_BE);
        process.try_wait(async move { left.let_be(deadline).await })?;
        // Another thread may have been quicker.
        drop(process.jobs.take(job_id));
        Ok(0)
    })
}

/// Ends a job, and forgets it.
#[unsafe(no_mangle)]
pub extern "C" fn gantry_closeJob(job_id: i64) -> c_int {
    enter("gantry_closeJob", 1, || {
        let process = process();
        let job = Arc::clone(&*process.jobs.take(job_id)?);
        process.wait(close(job)).map(|()| 0)
    })
}

/// Cancels a job, and waits until nothing of it is left.
pub(crate) async fn close(job: Owned) {
    // It may be over already.
    drop(job.cancel().await);
    // This wait ends: everything that it waits for has a deadline.
    drop(job.wait().await);
}

/// Opens a descriptor for events.
#[unsafe(no_mangle)]
pub extern "C" fn gantry_openJobEvents(job_id: i64) -> c_int {
    enter("gantry_openJobEvents", -1, || {
        let process = process();
        let job = job(job_id)?;
        let (past, events) = job.follow();
        let failed =
            |error: io::Error| Fault::of(Kind::LauncherFailed, &error, Some("no descriptor could be made"));
        // Closed when a program is executed, as all descriptors of this library.
        let (theirs, ours) = Pair::pair().map_err(failed)?;
        ours.set_nonblocking(true).map_err(failed)?;
        let ours = process.inside(|| UnixStream::from_std(ours))?.map_err(failed)?;
        process.begin(write_events(past, events, ours))?;
        Ok(theirs.into_raw_fd())
    })
}

/// Writes events until there are no more, or the reader has closed its end. Unread events wait in memory.
async fn write_events(past: Vec<JobEvent>, mut events: JobEvents, mut to: UnixStream) {
    let mut past = past.into_iter();
    loop {
        let event = match past.next() {
            Some(event) => Some(event),
            None => tokio::select! {
                event = events.next() => event,
                // The tool never sends data. So this event means that it has closed its end.
                _ = to.readable() => None,
            },
        };
        let Some(Ok(mut line)) = event.map(|event| serde_json::to_vec(&event)) else { return };
        line.push(b'\n');
        if to.write_all(&line).await.is_err() {
            return;
        }
    }
}
