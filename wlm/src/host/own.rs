//! Processes of this machine by pid: whether they exist, and their owner.

use std::io;
use std::path::PathBuf;

use gantry_types::id::Pid;

use super::Host;
use crate::{Error, Result};

/// Refuses a process that does not exist or belongs to another user.
///
/// # Errors
/// The process does not exist, or belongs to another user.
pub(crate) fn check_process(pid: Pid, host: &dyn Host) -> Result<()> {
    let path = PathBuf::from(format!("/proc/{pid}/status"));
    let status = host.read(&path).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => {
            Error::not_found(format!("there is no process {pid} on {}", host.hostname()), None)
        }
        _ => Error::Read { path, source: e },
    })?;
    let owner = parse_uid(&status);
    if owner != Some(host.uid()) && host.uid() != 0 {
        return Err(Error::no_access(
            format!("process {pid} belongs to another user"),
            "only processes of your own can be attached to",
        ));
    }
    Ok(())
}

/// Whether the process belongs to this user. Root can read other users' processes, but must not run their code.
pub(crate) fn is_own_process(pid: Pid, host: &dyn Host) -> bool {
    let status = host.read(&PathBuf::from(format!("/proc/{pid}/status")));
    status.is_ok_and(|status| parse_uid(&status) == Some(host.uid()))
}

/// The effective user id in `/proc/PID/status`.
fn parse_uid(status: &[u8]) -> Option<u32> {
    let text = String::from_utf8_lossy(status);
    let line = text.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}
