//! Why the kernel denies access to a process, and the remedy.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;

/// Explains that another process traces one.
pub(crate) fn traced_by(tracer: i32) -> String {
    format!("process {tracer} traces it already, as a debugger does")
}

/// Explains why a process that nobody traces cannot be traced.
pub(crate) fn explain(pid: i32, error: &io::Error) -> String {
    if error.raw_os_error() != Some(libc::EPERM) {
        return error.to_string();
    }
    if let Ok(meta) = fs::metadata(format!("/proc/{pid}")) {
        let own = nix::unistd::geteuid().as_raw();
        // /proc files of a process that is not dumpable belong to root.
        match meta.uid() {
            uid if uid == own => {}
            0 => return "it is root's, or must not be dumped: run gantry as root".to_owned(),
            uid => return format!("it belongs to user {uid}: run gantry as that user"),
        }
    }
    match fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").ok().as_deref().map(str::trim) {
        Some(scope @ ("1" | "2" | "3")) => {
            format!("the kernel forbids it: set kernel.yama.ptrace_scope to 0 there (now {scope})")
        }
        _ => "the kernel forbids it: a container or a security module may do so".to_owned(),
    }
}

/// The tracer of a process. Source: proc_pid_status(5).
pub(crate) fn tracer_of(pid: i32) -> Option<i32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("TracerPid:"))?;
    line.trim().parse().ok().filter(|tracer| *tracer != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_that_is_no_refusal_speaks_for_itself() {
        let error = io::Error::from_raw_os_error(libc::EIO);
        assert_eq!(explain(1, &error), error.to_string());
        assert_eq!(tracer_of(i32::try_from(std::process::id()).unwrap()), None);
    }
}
