//! `cti_flux_ops_t`.

use std::ffi::c_char;

use gantry_shared_capi::{Fault, enter, memory, text};
use gantry_types::id::Pid;
use gantry_wlm::flux::FluxExtras;
use gantry_wlm::host::Machine;

use super::{register, register_when_there};

/// `cti_flux_ops_t`.
#[repr(C)]
pub(super) struct Ops {
    register_job: unsafe extern "C" fn(*const c_char) -> i64,
    get_job_id: extern "C" fn(libc::pid_t) -> *mut c_char,
    register_job_wait: unsafe extern "C" fn(*const c_char, u32) -> i64,
}

pub(super) static OPS: Ops = Ops { register_job, get_job_id, register_job_wait };

/// # Safety
/// `job` is null or a string.
unsafe fn target(job: *const c_char) -> Result<String, Fault> {
    // SAFETY: our caller's word.
    let job = unsafe { text::required_name(job, "the job") }?;
    Ok(format!("flux:{job}"))
}

/// # Safety
/// `job` is null or a string.
unsafe extern "C" fn register_job(job: *const c_char) -> i64 {
    // SAFETY: our caller's word.
    register("registerJob", || unsafe { target(job) })
}

/// # Safety
/// `job` is null or a string.
unsafe extern "C" fn register_job_wait(job: *const c_char, timeout_seconds: u32) -> i64 {
    // SAFETY: our caller's word.
    register_when_there("registerJobWait", timeout_seconds, || unsafe { target(job) })
}

extern "C" fn get_job_id(attach: libc::pid_t) -> *mut c_char {
    enter("getJobid", std::ptr::null_mut(), || {
        let pid = Pid::new(attach).ok_or_else(|| Fault::invalid(format!("{attach} is not a pid")))?;
        let job = FluxExtras.job_of_attach(pid, &Machine);
        let job = job.map_err(|error| Fault::of(error.kind(), &error, error.hint().as_deref()))?;
        memory::string(job.to_string().as_bytes())
    })
}
