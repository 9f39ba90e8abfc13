//! The data that a process needs for its mom: the variables that PBS gives to every process of a job. They are passed
//! in, never looked up here.

use std::net::{Ipv4Addr, SocketAddr};

use super::error::{Result, TmError};
use super::id::TaskId;
use super::request::{Caller, Cookie};

/// The variable of the job's id.
pub const JOB: &str = "PBS_JOBID";
/// The variable of the job's cookie.
pub const COOKIE: &str = "PBS_JOBCOOKIE";
/// The variable of the host's place in the job.
pub const HOST_INDEX: &str = "PBS_NODENUM";
/// The variable of the task's number, hexadecimal.
pub const TASK: &str = "PBS_TASKNUM";
/// The variable of the port where the mom listens.
pub const PORT: &str = "PBS_MOMPORT";
/// The variable of the file that names the host of every node.
pub const NODE_FILE: &str = "PBS_NODEFILE";

/// A process's place in a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Environment {
    /// The task that sends the requests.
    pub caller: Caller,
    /// The host's number in the job, which differs from that of a node; the script runs on 0.
    pub host_index: u32,
    /// The port where the host's mom listens.
    pub port: u16,
    /// The host of every node, where it is known: the lines of the node file.
    pub hosts: Option<Vec<String>>,
    /// This host's name, if known. Only a process that was attached to the job needs it.
    pub own_host: Option<String>,
}

impl Environment {
    /// Reads the variables of a process of the job.
    ///
    /// # Errors
    /// [`TmError::Environment`] for the first missing or malformed one.
    pub fn from_variables(get: impl Fn(&'static str) -> Option<Vec<u8>>) -> Result<Self> {
        let get = |variable: &'static str| {
            let set = get(variable).filter(|value| !value.is_empty());
            set.ok_or(TmError::Environment { variable, problem: "is not set" })
        };
        let job = get(JOB)?;
        let cookie = Cookie::new(get(COOKIE)?);
        let host_index = number(HOST_INDEX, &get(HOST_INDEX)?, 10)?;
        let task = TaskId(number(TASK, &get(TASK)?, 16)?);
        if task == TaskId::NONE {
            return Err(TmError::Environment { variable: TASK, problem: "is zero" });
        }
        let port = number(PORT, &get(PORT)?, 10)?;
        let port = u16::try_from(port).ok().filter(|port| *port != 0);
        let port = port.ok_or(TmError::Environment { variable: PORT, problem: "is not a port" })?;
        Ok(Self { caller: Caller { job, cookie, task }, host_index, port, hosts: None, own_host: None })
    }

    /// Adds the hosts of the node file, one per line.
    #[must_use]
    pub fn with_node_file(mut self, text: &str) -> Self {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        self.hosts = Some(lines.map(str::to_owned).collect());
        self
    }

    /// Adds the name of this host.
    #[must_use]
    pub fn on_host(mut self, name: impl Into<String>) -> Self {
        self.own_host = Some(name.into());
        self
    }

    /// The mom's address: on this host's loopback, whatever the host's name.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }
}

/// Whether a variable describes a process's own place in the job. A child with its parent's value could not use its mom
/// any more.
#[must_use]
pub fn is_of_one_task(name: &[u8]) -> bool {
    name.starts_with(b"PBS_")
}

fn number(variable: &'static str, text: &[u8], radix: u32) -> Result<u32> {
    let text = std::str::from_utf8(text).ok().map(str::trim).filter(|text| !text.starts_with('+'));
    let value = text.and_then(|text| u32::from_str_radix(text, radix).ok());
    value.ok_or(TmError::Environment { variable, problem: "is not a number" })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: [(&str, &str); 5] =
        [(JOB, "7.head"), (COOKIE, "ABCDEF"), (HOST_INDEX, "1"), (TASK, "8000000A"), (PORT, "15003")];

    fn read(change: (&str, &str)) -> Result<Environment> {
        Environment::from_variables(|name| {
            let value = GOOD.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
            let value = if change.0 == name { Some(change.1) } else { value };
            value.map(|value| value.as_bytes().to_vec())
        })
    }

    #[test]
    fn a_job_is_known_by_its_variables() {
        let environment = read(("", "")).unwrap().with_node_file("n001\nn001\n\nn002\n");
        assert_eq!(environment.caller.task, TaskId(0x8000_000A));
        assert_eq!(environment.address().to_string(), "127.0.0.1:15003");
        assert_eq!(
            environment.hosts.as_deref(),
            Some(&["n001".to_owned(), "n001".to_owned(), "n002".to_owned()][..])
        );
        assert!(!format!("{environment:?}").contains("ABCDEF"));
    }

    #[test]
    fn a_missing_variable_is_named() {
        for (change, expected) in [
            ((JOB, ""), "PBS_JOBID is not set"),
            ((COOKIE, ""), "PBS_JOBCOOKIE is not set"),
            ((HOST_INDEX, "-1"), "PBS_NODENUM is not a number"),
            ((HOST_INDEX, "+1"), "PBS_NODENUM is not a number"),
            ((TASK, "0"), "PBS_TASKNUM is zero"),
            ((TASK, "xyz"), "PBS_TASKNUM is not a number"),
            ((PORT, "0"), "PBS_MOMPORT is not a port"),
            ((PORT, "65536"), "PBS_MOMPORT is not a port"),
        ] {
            let text = read(change).unwrap_err().to_string();
            assert!(text.ends_with(expected), "{change:?}: {text}");
        }
    }
}
