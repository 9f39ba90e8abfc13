//! The mark of an app: a variable in the environment of its ranks and daemons, which all that they start inherits.
//!
//! A process that daemonizes leaves its parent, its process group and its session, but keeps its environment. So the mark tells whose it
//! is, and whether that app is still there.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::str::FromStr;

use crate::id::{AppId, Pid};

/// The variable that holds a [`Mark`].
pub const GANTRY_MARK: &str = "GANTRY_MARK";

/// Whose a process is. As text: `APP:PID:START:NAMESPACE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// The app.
    pub app: AppId,
    /// What has started the app's processes on this node.
    pub starter: Starter,
}

/// The process that has started ranks or daemons: the agent, or a launcher's own helper. What bears its mark must not outlive it for long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Starter {
    /// Its process.
    pub pid: Pid,
    /// When it started, in clock ticks after boot: with the pid it names one process.
    pub start_time: u64,
    /// The inode of the pid namespace in which the pid counts.
    pub namespace: u64,
}

/// A text that is no mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("read the mark of an app")]
pub struct NotAMark;

impl Mark {
    /// The mark in an environment as `/proc/PID/environ` has it.
    #[must_use]
    pub fn find(environment: &[u8]) -> Option<Self> {
        let value = |entry: &[u8]| {
            let value = entry.strip_prefix(GANTRY_MARK.as_bytes())?.strip_prefix(b"=")?;
            OsStr::from_bytes(value).to_str()?.parse().ok()
        };
        environment.split(|byte| *byte == 0).find_map(value)
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Starter { pid, start_time, namespace } = self.starter;
        write!(f, "{}:{pid}:{start_time}:{namespace}", self.app)
    }
}

impl FromStr for Mark {
    type Err = NotAMark;

    fn from_str(text: &str) -> Result<Self, NotAMark> {
        let mut parts = text.split(':');
        let mut part = || parts.next().ok_or(NotAMark);
        let app = part()?.parse().map_err(|_| NotAMark)?;
        let pid = part()?.parse().ok().and_then(Pid::new).ok_or(NotAMark)?;
        let start_time = part()?.parse().map_err(|_| NotAMark)?;
        let namespace = part()?.parse().map_err(|_| NotAMark)?;
        if parts.next().is_some() {
            return Err(NotAMark);
        }
        Ok(Self { app, starter: Starter { pid, start_time, namespace } })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark() -> Mark {
        let starter = Starter { pid: Pid::new(7).unwrap(), start_time: 99, namespace: 4_026_531_836 };
        Mark { app: "3kx9w0fz".parse().unwrap(), starter }
    }

    #[test]
    fn a_mark_reads_back_and_anything_else_does_not() {
        let text = mark().to_string();
        assert_eq!(text, "3kx9w0fz:7:99:4026531836");
        assert_eq!(text.parse(), Ok(mark()));
        for wrong in ["", "3kx9w0fz", "3kx9w0fz:0:99:1", "3kx9w0fz:7:99", "3kx9w0fz:7:99:1:", ":7:99:1"] {
            assert_eq!(wrong.parse::<Mark>(), Err(NotAMark), "{wrong}");
        }
    }

    #[test]
    fn a_mark_is_found_among_other_variables() {
        let check = |environment: String, expected| {
            let environment = environment.replace(' ', "\0");
            assert_eq!(Mark::find(environment.as_bytes()), expected, "{environment:?}");
        };
        check(format!("A=1 {GANTRY_MARK}={} B=2", mark()), Some(mark()));
        check(format!("X{GANTRY_MARK}={}", mark()), None);
        check(format!("{GANTRY_MARK}=nonsense"), None);
        check(String::new(), None);
    }
}
