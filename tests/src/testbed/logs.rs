//! The last lines of a bed's logs, for the report of a failure.

use std::fs;
use std::path::{Path, PathBuf};

use super::place::{HALL, Place};

/// Lines of each log in the report of a failure.
const LAST_LINES: usize = 8;

/// The last lines of each log of a bed that runs or has just failed: logs on this machine, and those of daemons on
/// their hosts.
pub(crate) fn of_bed(place: &Place) -> String {
    let hosts = place.config().map(|config| config.host_names()).unwrap_or_default();
    let mut text = tail(HALL, &place.log(HALL));
    for host in hosts {
        text.push_str(&tail(&host, &place.log(&host)));
        if let Some(init) = place.host(&host) {
            text.push_str(&of_host(&host, &PathBuf::from(format!("/proc/{init}/root"))));
        }
    }
    text
}

/// The last lines of the logs of a host's daemons; `root` is the host's own.
pub(crate) fn of_host(host: &str, root: &Path) -> String {
    let logs = ["slurmctld.log", "slurmd.log", "munge/munged.log", "pbs.log", "flux.log"];
    logs.iter().map(|log| tail(host, &root.join("var/log").join(log))).collect()
}

/// The last lines of a log, each after a line break and with the host's name. Empty if the log does not exist.
fn tail(host: &str, log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let name = log.file_name().unwrap_or_default().display();
    let last = &lines[lines.len().saturating_sub(LAST_LINES)..];
    last.iter().map(|line| format!("\n  {host} {name}: {line}")).collect()
}
