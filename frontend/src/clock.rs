//! The timeout of a launch. Time in a queue does not count.

use std::time::Duration;

use gantry_shared::deadline::{LONGEST, bounded};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use crate::error::Error;

/// How long the launch may wait in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QueueTime {
    /// It counts towards the launch's timeout.
    Counts,
    /// It does not count. None: no limit.
    Apart(Option<Duration>),
}

/// A clock that stops while the launch is in a queue.
#[derive(Debug)]
pub(crate) struct Clock {
    queue: QueueTime,
    started: Instant,
    state: watch::Sender<State>,
}

#[derive(Debug, Clone, Copy)]
struct State {
    deadline: Instant,
    /// When the clock was stopped.
    queued: Option<Instant>,
    /// Time spent in queues before that.
    waited: Duration,
}

/// Which timeout expired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Late {
    /// That of the launch.
    Launch,
    /// That of the queue.
    Queue,
}

impl Clock {
    pub(crate) fn new(timeout: Duration, queue: QueueTime) -> Self {
        Self::until(Instant::now() + bounded(timeout), queue)
    }

    pub(crate) fn until(deadline: Instant, queue: QueueTime) -> Self {
        let queue = match queue {
            QueueTime::Apart(limit) => QueueTime::Apart(limit.map(bounded)),
            QueueTime::Counts => QueueTime::Counts,
        };
        let state = State { deadline, queued: None, waited: Duration::ZERO };
        Self { queue, started: Instant::now(), state: watch::Sender::new(state) }
    }

    /// The deadline, if the launch waits in no queue from now on.
    pub(crate) fn deadline(&self) -> Instant {
        let State { deadline, queued, .. } = *self.state.borrow();
        queued.map_or(deadline, |since| deadline + since.elapsed())
    }

    /// A time that is not before the end of all possible waiting.
    pub(crate) fn latest(&self) -> Instant {
        match self.queue {
            QueueTime::Counts => self.deadline(),
            QueueTime::Apart(limit) => self.deadline() + limit.unwrap_or(LONGEST),
        }
    }

    /// Time that has counted since the start.
    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed().saturating_sub(self.queued_for())
    }

    /// Time in queues since the start.
    pub(crate) fn queued_for(&self) -> Duration {
        let State { queued, waited, .. } = *self.state.borrow();
        waited + queued.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Stops the clock: the launch is in a queue.
    pub(crate) fn stop(&self) {
        if self.queue != QueueTime::Counts {
            self.state.send_modify(|state| state.queued = state.queued.or_else(|| Some(Instant::now())));
        }
    }

    /// Restarts the clock: the launch is in no queue any more.
    pub(crate) fn go_on(&self) {
        self.state.send_modify(|state| {
            if let Some(since) = state.queued.take() {
                state.deadline += since.elapsed();
                state.waited += since.elapsed();
            }
        });
    }

    /// Waits until a timeout expires.
    pub(crate) async fn run_out(&self) -> Late {
        let mut changes = self.state.subscribe();
        loop {
            let State { deadline, queued, waited } = *changes.borrow_and_update();
            let (until, late) = match (queued, self.queue) {
                (None, _) | (_, QueueTime::Counts) => (deadline, Late::Launch),
                (Some(since), QueueTime::Apart(limit)) => {
                    (since + bounded(limit.unwrap_or(LONGEST)).saturating_sub(waited), Late::Queue)
                }
            };
            // The clock itself owns the sender.
            if timeout_at(until, changes.changed()).await.is_err() {
                return late;
            }
        }
    }

    /// The error for a launch that timed out in `phase`, where `missing` have not answered.
    pub(crate) fn explain(&self, late: Late, phase: &'static str, missing: Vec<String>) -> Error {
        match late {
            Late::Launch => Error::TimedOut { phase, after: self.elapsed(), missing },
            Late::Queue => {
                let after = self.queued_for().as_secs();
                Error::Queued { message: format!("no answer within {after} s while waiting in the queue") }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_longest_timeout_of_a_caller_is_taken() {
        let clock = Clock::new(Duration::MAX, QueueTime::Apart(Some(Duration::MAX)));
        assert!(clock.latest() > clock.deadline());
    }

    #[tokio::test(start_paused = true)]
    async fn time_in_the_queue_does_not_count() {
        let clock = Clock::new(10 * SECOND, QueueTime::Apart(None));
        let run = async {
            tokio::time::sleep(4 * SECOND).await;
            clock.stop();
            tokio::time::sleep(1000 * SECOND).await;
            assert_eq!(clock.deadline(), Instant::now() + 6 * SECOND);
            clock.go_on();
            (clock.elapsed(), clock.queued_for(), Instant::now())
        };
        let (late, (elapsed, queued, left)) = tokio::join!(clock.run_out(), run);
        assert_eq!((late, elapsed, queued), (Late::Launch, 4 * SECOND, 1000 * SECOND));
        assert_eq!(left.elapsed(), 6 * SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn the_queue_has_a_limit_of_its_own_for_all_waits_together() {
        let clock = Clock::new(10 * SECOND, QueueTime::Apart(Some(5 * SECOND)));
        let begun = Instant::now();
        let run = async {
            clock.stop();
            tokio::time::sleep(3 * SECOND).await;
            clock.go_on();
            tokio::time::sleep(SECOND).await;
            clock.stop();
            // Stopping twice has no further effect.
            clock.stop();
        };
        let (late, ()) = tokio::join!(clock.run_out(), run);
        assert_eq!((late, begun.elapsed()), (Late::Queue, 6 * SECOND));
    }

    #[tokio::test(start_paused = true)]
    async fn a_queue_that_counts_does_not_stop_the_clock() {
        let clock = Clock::new(10 * SECOND, QueueTime::Counts);
        let begun = Instant::now();
        clock.stop();
        assert_eq!(clock.run_out().await, Late::Launch);
        assert_eq!(begun.elapsed(), 10 * SECOND);
        assert_eq!(clock.latest(), clock.deadline());
    }
}
