//! `cti_slurm_ops_t`.

use std::ffi::c_char;

use gantry_shared::error::Kind;
use gantry_shared_capi::memory::allocate;
use gantry_shared_capi::{Fault, enter};

use super::{not_built_in, register, register_when_there};
use crate::process::process;

/// `cti_srunProc_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SrunProc {
    job: u32,
    step: u32,
}

/// `cti_slurm_ops_t`.
#[repr(C)]
pub(super) struct Ops {
    get_job_info: extern "C" fn(libc::pid_t) -> *mut SrunProc,
    register_job_step: extern "C" fn(u32, u32) -> i64,
    get_srun_info: extern "C" fn(i64) -> *mut SrunProc,
    submit_batch_script:
        extern "C" fn(*const c_char, *const *const c_char, *const *const c_char) -> *mut SrunProc,
    register_job_step_wait: extern "C" fn(u32, u32, u32) -> i64,
}

pub(super) static OPS: Ops =
    Ops { get_job_info, register_job_step, get_srun_info, submit_batch_script, register_job_step_wait };

fn target(job: u32, step: u32) -> String {
    format!("slurm:{job}.{step}")
}

/// Job and step in the words of [`target`].
fn parse_target(target: &str) -> Option<SrunProc> {
    let (job, step) = target.strip_prefix("slurm:").unwrap_or(target).split_once('.')?;
    Some(SrunProc { job: job.parse().ok()?, step: step.parse().ok()? })
}

fn give(step: SrunProc) -> Result<*mut SrunProc, Fault> {
    let memory = allocate::<SrunProc>(1)?;
    // SAFETY: fresh memory of this size.
    unsafe { memory.write(step) };
    Ok(memory)
}

extern "C" fn get_job_info(_srun: libc::pid_t) -> *mut SrunProc {
    enter("getJobInfo", std::ptr::null_mut(), || Err(not_built_in("the job step of an srun")))
}

extern "C" fn register_job_step(job: u32, step: u32) -> i64 {
    register("registerJobStep", || Ok(target(job, step)))
}

extern "C" fn get_srun_info(app: i64) -> *mut SrunProc {
    enter("getSrunInfo", std::ptr::null_mut(), || {
        let app = process().apps.get(app)?;
        if app.handle.wlm() != "slurm" {
            return Err(Fault::new(Kind::Invalid, "the application does not run under Slurm"));
        }
        match app.target.as_deref().and_then(parse_target) {
            Some(step) => give(step),
            None => Err(not_built_in("the job step of an application that was launched")),
        }
    })
}

extern "C" fn submit_batch_script(
    _script: *const c_char,
    _args: *const *const c_char,
    _env: *const *const c_char,
) -> *mut SrunProc {
    enter("submitBatchScript", std::ptr::null_mut(), || Err(not_built_in("a held step of a batch script")))
}

extern "C" fn register_job_step_wait(job: u32, step: u32, timeout_seconds: u32) -> i64 {
    register_when_there("registerJobStepWait", timeout_seconds, || Ok(target(job, step)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_and_back() {
        let check = |text: &str, expected: Option<(u32, u32)>| {
            assert_eq!(parse_target(text).map(|it| (it.job, it.step)), expected, "{text}");
        };
        check(&target(7, 0), Some((7, 0)));
        check("7.1", Some((7, 1)));
        check("7", None);
        check("7.batch", None);
    }
}
