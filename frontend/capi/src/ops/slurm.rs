//! `cti_slurm_ops_t`.

use std::ffi::{OsStr, OsString, c_char};
use std::future::Future;

use gantry_frontend::request::parse_env_string;
use gantry_shared_capi::memory::{allocate, release};
use gantry_shared_capi::{Fault, deadline, enter, text};
use gantry_types::error::Kind;
use gantry_types::id::Pid;
use gantry_wlm::host::Machine;
use gantry_wlm::slurm::{SlurmExtras, SrunStep};
use tokio::task::spawn_blocking;

use super::{register, register_when_there};
use crate::process::{fault, process};

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
        unsafe extern "C" fn(*const c_char, *const *const c_char, *const *const c_char) -> *mut SrunProc,
    register_job_step_wait: extern "C" fn(u32, u32, u32) -> i64,
}

pub(super) static OPS: Ops =
    Ops { get_job_info, register_job_step, get_srun_info, submit_batch_script, register_job_step_wait };

fn target(job: u32, step: u32) -> String {
    format!("slurm:{job}.{step}")
}

/// Queries Slurm, whose commands may be slow, on a thread of the library, and converts the step for C.
fn give(ask: impl FnOnce() -> gantry_wlm::Result<SrunStep> + Send + 'static) -> Result<*mut SrunProc, Fault> {
    give_from(async move { Ok(spawn_blocking(ask).await??) })
}

/// Waits for `finding` and converts the step for C. Nothing can fail after `finding` has succeeded.
fn give_from(
    finding: impl Future<Output = gantry_frontend::Result<SrunStep>> + Send + 'static,
) -> Result<*mut SrunProc, Fault> {
    let memory = allocate::<SrunProc>(1)?;
    match process().try_wait(finding) {
        Ok(step) => {
            // SAFETY: fresh memory of this size.
            unsafe { memory.write(SrunProc { job: step.job_id, step: step.step_id }) };
            Ok(memory)
        }
        Err(fault) => {
            // SAFETY: allocated above, and C has not got it.
            unsafe { release(memory) };
            Err(fault)
        }
    }
}

extern "C" fn get_job_info(srun: libc::pid_t) -> *mut SrunProc {
    enter("getJobInfo", std::ptr::null_mut(), || {
        let pid = Pid::new(srun).ok_or_else(|| Fault::invalid(format!("{srun} is not a pid")))?;
        give(move || SlurmExtras.step_of_srun(pid, &Machine))
    })
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
        let job = app.handle.info().job;
        let job = job.ok_or_else(|| Fault::new(Kind::NotFound, "Slurm has not told the step's id"))?;
        give(move || SlurmExtras.step_of_job(&job, &Machine))
    })
}

/// # Safety
/// Strings and lists of strings are null or valid as in the header.
unsafe extern "C" fn submit_batch_script(
    script: *const c_char,
    args: *const *const c_char,
    env: *const *const c_char,
) -> *mut SrunProc {
    enter("submitBatchScript", std::ptr::null_mut(), || {
        // SAFETY: guaranteed by the caller.
        let script = unsafe { text::required(script, "the script's path") }?.to_owned();
        // SAFETY: guaranteed by the caller.
        let args: Vec<OsString> = unsafe { text::list(args) }?.into_iter().map(OsStr::to_owned).collect();
        // SAFETY: guaranteed by the caller.
        let env = unsafe { text::list(env) }?;
        let env: Result<Vec<_>, _> = env.into_iter().map(parse_env_string).collect();
        let env = env.map_err(|error| fault(&error))?;
        let (frontend, deadline, queue) =
            (process().frontend(), deadline::of_launches(), deadline::of_queues());
        give_from(async move {
            let mut batch = frontend.submit_held(script, args, env, deadline).await?;
            if let Some(timeout) = queue {
                batch = batch.queue_timeout(timeout);
            }
            let find = |job: String| async move {
                Ok(spawn_blocking(move || SlurmExtras.step_of_job(&job, &Machine)).await??)
            };
            batch.hand_over(deadline, find).await
        })
    })
}

extern "C" fn register_job_step_wait(job: u32, step: u32, timeout_seconds: u32) -> i64 {
    register_when_there("registerJobStepWait", timeout_seconds, || Ok(target(job, step)))
}
