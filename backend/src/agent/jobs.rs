//! Work that waits for a file system, beside the agent's loop.
//!
//! A file system can hang for ever. So every session has threads of its own, not a share of a pool: one that hangs takes nothing away from
//! others. What is to be done for a session is done one thing after the other.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use gantry_shared::error::Failure;
use nix::sys::signal::SigSet;

use crate::failure;

/// What is to be done; it is given the failure where no thread can be had for it.
type Job = Box<dyn FnOnce(Result<(), Failure>) + Send>;

/// What is to be done for one session, in its order.
#[derive(Default, Clone)]
pub(crate) struct Jobs(Arc<Mutex<Queue>>);

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Job>,
    /// Whether a thread is at work; it ends when there is nothing more to do.
    running: bool,
}

impl fmt::Debug for Jobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Jobs")
    }
}

impl Jobs {
    /// Does this after all that came before. Returns at once.
    pub(crate) fn push(&self, job: impl FnOnce(Result<(), Failure>) + Send + 'static) {
        let mut queue = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        queue.waiting.push_back(Box::new(job));
        if queue.running {
            return;
        }
        queue.running = true;
        drop(queue);
        let jobs = self.clone();
        if let Err(error) = spawn("storage", move || jobs.work()) {
            let failure = failure::from_io("have a thread for storage", &error);
            while let Some(job) = self.next() {
                job(Err(failure.clone()));
            }
        }
    }

    fn work(&self) {
        while let Some(job) = self.next() {
            job(Ok(()));
        }
    }

    fn next(&self) -> Option<Job> {
        let mut queue = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let job = queue.waiting.pop_front();
        queue.running = job.is_some();
        job
    }
}

/// Starts a thread that takes no signals: they are for the loop. The process ends without waiting for it.
///
/// # Errors
/// When the system gives no more threads.
pub(crate) fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let quietly = move || {
        if let Err(error) = SigSet::all().thread_block() {
            tracing::debug!(%error, "a thread takes signals");
        }
        work();
    };
    std::thread::Builder::new().name(name.to_owned()).spawn(quietly).map(drop)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;

    const SOON: Duration = Duration::from_secs(60);

    #[test]
    fn work_of_one_session_is_done_in_order_and_waits_for_no_other_session() {
        let (one, other) = (Jobs::default(), Jobs::default());
        let (open, gate) = channel::<()>();
        let (done, told) = channel();
        let say = |what: &'static str| {
            let done = done.clone();
            move |_: Result<(), Failure>| done.send(what).unwrap()
        };
        one.push(move |_| assert!(gate.recv().is_err(), "it was opened"));
        one.push(say("after the gate"));
        one.push(say("last"));
        other.push(say("of the other"));
        assert_eq!(told.recv_timeout(SOON), Ok("of the other"));
        assert!(told.try_recv().is_err());
        drop(open);
        assert_eq!(told.recv_timeout(SOON), Ok("after the gate"));
        assert_eq!(told.recv_timeout(SOON), Ok("last"));
        // Its thread may have ended; the next one takes over.
        one.push(say("later"));
        assert_eq!(told.recv_timeout(SOON), Ok("later"));
    }
}
