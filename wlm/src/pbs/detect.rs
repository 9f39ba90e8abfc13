//! Detects PBS on this machine: this process is in a job, or jobs can be submitted from here.

use std::ffi::OsString;
use std::path::Path;

use super::tm::environment::{COOKIE, JOB, PORT};
use crate::Evidence;
use crate::host::Host;

/// The kernel's list of listening sockets. Source: proc(5).
const SOCKETS: &str = "/proc/net/tcp";

/// The code of the listening state.
const LISTENS: &str = "0A";

/// The variable with the path of PBS's configuration, and the default path. Source: pbs.conf(8B).
const CONFIGURATION: (&str, &str) = ("PBS_CONF_FILE", "/etc/pbs.conf");

/// Evidence that launches here go through PBS. Runs no program and sends no request.
pub(super) fn detect(host: &dyn Host) -> Option<Evidence> {
    inside(host).or_else(|| submits(host))
}

/// Evidence that this process is in a job whose mom can start other processes.
fn inside(host: &dyn Host) -> Option<Evidence> {
    let job = job(host)?;
    let port: u16 = host.env(PORT)?.to_str()?.parse().ok()?;
    let sockets = host.read(Path::new(SOCKETS)).ok()?;
    let listens = is_listened_to(&String::from_utf8_lossy(&sockets), port);
    listens.then(|| {
        Evidence(format!("PBS_JOBID is '{}', and a mom listens at port {port}", job.to_string_lossy()))
    })
}

/// The job of this process, if its environment has what the mom requires.
pub(super) fn job(host: &dyn Host) -> Option<OsString> {
    host.env(COOKIE)?;
    host.env(JOB)
}

/// Evidence that jobs can be submitted from here: the command, and the server's address.
fn submits(host: &dyn Host) -> Option<Evidence> {
    let qsub = host.find_in_path("qsub")?;
    let (variable, usual) = CONFIGURATION;
    let configuration = match host.env(variable) {
        Some(path) => format!("{variable} is '{}'", path.to_string_lossy()),
        None => host.read(Path::new(usual)).ok().map(|_| format!("{usual} is there"))?,
    };
    Some(Evidence(format!("{configuration}, and qsub is {}", qsub.display())))
}

/// Whether a port is in the listening state in `/proc/net/tcp`.
fn is_listened_to(sockets: &str, port: u16) -> bool {
    let local = format!(":{port:04X}");
    sockets.lines().skip(1).any(|line| {
        let mut words = line.split_whitespace();
        words.nth(1).is_some_and(|address| address.ends_with(&local)) && words.nth(1) == Some(LISTENS)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::fake::FakeHost;

    const LISTENING: &str = "  sl  local_address rem_address   st tx_queue rx_queue\n   0: 00000000:3A9B 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1\n   1: 0100007F:3A9C 0100007F:3A9B 01 00000000:00000000 00:00000000 00000000     0        0 1 1\n";

    fn in_job(port: &str) -> FakeHost {
        let job = FakeHost::default().with_env(JOB, "7.head").with_env(COOKIE, "AB").with_env(PORT, port);
        job.with_file(SOCKETS, LISTENING)
    }

    #[track_caller]
    fn check(host: &FakeHost, expected: Option<&str>) {
        assert_eq!(detect(host).map(|evidence| evidence.0).as_deref(), expected);
    }

    #[test]
    fn a_job_with_a_mom_is_one() {
        check(&in_job("15003"), Some("PBS_JOBID is '7.head', and a mom listens at port 15003"));
        // Connected, but not listening.
        check(&in_job("15004"), None);
        check(&FakeHost::default().with_env(JOB, "7.head"), None);
    }

    #[test]
    fn so_is_where_jobs_are_submitted() {
        let with_qsub =
            || FakeHost::default().with_env("PATH", "/opt/pbs/bin").with_file("/opt/pbs/bin/qsub", "");
        check(&with_qsub(), None);
        check(
            &with_qsub().with_file("/etc/pbs.conf", ""),
            Some("/etc/pbs.conf is there, and qsub is /opt/pbs/bin/qsub"),
        );
        check(
            &with_qsub().with_env("PBS_CONF_FILE", "/x"),
            Some("PBS_CONF_FILE is '/x', and qsub is /opt/pbs/bin/qsub"),
        );
    }
}
