//! `cti_pbs_ops_t`, which is ours.

use std::ffi::c_char;

use gantry_shared_capi::{Fault, enter, memory, text};
use gantry_types::error::Kind;

use super::{register, register_when_there};
use crate::process::process;

/// `cti_pbs_ops_t`.
#[repr(C)]
pub(super) struct Ops {
    register_job: unsafe extern "C" fn(*const c_char) -> i64,
    register_job_wait: unsafe extern "C" fn(*const c_char, u32) -> i64,
    get_job_id: extern "C" fn(i64) -> *mut c_char,
}

pub(super) static OPS: Ops = Ops { register_job, register_job_wait, get_job_id };

/// # Safety
/// `job` is null or a string.
unsafe fn target(job: *const c_char) -> Result<String, Fault> {
    // SAFETY: guaranteed by the caller.
    let job = unsafe { text::required_name(job, "the job") }?;
    Ok(format!("pbs:{job}"))
}

/// # Safety
/// `job` is null or a string.
unsafe extern "C" fn register_job(job: *const c_char) -> i64 {
    // SAFETY: guaranteed by the caller.
    register("registerJob", || unsafe { target(job) })
}

/// # Safety
/// `job` is null or a string.
unsafe extern "C" fn register_job_wait(job: *const c_char, timeout_seconds: u32) -> i64 {
    // SAFETY: guaranteed by the caller.
    register_when_there("registerJobWait", timeout_seconds, || unsafe { target(job) })
}

extern "C" fn get_job_id(app: i64) -> *mut c_char {
    enter("getJobId", std::ptr::null_mut(), || {
        let app = process().apps.get(app)?;
        if app.handle.wlm() != "pbs" {
            return Err(Fault::invalid("the application does not run under PBS"));
        }
        let job = app.handle.info().job;
        let job = job.ok_or_else(|| Fault::new(Kind::NotFound, "PBS has not told the job's id"))?;
        memory::string(job.as_bytes())
    })
}
