//! `cti_pbs_ops_t`, which is ours.

use std::ffi::c_char;

use gantry_shared_capi::{enter, text};

use super::not_built_in;

/// `cti_pbs_ops_t`.
#[repr(C)]
pub(super) struct Ops {
    register_job: unsafe extern "C" fn(*const c_char) -> i64,
    register_job_wait: unsafe extern "C" fn(*const c_char, u32) -> i64,
}

pub(super) static OPS: Ops = Ops { register_job, register_job_wait };

/// # Safety
/// `job` is null or a string.
unsafe extern "C" fn register_job(job: *const c_char) -> i64 {
    enter("registerJob", 0, || {
        // SAFETY: our caller's word.
        unsafe { text::required_name(job, "the job") }?;
        Err(not_built_in("attaching to a job of PBS"))
    })
}

/// # Safety
/// `job` is null or a string.
unsafe extern "C" fn register_job_wait(job: *const c_char, _timeout_seconds: u32) -> i64 {
    enter("registerJobWait", 0, || {
        // SAFETY: our caller's word.
        unsafe { text::required_name(job, "the job") }?;
        Err(not_built_in("attaching to a job of PBS"))
    })
}
