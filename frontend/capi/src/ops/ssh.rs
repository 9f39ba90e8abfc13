//! `cti_ssh_ops_t`.

use std::ffi::c_char;

use gantry_shared_capi::{enter, text};

use super::not_built_in;

/// `cti_ssh_ops_t`.
#[repr(C)]
pub(super) struct Ops {
    register_job: extern "C" fn(libc::pid_t) -> i64,
    register_remote_job: unsafe extern "C" fn(*const c_char, libc::pid_t) -> i64,
    register_launcher_pid: extern "C" fn(libc::pid_t) -> i64,
}

pub(super) static OPS: Ops = Ops { register_job, register_remote_job, register_launcher_pid };

extern "C" fn register_job(_launcher: libc::pid_t) -> i64 {
    enter("registerJob", 0, || Err(not_built_in("attaching to a launcher's ranks by ssh")))
}

/// # Safety
/// `hostname` is null or a string.
unsafe extern "C" fn register_remote_job(hostname: *const c_char, _launcher: libc::pid_t) -> i64 {
    enter("registerRemoteJob", 0, || {
        // SAFETY: our caller's word.
        unsafe { text::required_name(hostname, "the host's name") }?;
        Err(not_built_in("attaching to a launcher on another machine"))
    })
}

extern "C" fn register_launcher_pid(_launcher: libc::pid_t) -> i64 {
    enter("registerLauncherPid", 0, || Err(not_built_in("attaching to a launcher's ranks by ssh")))
}
