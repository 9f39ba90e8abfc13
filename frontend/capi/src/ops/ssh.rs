//! `cti_ssh_ops_t`.

use std::ffi::c_char;

use gantry_shared_capi::{Fault, text};
use gantry_types::id::Pid;

use super::register;

/// `cti_ssh_ops_t`.
#[repr(C)]
pub(super) struct Ops {
    register_job: extern "C" fn(libc::pid_t) -> i64,
    register_remote_job: unsafe extern "C" fn(*const c_char, libc::pid_t) -> i64,
    register_launcher_pid: extern "C" fn(libc::pid_t) -> i64,
}

pub(super) static OPS: Ops = Ops { register_job, register_remote_job, register_launcher_pid };

fn check(pid: libc::pid_t) -> Result<Pid, Fault> {
    Pid::new(pid).ok_or_else(|| Fault::invalid(format!("{pid} is not a pid")))
}

extern "C" fn register_job(launcher: libc::pid_t) -> i64 {
    register("registerJob", || Ok(format!("ssh:{}", check(launcher)?)))
}

/// # Safety
/// `hostname` is null or a string.
unsafe extern "C" fn register_remote_job(hostname: *const c_char, launcher: libc::pid_t) -> i64 {
    register("registerRemoteJob", || {
        // SAFETY: guaranteed by the caller.
        let host = unsafe { text::required_name(hostname, "the host's name") }?;
        Ok(format!("ssh:{host}:{}", check(launcher)?))
    })
}

extern "C" fn register_launcher_pid(launcher: libc::pid_t) -> i64 {
    register("registerLauncherPid", || Ok(format!("ssh:{}", check(launcher)?)))
}
