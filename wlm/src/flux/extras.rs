//! Calls that exist only for Flux, for tools that are aware of it.

use std::path::Path;

use gantry_types::id::Pid;

use super::ask::Instance;
use super::job::Job;
use super::reference::{JobId, Target};
use crate::host::Host;
use crate::{Error, JobRef, Result};

/// Calls that exist only for Flux. `gantry_wlm::extras::<FluxExtras>(wlm)` returns them if Flux is in use.
///
/// To attach to a job, with or without waiting for it, name it to the frontend like any other target: `flux:fA1b2`.
#[derive(Debug, Clone, Copy)]
pub struct FluxExtras;

impl FluxExtras {
    /// The job of a `flux run` or `flux job attach` with that pid on this machine. The process continues.
    ///
    /// # Errors
    /// There is no such process, it is another command, or it has no job yet.
    pub fn job_of_attach(&self, pid: Pid, host: &dyn Host) -> Result<JobId> {
        let line = host
            .read(Path::new(&format!("/proc/{pid}/cmdline")))
            .map_err(|_| Error::not_found(format!("there is no process {pid}"), None))?;
        let words: Vec<String> =
            line.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect();
        let is_attach = words.iter().any(|word| word == "attach")
            && words.first().is_some_and(|program| program.contains("flux"));
        let job = words.iter().rev().find(|word| !word.is_empty()).filter(|_| is_attach);
        job.and_then(|job| job.parse().ok()).ok_or_else(|| {
            Error::invalid_with(
                format!("process {pid} is attached to no job of Flux"),
                "name the pid of 'flux run' or 'flux job attach', or the job itself",
            )
        })
    }

    /// The record that Flux has of a job.
    ///
    /// # Errors
    /// Flux does not know the job: its message.
    pub fn job(&self, job: &JobRef, host: &dyn Host) -> Result<Job> {
        let target: Target = job.0.parse()?;
        Instance::of(&target, host)?.ask_job(target.job, host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::fake::FakeHost;

    #[test]
    fn what_flux_run_becomes_names_its_job() {
        let host = FakeHost::default()
            .with_file("/proc/40/cmdline", "flux-job\0attach\0--unbuffered\0ƒ5k97iNj\0")
            .with_file("/proc/41/cmdline", "python3\0/opt/flux-run.py\0-n1\0app\0");
        let ask = |pid: i32| FluxExtras.job_of_attach(Pid::new(pid).unwrap(), &host);
        assert_eq!(ask(40).unwrap().to_string(), "f5k97iNj");
        assert!(ask(41).unwrap_err().to_string().contains("attached to no job"));
        assert!(ask(42).unwrap_err().to_string().contains("no process 42"));
    }

    #[test]
    fn a_job_is_as_flux_has_recorded_it() {
        let record =
            r#"{"id": 6, "userid": 1000, "state": 16, "name": "heat", "queue": "debug", "nodelist": "n1"}"#;
        let host = FakeHost::default().with_env("PATH", "/bin").with_file("/bin/flux", "");
        let host = host.with_answer("/bin/flux job list-ids f7", record, "");
        let ask = |name: &str| FluxExtras.job(&JobRef(name.to_owned()), &host);
        let job = ask("f7").unwrap();
        assert_eq!((job.id, job.name.as_str(), job.queue.as_deref()), (6, "heat", Some("debug")));
        assert_eq!((job.state_word(), job.nodelist.as_str()), ("RUN", "n1"));
        assert!(ask("what").unwrap_err().to_string().contains("no id of a job of Flux"));
    }

    #[test]
    fn only_flux_has_them() {
        let found = |name| crate::extras::<FluxExtras>(crate::registry::find(name).unwrap()).is_some();
        assert!(found("flux") && !found("localhost"));
    }
}
