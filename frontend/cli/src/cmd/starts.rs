//! When a command that looks again and again starts its daemons anew.

use std::time::Duration;

use gantry_types::error::Failure;
use tokio::time::Instant;

/// Why daemons start anew, and when. A backlog must not wait for the long pauses after daemons that did not stay: soon
/// there is no room for any message.
#[derive(Debug)]
pub(super) struct Reasons {
    /// One has ended, or a node was left out.
    lacks_daemon: Starts,
    /// A node takes no orders.
    backlog: Starts,
    /// Daemons that live for so long stay.
    limit: Duration,
}

impl Reasons {
    pub(super) fn new(first_pause: Duration, limit: Duration) -> Self {
        let starts = Starts::new(first_pause);
        Self { lacks_daemon: starts.clone(), backlog: starts, limit }
    }

    /// Whether a reason calls for new daemons now.
    pub(super) fn are_due(&mut self, lacks_daemon: bool, has_backlog: bool, now: Instant) -> bool {
        let for_one = lacks_daemon && self.lacks_daemon.is_due(now);
        let for_room = has_backlog && self.backlog.is_due(now);
        let are_due = for_one || for_room;
        if are_due {
            // A start for room gives every node another daemon, too.
            self.lacks_daemon.last = Some(now);
        }
        are_due
    }

    /// Daemons have started, so that there is room again.
    pub(super) fn succeeded(&mut self) {
        self.backlog.succeeded();
    }

    /// Daemons see all ranks.
    pub(super) fn all_seen(&mut self, now: Instant) {
        let last = self.lacks_daemon.last;
        if last.is_some_and(|last| now.saturating_duration_since(last) >= self.limit) {
            self.lacks_daemon.succeeded();
        }
    }
}

/// When daemons start anew for one reason. The movement of all ranks is unknown then, so the pause doubles while daemons
/// do not stay or cannot start.
#[derive(Debug, Clone)]
pub(super) struct Starts {
    first_pause: Duration,
    pause: Duration,
    last: Option<Instant>,
}

impl Starts {
    pub(super) fn new(first_pause: Duration) -> Self {
        Self { first_pause, pause: first_pause, last: None }
    }

    /// Whether to start daemons now.
    pub(super) fn is_due(&mut self, now: Instant) -> bool {
        let since = self.last.map(|last| now.saturating_duration_since(last));
        if since.is_some_and(|since| since < self.pause) {
            return false;
        }
        if since.is_some() {
            self.pause = self.pause.saturating_mul(2);
        }
        self.last = Some(now);
        true
    }

    pub(super) fn succeeded(&mut self) {
        *self = Self::new(self.first_pause);
    }

    /// Daemons could not start. The daemons that run get at least as much time as that took.
    pub(super) fn failed(&mut self, now: Instant) {
        let took = self.last.map(|last| now.saturating_duration_since(last));
        self.pause = self.pause.max(took.unwrap_or_default());
        self.last = Some(now);
    }
}

/// The note about new daemons that cannot start. The daemons that run go on.
pub(super) fn not_started(failure: &Failure) -> String {
    format!("daemons are not started anew: {}", failure.message())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);
    const PAUSE: Duration = Duration::from_secs(1);

    #[test]
    fn daemons_that_do_not_stay_start_more_and_more_seldom() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut starts = Reasons::new(PAUSE, LIMIT);
        let due: Vec<u64> = (0..=40).filter(|second| starts.are_due(true, false, at(*second))).collect();
        assert_eq!(due, [0, 1, 3, 7, 15, 31]);
        // They were seen, but not for long.
        starts.all_seen(at(40));
        assert!(!starts.are_due(true, false, at(40)));
        starts.all_seen(at(41));
        assert!(starts.are_due(true, false, at(41)) && starts.are_due(true, false, at(42)));
    }

    #[test]
    fn a_backlog_does_not_wait_for_daemons_that_do_not_stay() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut starts = Reasons::new(PAUSE, LIMIT);
        let due = |starts: &mut Reasons, has_backlog, seconds: std::ops::RangeInclusive<u64>| -> Vec<u64> {
            seconds.filter(|second| starts.are_due(true, has_backlog, at(*second))).collect()
        };
        assert_eq!(due(&mut starts, false, 0..=20), [0, 1, 3, 7, 15]);
        assert_eq!(due(&mut starts, true, 21..=29), [21, 22, 24, 28]);
        // They have started, also for the node that lacked one. Another node takes no orders later.
        starts.succeeded();
        assert!(due(&mut starts, false, 30..=40).is_empty());
        assert_eq!(due(&mut starts, true, 41..=42), [41, 42]);
        assert_eq!(due(&mut starts, false, 43..=60), [58]);
    }

    #[test]
    fn daemons_that_fail_slowly_leave_as_much_time_to_those_that_run() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut starts = Starts::new(PAUSE);
        assert!(starts.is_due(at(0)));
        starts.failed(at(60));
        assert!(!starts.is_due(at(61)) && !starts.is_due(at(119)) && starts.is_due(at(120)));
        starts.failed(at(121));
        assert!(!starts.is_due(at(240)) && starts.is_due(at(241)));
        starts.succeeded();
        assert!(starts.is_due(at(242)));
    }
}
