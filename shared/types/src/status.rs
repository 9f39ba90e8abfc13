//! The state of a rank between its start and its end, and its exit status.
//!
//! Events of a rank come from many sources (its agent, the launcher, a link that closes) and in any order. So one
//! function, [`RankState::next`], decides every transition.

use serde::{Deserialize, Serialize};

use crate::signal::Signal;

/// How a process ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum ExitStatus {
    /// It exited with that code.
    Code(i32),
    /// That signal killed it.
    Signal(Signal),
    /// It ended, and its exit status is unknown.
    Unknown,
}

impl ExitStatus {
    /// Converts a status of `waitpid(2)`. A process that has not ended (stopped, continued) is `Unknown`.
    #[must_use]
    pub fn from_wait_status(status: i32) -> Self {
        if libc::WIFEXITED(status) {
            return Self::Code(libc::WEXITSTATUS(status));
        }
        match Signal::new(libc::WTERMSIG(status)) {
            Some(signal) if libc::WIFSIGNALED(status) => Self::Signal(signal),
            _ => Self::Unknown,
        }
    }

    /// The exit code as a shell shows it: the code itself, 128 + n for signal n, `None` when unknown.
    ///
    /// A code outside 0..=255, which no wait status has but a launcher may report, becomes 255: cut to
    /// its low byte, a failure could read as success.
    #[must_use]
    pub fn code(self) -> Option<u8> {
        match self {
            Self::Code(code) => Some(u8::try_from(code).unwrap_or(u8::MAX)),
            Self::Signal(signal) => Some(u8::try_from(128 + signal.number()).unwrap_or(u8::MAX)),
            Self::Unknown => None,
        }
    }

    /// Whether it exited with code 0.
    #[must_use]
    pub fn is_success(self) -> bool {
        self == Self::Code(0)
    }
}

impl std::fmt::Display for ExitStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal(signal) => write!(f, "killed by {signal}"),
            Self::Unknown => f.write_str("exit status unknown"),
        }
    }
}

/// The exit code of an app: the highest of its ranks, with 128 + n for signal n, as launchers do.
///
/// `None` if it is unknown: no rank's status is known, or some are unknown and all others 0.
pub fn overall_code(statuses: impl IntoIterator<Item = ExitStatus>) -> Option<u8> {
    let (mut highest, mut unknown) = (None, false);
    for status in statuses {
        unknown |= status == ExitStatus::Unknown;
        highest = highest.max(status.code());
    }
    highest.filter(|&code| code > 0 || !unknown)
}

/// The state of a rank.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum RankState {
    /// Ordered, and not yet seen held or running.
    Starting,
    /// Stopped before its first instruction, as proven on its node.
    Held,
    /// Released, or never held.
    Running,
    /// Ended.
    Exited(ExitStatus),
    /// Its node or the link to it is gone; the rank may still run.
    Lost,
}

/// An event of a rank.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum RankEvent {
    /// It was proven to be stopped before its first instruction.
    Held,
    /// It runs and was not held: started so, or attached to.
    Started,
    /// It was released.
    Released,
    /// It ended.
    Exited(ExitStatus),
    /// Its node or the link to it is gone.
    Lost,
}

/// An event that cannot happen in the rank's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a rank in state {from:?} cannot see {event:?}")]
pub struct IllegalMove {
    /// The rank's state, which stays.
    pub from: RankState,
    /// The event.
    pub event: RankEvent,
}

impl RankState {
    /// The state after an event: the only place that knows the legal transitions.
    ///
    /// Several sources report an end. The first known status wins, a known status replaces an unknown one, and a rank
    /// that ended is not lost by the loss of its node.
    ///
    /// # Errors
    /// When the event cannot happen in this state; the state then stays as it is.
    pub fn next(self, event: RankEvent) -> Result<Self, IllegalMove> {
        use RankState::{Exited, Held, Lost, Running, Starting};
        match (self, event) {
            (Starting, RankEvent::Held) => Ok(Held),
            (Starting, RankEvent::Started) | (Held, RankEvent::Released) => Ok(Running),
            (Starting | Held | Running | Lost, RankEvent::Exited(status)) => Ok(Exited(status)),
            (Starting | Held | Running | Lost, RankEvent::Lost) => Ok(Lost),
            (Exited(ExitStatus::Unknown), RankEvent::Exited(status)) => Ok(Exited(status)),
            (Exited(_), RankEvent::Exited(_) | RankEvent::Lost) => Ok(self),
            (Starting, RankEvent::Released)
            | (Held, RankEvent::Held | RankEvent::Started)
            | (Running | Exited(_) | Lost, RankEvent::Held | RankEvent::Started | RankEvent::Released) => {
                Err(IllegalMove { from: self, event })
            }
        }
    }

    /// Whether the state is final: it exited or is lost.
    #[must_use]
    pub fn is_over(self) -> bool {
        matches!(self, Self::Exited(_) | Self::Lost)
    }

    /// How it ended, when it did.
    #[must_use]
    pub fn exit_status(self) -> Option<ExitStatus> {
        match self {
            Self::Exited(status) => Some(status),
            Self::Starting | Self::Held | Self::Running | Self::Lost => None,
        }
    }
}

/// Why the WLM ended something early.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndCause {
    /// The cause, in one word for programs.
    pub kind: CauseKind,
    /// The WLM's message.
    pub message: String,
}

/// The reason for which a WLM ended something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CauseKind {
    /// It was cancelled.
    Cancelled,
    /// Its time limit was reached.
    TimeLimit,
    /// A node failed.
    NodeFailed,
    /// It exceeded its memory limit.
    OutOfMemory,
    /// Another job took its nodes.
    Preempted,
}

impl EndCause {
    /// The more specific of two: a cancellation may be a consequence of the other causes.
    #[must_use]
    pub fn or_better(self, other: Self) -> Self {
        if self.kind == CauseKind::Cancelled { other } else { self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OK: ExitStatus = ExitStatus::Code(0);
    const KILLED: ExitStatus = ExitStatus::Signal(Signal::KILL);

    #[test]
    fn wait_statuses_are_read_as_waitpid_writes_them() {
        let check = |status: i32, expected: &str| {
            assert_eq!(ExitStatus::from_wait_status(status).to_string(), expected, "{status:#x}");
        };
        check(0, "exit code 0");
        check(3 << 8, "exit code 3");
        check(255 << 8, "exit code 255");
        check(9, "killed by SIGKILL");
        check(11 | 0x80, "killed by SIGSEGV");
        check(64, "killed by SIGRTMIN+30");
        check(19 << 8 | 0x7f, "exit status unknown");
        check(0xffff, "exit status unknown");
    }

    #[test]
    fn codes_are_those_of_a_shell_and_no_failure_reads_as_success() {
        let check =
            |status: ExitStatus, expected: Option<u8>| assert_eq!(status.code(), expected, "{status}");
        check(OK, Some(0));
        check(ExitStatus::Code(255), Some(255));
        check(ExitStatus::Code(256), Some(255));
        check(ExitStatus::Code(-1), Some(255));
        check(KILLED, Some(137));
        check(ExitStatus::Unknown, None);
        assert!(OK.is_success() && !KILLED.is_success() && !ExitStatus::Unknown.is_success());
    }

    #[test]
    fn the_highest_code_is_the_apps_code() {
        let check = |statuses: &[ExitStatus], expected: Option<u8>| {
            assert_eq!(overall_code(statuses.iter().copied()), expected, "{statuses:?}");
        };
        check(&[], None);
        check(&[OK, OK], Some(0));
        check(&[OK, ExitStatus::Code(3), ExitStatus::Code(1)], Some(3));
        check(&[ExitStatus::Code(3), KILLED, OK], Some(137));
        check(&[ExitStatus::Code(200), KILLED], Some(200));
        check(&[ExitStatus::Unknown, ExitStatus::Code(3)], Some(3));
        check(&[ExitStatus::Unknown, OK], None);
        check(&[ExitStatus::Unknown], None);
    }

    #[test]
    fn statuses_and_states_travel() {
        for state in [RankState::Held, RankState::Exited(KILLED), RankState::Exited(ExitStatus::Unknown)] {
            let bytes = postcard::to_stdvec(&state).unwrap();
            assert_eq!(postcard::from_bytes::<RankState>(&bytes).unwrap(), state);
        }
        assert_eq!(serde_json::to_string(&RankState::Exited(OK)).unwrap(), r#"{"Exited":{"Code":0}}"#);
    }

    /// Every state (two of them exited) against every event (two of them ends).
    #[test]
    fn every_pair_of_state_and_event_is_decided() {
        use RankState::{Exited, Held, Lost, Running, Starting};
        const GONE: ExitStatus = ExitStatus::Unknown;
        let events = [
            RankEvent::Held,
            RankEvent::Started,
            RankEvent::Released,
            RankEvent::Exited(KILLED),
            RankEvent::Exited(GONE),
            RankEvent::Lost,
        ];
        let (killed, gone) = (Some(Exited(KILLED)), Some(Exited(GONE)));
        let table = [
            (Starting, [Some(Held), Some(Running), None, killed, gone, Some(Lost)]),
            (Held, [None, None, Some(Running), killed, gone, Some(Lost)]),
            (Running, [None, None, None, killed, gone, Some(Lost)]),
            (Lost, [None, None, None, killed, gone, Some(Lost)]),
            (Exited(OK), [None, None, None, Some(Exited(OK)), Some(Exited(OK)), Some(Exited(OK))]),
            (Exited(GONE), [None, None, None, killed, gone, gone]),
        ];
        for (from, expected) in table {
            for (event, to) in events.into_iter().zip(expected) {
                assert_eq!(from.next(event), to.ok_or(IllegalMove { from, event }), "{from:?} {event:?}");
            }
            assert_eq!(from.is_over(), matches!(from, Exited(_) | Lost));
        }
        let illegal = Running.next(RankEvent::Held).unwrap_err();
        assert_eq!(illegal.to_string(), "a rank in state Running cannot see Held");
    }
}
