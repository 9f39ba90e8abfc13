//! Signals by number and by name, since users write `-s TERM`, the wire carries numbers and messages name them.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// Names and numbers on this platform; where two names share a number, the first one is printed.
const NAMES: [(&str, i32); 34] = [
    ("HUP", libc::SIGHUP),
    ("INT", libc::SIGINT),
    ("QUIT", libc::SIGQUIT),
    ("ILL", libc::SIGILL),
    ("TRAP", libc::SIGTRAP),
    ("ABRT", libc::SIGABRT),
    ("IOT", libc::SIGIOT),
    ("BUS", libc::SIGBUS),
    ("FPE", libc::SIGFPE),
    ("KILL", libc::SIGKILL),
    ("USR1", libc::SIGUSR1),
    ("SEGV", libc::SIGSEGV),
    ("USR2", libc::SIGUSR2),
    ("PIPE", libc::SIGPIPE),
    ("ALRM", libc::SIGALRM),
    ("TERM", libc::SIGTERM),
    ("STKFLT", libc::SIGSTKFLT),
    ("CHLD", libc::SIGCHLD),
    ("CLD", libc::SIGCHLD),
    ("CONT", libc::SIGCONT),
    ("STOP", libc::SIGSTOP),
    ("TSTP", libc::SIGTSTP),
    ("TTIN", libc::SIGTTIN),
    ("TTOU", libc::SIGTTOU),
    ("URG", libc::SIGURG),
    ("XCPU", libc::SIGXCPU),
    ("XFSZ", libc::SIGXFSZ),
    ("VTALRM", libc::SIGVTALRM),
    ("PROF", libc::SIGPROF),
    ("WINCH", libc::SIGWINCH),
    ("IO", libc::SIGIO),
    ("POLL", libc::SIGPOLL),
    ("PWR", libc::SIGPWR),
    ("SYS", libc::SIGSYS),
];

/// A signal, 0 to 64. Zero delivers nothing and asks only whether the process is there (`kill(2)`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "i32", into = "i32")]
pub struct Signal(i32);

impl Signal {
    /// Asks whether the process is there and may be signalled.
    pub const PROBE: Self = Self(0);
    /// The terminal went away.
    pub const HUP: Self = Self(libc::SIGHUP);
    /// Interrupt from the keyboard.
    pub const INT: Self = Self(libc::SIGINT);
    /// Ends without a chance to clean up.
    pub const KILL: Self = Self(libc::SIGKILL);
    /// Asks to end.
    pub const TERM: Self = Self(libc::SIGTERM);
    /// Goes on after a stop; releases a held rank.
    pub const CONT: Self = Self(libc::SIGCONT);
    /// Stops; cannot be caught.
    pub const STOP: Self = Self(libc::SIGSTOP);

    /// The largest number of a signal on Linux.
    const MAX: i32 = 64;

    /// The signal of that number, when there is one.
    #[must_use]
    pub const fn new(number: i32) -> Option<Self> {
        match number {
            0..=Self::MAX => Some(Self(number)),
            _ => None,
        }
    }

    /// The number, 0 to 64.
    #[must_use]
    pub const fn number(self) -> i32 {
        self.0
    }
}

/// The number or text is not a signal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no signal is called {0:?}, use a name as TERM or RTMIN+1 or a number from 0 to 64")]
pub struct NoSuchSignal(
    /// The given text.
    pub String,
);

impl TryFrom<i32> for Signal {
    type Error = NoSuchSignal;

    fn try_from(number: i32) -> Result<Self, NoSuchSignal> {
        Self::new(number).ok_or_else(|| NoSuchSignal(number.to_string()))
    }
}

impl From<Signal> for i32 {
    fn from(signal: Signal) -> Self {
        signal.0
    }
}

impl FromStr for Signal {
    type Err = NoSuchSignal;

    /// Reads `9`, `KILL`, `SIGKILL`, `sigterm`, `RTMIN+1`, `RTMAX-1`.
    fn from_str(text: &str) -> Result<Self, NoSuchSignal> {
        let upper = text.trim().to_ascii_uppercase();
        let name = upper.strip_prefix("SIG").unwrap_or(&upper);
        parse_number(name)
            .or_else(|| NAMES.iter().find(|entry| entry.0 == name).map(|entry| entry.1))
            .or_else(|| parse_real_time(name))
            .and_then(Self::new)
            .ok_or_else(|| NoSuchSignal(text.to_owned()))
    }
}

/// Reads digits and nothing else: the standard parser would take a sign too.
fn parse_number(text: &str) -> Option<i32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// Reads `RTMIN`, `RTMIN+n`, `RTMAX` and `RTMAX-n`, where the result is a real-time signal.
fn parse_real_time(name: &str) -> Option<i32> {
    let (min, max) = (libc::SIGRTMIN(), libc::SIGRTMAX());
    let offset = |text: &str, sign: char| match text {
        "" => Some(0),
        _ => text.strip_prefix(sign).and_then(parse_number),
    };
    let number = match name.strip_prefix("RTMIN") {
        Some(rest) => min.checked_add(offset(rest, '+')?)?,
        None => max.checked_sub(offset(name.strip_prefix("RTMAX")?, '-')?)?,
    };
    (min..=max).contains(&number).then_some(number)
}

impl fmt::Display for Signal {
    /// Writes `SIGKILL`, `SIGRTMIN+1`, or `SIG0` where the number has no name; each reads back.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let real_time = self.0 - libc::SIGRTMIN();
        let name = match NAMES.iter().find(|entry| entry.1 == self.0) {
            Some((name, _)) => format!("SIG{name}"),
            None if real_time == 0 => "SIGRTMIN".to_owned(),
            None if real_time > 0 => format!("SIGRTMIN+{real_time}"),
            None => format!("SIG{}", self.0),
        };
        f.pad(&name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_read_in_every_usual_spelling() {
        let check = |text: &str, expected: i32| {
            assert_eq!(text.parse::<Signal>().map(Signal::number), Ok(expected), "{text:?}");
        };
        check("9", 9);
        check("KILL", libc::SIGKILL);
        check("SIGKILL", libc::SIGKILL);
        check("sigterm", libc::SIGTERM);
        check(" Term ", libc::SIGTERM);
        check("0", 0);
        check("64", 64);
        check("POLL", libc::SIGIO);
        check("CLD", libc::SIGCHLD);
        check("RTMIN", libc::SIGRTMIN());
        check("RTMIN+1", libc::SIGRTMIN() + 1);
        check("SIGRTMAX-2", libc::SIGRTMAX() - 2);
        check("rtmax", libc::SIGRTMAX());
    }

    #[test]
    fn an_invalid_signal_is_refused() {
        let texts =
            ["", "SIG", "65", "-1", "+9", "FOO", "SIGSIGKILL", "RTMIN-1", "RTMIN+99", "RTMIN+", "RTMAX+1"];
        for text in texts.into_iter().chain([
            "RTMIN+9999999999",
            "99999999999",
            "SIG 9",
            "RTMAX-40",
            "RTMAX-2147483647",
        ]) {
            assert_eq!(text.parse::<Signal>(), Err(NoSuchSignal(text.to_owned())));
        }
        assert!(
            "KILLL".parse::<Signal>().unwrap_err().to_string().starts_with("no signal is called \"KILLL\",")
        );
    }

    #[test]
    fn every_signal_prints_and_reads_back() {
        for signal in (0..=64).filter_map(Signal::new) {
            assert_eq!(signal.to_string().parse(), Ok(signal));
        }
        assert_eq!(Signal::KILL.to_string(), "SIGKILL");
        assert_eq!(Signal::PROBE.to_string(), "SIG0");
        assert_eq!(Signal(libc::SIGRTMIN() + 1).to_string(), "SIGRTMIN+1");
        assert_eq!(Signal(libc::SIGABRT).to_string(), "SIGABRT");
    }

    #[test]
    fn signals_travel_as_numbers_and_are_checked_on_arrival() {
        assert_eq!(serde_json::to_string(&Signal::TERM).unwrap(), "15");
        assert_eq!(serde_json::from_str::<Signal>("15").unwrap(), Signal::TERM);
        assert!(serde_json::from_str::<Signal>("65").is_err());
        assert!(serde_json::from_str::<Signal>("-1").is_err());
    }
}
