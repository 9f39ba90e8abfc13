//! Work that waits for a file system, beside the agent's loop.
//!
//! A file system can hang for ever. So every session has threads of its own, not a share of a pool: one that hangs takes nothing away from
//! others. What is to be done for a session is done one thing after the other.

use std::io;
use std::sync::mpsc::{SendError, Sender, channel};

use gantry_types::error::{Failure, Kind};
use nix::sys::signal::SigSet;

/// What is to be done; it is given the failure where there is no thread for it.
type Job = Box<dyn FnOnce(Result<(), Failure>) + Send>;

/// What is to be done for one session, in its order, on a thread that ends when this was dropped and all of it is done.
#[derive(Debug)]
pub(crate) struct Jobs(Sender<Job>);

impl Default for Jobs {
    fn default() -> Self {
        let (jobs, waiting) = channel::<Job>();
        let started = spawn("storage", move || waiting.into_iter().for_each(|job| job(Ok(()))));
        if let Err(error) = started {
            tracing::warn!(%error, "no thread for storage");
        }
        Self(jobs)
    }
}

impl Jobs {
    /// Does this after all that came before. Returns at once.
    pub(crate) fn push(&self, job: impl FnOnce(Result<(), Failure>) + Send + 'static) {
        if let Err(SendError(job)) = self.0.send(Box::new(job)) {
            let none = "start a thread for storage: the system refused";
            job(Err(
                Failure::new(Kind::Unsupported, none).with_hint("raise the limit of processes (ulimit -u)")
            ));
        }
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
    }
}
