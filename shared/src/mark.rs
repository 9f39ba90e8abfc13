//! The mark of an app: a variable in the environment of its ranks and daemons, inherited by all their descendants.
//!
//! A process that daemonizes leaves its parent, its process group and its session, but keeps its environment. So the
//! mark identifies its app, and shows whether that app still exists.
//!
//! Jobs that a rank submits inherit that environment, too, and so do processes that services start later for a rank.
//! They do not belong to the app. So a mark names the place where it was given. A process that bears it elsewhere, or
//! in another job, is left alone.

use std::fmt;
use std::str::FromStr;

use gantry_types::id::{AppId, Pid};

use crate::environ;

/// The variable that holds a [`Mark`].
pub const GANTRY_MARK: &str = "GANTRY_MARK";

/// The owner of a process. As text: `APP:PID:START:NAMESPACE:PLACE:JOB`, the last two in hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// The app.
    pub app: AppId,
    /// The process that has started the app's processes on this node.
    pub starter: Starter,
    /// The place where it was given.
    pub origin: Origin,
}

/// The place of a process, as digests that serve only for comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    /// The digest of the machine's boot and the process's control group.
    pub place: u64,
    /// The digest of the variables by which a workload manager names the job and the step; 0: there are none.
    pub job: u64,
}

impl Origin {
    /// The place of a process with the control groups `cgroup`, as in `/proc/PID/cgroup`, on a machine with this boot
    /// id.
    #[must_use]
    pub fn digest_place(boot: &[u8], cgroup: &[u8]) -> u64 {
        digest([boot, cgroup])
    }

    /// The job of a process with these job variables, in a fixed order.
    #[must_use]
    pub fn digest_job<'a>(variables: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> u64 {
        let mut variables = variables.into_iter().peekable();
        if variables.peek().is_none() {
            return 0;
        }
        digest(variables.flat_map(|(name, value)| [name.as_bytes(), value])).max(1)
    }

    /// Whether a mark that was given here counts there. A process may have dropped its job variables, but must not have
    /// those of another job.
    #[must_use]
    pub fn fits(&self, there: &Self) -> bool {
        self.place == there.place && (there.job == 0 || self.job == there.job)
    }
}

/// FNV-1a, which is sufficient to distinguish a few jobs. A byte that no text contains separates the parts.
fn digest<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> u64 {
    const BASIS: u64 = 0xCBF2_9CE4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01B3;
    let bytes = parts.into_iter().flat_map(|part| part.iter().chain(&[0]));
    bytes.fold(BASIS, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(PRIME))
}

/// The process that has started ranks or daemons: the agent, or a launcher's helper. Processes with its mark must not
/// outlive it for long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Starter {
    /// Its process.
    pub pid: Pid,
    /// When it started, in clock ticks after boot: with the pid it names one process.
    pub start_time: u64,
    /// The inode of the pid namespace of that pid.
    pub namespace: u64,
}

/// The text is not a valid mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("read the mark of an app")]
pub struct NotAMark;

impl Mark {
    /// The mark in an environment with the format of `/proc/PID/environ`.
    #[must_use]
    pub fn find(environment: &[u8]) -> Option<Self> {
        std::str::from_utf8(environ::value(environment, GANTRY_MARK)?).ok()?.parse().ok()
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Starter { pid, start_time, namespace } = self.starter;
        let Origin { place, job } = self.origin;
        write!(f, "{}:{pid}:{start_time}:{namespace}:{place:x}:{job:x}", self.app)
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
        let place = u64::from_str_radix(part()?, 16).map_err(|_| NotAMark)?;
        let job = u64::from_str_radix(part()?, 16).map_err(|_| NotAMark)?;
        if parts.next().is_some() {
            return Err(NotAMark);
        }
        let starter = Starter { pid, start_time, namespace };
        Ok(Self { app, starter, origin: Origin { place, job } })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark() -> Mark {
        let starter = Starter { pid: Pid::new(7).unwrap(), start_time: 99, namespace: 4_026_531_836 };
        Mark { app: "3kx9w0fz".parse().unwrap(), starter, origin: Origin { place: 0xab, job: 0 } }
    }

    #[test]
    fn a_mark_reads_back_and_anything_else_does_not() {
        let text = mark().to_string();
        assert_eq!(text, "3kx9w0fz:7:99:4026531836:ab:0");
        assert_eq!(text.parse(), Ok(mark()));
        for wrong in [
            "",
            "3kx9w0fz",
            "3kx9w0fz:0:99:1:a:0",
            "3kx9w0fz:7:99:1:a",
            "3kx9w0fz:7:99:1:a:0:",
            ":7:99:1:a:0",
        ] {
            assert_eq!(wrong.parse::<Mark>(), Err(NotAMark), "{wrong}");
        }
    }

    #[test]
    fn another_job_boot_or_control_group_is_no_place_for_a_mark() {
        let origin = |boot: &str, cgroup: &str, job: &[(&'static str, &str)]| Origin {
            place: Origin::digest_place(boot.as_bytes(), cgroup.as_bytes()),
            job: Origin::digest_job(job.iter().map(|(name, value)| (*name, value.as_bytes()))),
        };
        let (rank, step) = ([("JOB", "1"), ("STEP", "0")], "0::/jobs/job_1");
        let given = origin("b", step, &rank);
        assert!(given.fits(&given));
        assert!(given.fits(&origin("b", step, &[])), "it has dropped what names its job");
        assert!(!given.fits(&origin("b", step, &[("JOB", "2"), ("STEP", "0")])), "another job");
        assert!(!given.fits(&origin("b", step, &[("JOB", "1")])), "a batch script");
        assert!(!given.fits(&origin("b", step, &[("JOB", "1"), ("STEP", "1")])), "another step");
        assert!(!given.fits(&origin("c", step, &rank)), "another machine, or boot");
        assert!(!given.fits(&origin("b", "0::/system.slice/atd.service", &rank)), "another service");
        let alone = origin("b", step, &[]);
        assert!(alone.fits(&alone) && !alone.fits(&given), "a rank without a job has submitted one");
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
