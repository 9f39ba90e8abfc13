//! `cti_localhost_ops_t`.

use std::ffi::c_char;

use gantry_shared_capi::text;

use super::register;

/// `cti_localhost_ops_t`.
#[repr(C)]
pub(super) struct Ops {
    register_job: unsafe extern "C" fn(*const c_char) -> i64,
}

pub(super) static OPS: Ops = Ops { register_job };

/// # Safety
/// `job` is null or a string.
unsafe extern "C" fn register_job(job: *const c_char) -> i64 {
    register("registerJob", || {
        // SAFETY: guaranteed by the caller.
        let job = unsafe { text::required_name(job, "the job") }?;
        Ok(format!("localhost:{job}"))
    })
}
