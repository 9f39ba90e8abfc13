//! What makes sense with PBS only, for tools that know that they run under it.

use super::place::read_environment;
use super::qstat::{Job, ask_job};
use super::tm::Environment;
use crate::host::Host;
use crate::{JobRef, Result};

/// Calls that make sense with PBS only: `gantry_wlm::extras::<PbsExtras>(wlm)` gives them where PBS is used. The name of an app's job is in what the frontend
/// tells of the app.
#[derive(Debug, Clone, Copy)]
pub struct PbsExtras;

impl PbsExtras {
    /// What PBS knows of a job, also of one that has ended if it remembers those.
    ///
    /// # Errors
    /// It knows none of that name; its commands do not answer: their words.
    pub fn job(&self, job: &JobRef, host: &dyn Host) -> Result<Job> {
        ask_job(job, host)
    }

    /// The place of this process in its job, to be a client of its task management: [`tm::Client::connect`](super::tm::Client::connect).
    ///
    /// # Errors
    /// It is in none; the job's node file cannot be read.
    pub fn environment(&self, host: &dyn Host) -> Result<Environment> {
        read_environment(host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::fake::FakeHost;

    #[test]
    fn only_pbs_has_them_and_unknown_jobs_are_told() {
        let found = |name| crate::extras::<PbsExtras>(crate::detect::find(name).unwrap()).is_some();
        assert!(found("pbs") && !found("slurm"));
        let host = FakeHost::default().with_env("PATH", "/bin").with_file("/bin/qstat", "");
        let line = "/bin/qstat -x -f -F json 9";
        let unknown = host.with_answer(line, "{\"timestamp\": 1}", "qstat: Unknown Job Id 9.head");
        let error = PbsExtras.job(&JobRef("9".to_owned()), &unknown).unwrap_err();
        assert_eq!(error.to_string(), "PBS knows no job 9: qstat: Unknown Job Id 9.head");
    }
}
