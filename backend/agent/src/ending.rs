//! The end of a session, or of all sessions: daemons may first end by themselves, then get SIGTERM, then SIGKILL.

use std::time::Duration;

use gantry_shared::deadline::bounded;
use gantry_shared::wire::message::LEAVE_SLACK;
use gantry_types::id::{RequestId, SessionId};
use gantry_types::signal::Signal;
use tokio::time::Instant;

/// How long processes may take to end after SIGKILL. One that waits for a dead file server in a system call takes longer
/// than anything can wait. The agent then ends what it can, and leaves.
const AFTER_KILL: Duration = Duration::from_secs(2);

/// How long the answer of an agent may take to its tool.
const ON_THE_WAY: Duration = Duration::from_secs(1);

/// How long everything else may take before the agent leaves without it: last output, orphans, files.
pub(crate) const CLEAR_UP: Duration = LEAVE_SLACK.saturating_sub(AFTER_KILL).saturating_sub(ON_THE_WAY);

/// The part of [`CLEAR_UP`] that is kept for files. A library of the ranks that hangs takes no more than the rest.
pub(crate) const REMOVALS: Duration = Duration::from_secs(2);

/// The scope of an ending.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Scope {
    /// One session.
    Session(SessionId),
    /// Everything on this node.
    All,
}

/// The progress of an ending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Daemons may end by themselves until then.
    Patience(Instant),
    /// Daemons have been sent SIGTERM, and have until then.
    Asked(Instant),
    /// Daemons have been sent SIGKILL, and have until then.
    Killed(Instant),
    /// Not even SIGKILL has ended all in time.
    Left,
}

/// The next action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Step {
    /// Wait for daemons, or for the next deadline.
    Wait,
    /// Send this to every daemon of the scope.
    Signal(Signal),
}

/// An end that is under way.
#[derive(Debug)]
pub(crate) struct Ending {
    pub(crate) scope: Scope,
    /// The requests to answer at the end.
    pub(crate) requests: Vec<RequestId>,
    stage: Stage,
    grace: Duration,
}

impl Ending {
    /// An end that begins `now`.
    pub(crate) fn new(
        scope: Scope,
        request: Option<RequestId>,
        now: Instant,
        patience: Duration,
        grace: Duration,
    ) -> Self {
        Self {
            scope,
            requests: request.into_iter().collect(),
            stage: Stage::Patience(now + bounded(patience)),
            grace,
        }
    }

    /// Merges a second request for the same end. The shorter times win.
    pub(crate) fn join(&mut self, other: Self) {
        self.requests.extend(other.requests);
        self.grace = self.grace.min(other.grace);
        if let (Stage::Patience(mine), Stage::Patience(theirs)) = (self.stage, other.stage) {
            self.stage = Stage::Patience(mine.min(theirs));
        }
    }

    /// Moves to the next stage if its time has come.
    ///
    /// `timer`: a deadline is due. Otherwise a daemon that has just started gets the signal of the stage, too.
    pub(crate) fn step(&mut self, now: Instant, timer: bool) -> Step {
        match self.stage {
            Stage::Patience(until) if now >= until => {
                self.stage = Stage::Asked(now + bounded(self.grace));
                Step::Signal(Signal::TERM)
            }
            Stage::Asked(until) if now >= until => {
                self.stage = Stage::Killed(now + AFTER_KILL);
                Step::Signal(Signal::KILL)
            }
            Stage::Patience(_) => Step::Wait,
            // A daemon that has started since the last step has no SIGTERM yet. A second SIGTERM to the others does no
            // harm, but a timer must not send it early.
            Stage::Asked(_) if !timer => Step::Signal(Signal::TERM),
            Stage::Asked(_) => Step::Wait,
            Stage::Killed(until) => {
                if now >= until {
                    self.stage = Stage::Left;
                }
                Step::Signal(Signal::KILL)
            }
            Stage::Left => Step::Signal(Signal::KILL),
        }
    }

    /// Whether the time for all of it is over: what lives now cannot be ended.
    pub(crate) fn is_left(&self) -> bool {
        self.stage == Stage::Left
    }

    /// When to step again.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match self.stage {
            Stage::Patience(until) | Stage::Asked(until) | Stage::Killed(until) => Some(until),
            Stage::Left => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn daemons_are_left_alone_then_asked_then_made() {
        let start = Instant::now();
        let mut ending = Ending::new(Scope::All, None, start, 2 * SECOND, 10 * SECOND);
        assert_eq!(ending.step(start, false), Step::Wait);
        assert_eq!(ending.deadline(), Some(start + 2 * SECOND));
        assert_eq!(ending.step(start + 2 * SECOND, true), Step::Signal(Signal::TERM));
        assert_eq!(ending.deadline(), Some(start + 12 * SECOND));
        assert_eq!(ending.step(start + 5 * SECOND, true), Step::Wait);
        assert_eq!(ending.step(start + 12 * SECOND, true), Step::Signal(Signal::KILL));
        let last = start + 12 * SECOND + AFTER_KILL;
        assert_eq!((ending.deadline(), ending.is_left()), (Some(last), false));
        assert_eq!(ending.step(last, true), Step::Signal(Signal::KILL));
        assert_eq!((ending.deadline(), ending.is_left()), (None, true));
        assert_eq!(ending.step(last, false), Step::Signal(Signal::KILL), "one may have started late");
    }

    #[test]
    fn a_second_request_hastens_the_first_and_both_are_answered() {
        let now = Instant::now();
        let mut ending = Ending::new(Scope::All, Some(RequestId(1)), now, 60 * SECOND, 10 * SECOND);
        ending.join(Ending::new(Scope::All, Some(RequestId(2)), now, Duration::ZERO, SECOND));
        assert_eq!(ending.requests, [RequestId(1), RequestId(2)]);
        assert_eq!(ending.step(now, false), Step::Signal(Signal::TERM));
        assert_eq!(ending.deadline(), Some(now + SECOND));
    }

    #[test]
    fn a_daemon_that_comes_up_late_gets_what_the_others_got() {
        let now = Instant::now();
        let mut ending = Ending::new(Scope::All, None, now, Duration::ZERO, SECOND);
        assert_eq!(ending.step(now, false), Step::Signal(Signal::TERM));
        assert_eq!(ending.step(now, false), Step::Signal(Signal::TERM));
        assert_eq!(ending.step(now + SECOND, true), Step::Signal(Signal::KILL));
        assert_eq!(ending.step(now + SECOND, false), Step::Signal(Signal::KILL));
    }
}
