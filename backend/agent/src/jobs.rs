//! Work that waits for a file system, outside the agent's loop.
//!
//! A file system can hang for ever. So every session has its own thread, not a share of a pool: a session that hangs
//! does not delay others. A session's jobs run one after the other.

use std::io;
use std::sync::mpsc::{SendError, Sender, channel};

use gantry_types::error::{Failure, Kind};
use nix::sys::signal::SigSet;

/// A job. It receives the failure if there is no thread for it.
type Job = Box<dyn FnOnce(Result<(), Failure>) + Send>;

/// The jobs of one session, in order, on one thread. The thread ends when this is dropped and all jobs are done.
#[derive(Debug)]
pub(crate) struct Jobs(Sender<Job>);

impl Default for Jobs {
    fn default() -> Self {
        let (jobs, waiting) = channel::<Job>();
        // Without a thread each job learns so.
        spawn("storage", move || waiting.into_iter().for_each(|job| job(Ok(())))).ok();
        Self(jobs)
    }
}

impl Jobs {
    /// Runs this job after all earlier ones. Returns at once.
    pub(crate) fn push(&self, job: impl FnOnce(Result<(), Failure>) + Send + 'static) {
        if let Err(SendError(job)) = self.0.send(Box::new(job)) {
            let none = "start a thread for storage: the system refused";
            job(Err(
                Failure::new(Kind::Unsupported, none).with_hint("raise the limit of processes (ulimit -u)")
            ));
        }
    }
}

/// Starts a thread that takes no signals: only the loop takes them. The process ends without waiting for the thread.
///
/// # Errors
/// The system refuses another thread.
pub(crate) fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let quietly = move || {
        SigSet::all().thread_block().ok();
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
    }
}
