//! Calls that exist only with PBS, for tools that know this WLM.

use std::ffi::OsString;
use std::time::Duration;

use super::ask::{ask, refused};
use super::detect::job;
use super::place::read_environment;
use super::qstat::{Job, ask_job};
use super::tm::{Client, Environment, Framing, Task};
use crate::host::Host;
use crate::{Error, JobRef, Result};

/// Calls that exist only with PBS: `gantry_wlm::extras::<PbsExtras>(wlm)` returns them if PBS is used. The frontend's
/// information about an app contains its job's name.
#[derive(Debug, Clone, Copy)]
pub struct PbsExtras;

impl PbsExtras {
    /// PBS's record of a job, even of an ended one if PBS keeps it.
    ///
    /// # Errors
    /// PBS does not know the job, or its commands fail: their errors.
    pub fn job(&self, job: &JobRef, host: &dyn Host) -> Result<Job> {
        ask_job(job, host)
    }

    /// Makes PBS send a signal to a job's script, by name or number as in qsig. Signal an app's ranks through the app
    /// instead: its agents have started them.
    ///
    /// # Errors
    /// PBS refuses; its message.
    pub fn signal(&self, job: &JobRef, signal: &str, host: &dyn Host) -> Result<()> {
        let command: Vec<OsString> = ["qsig", "-s", signal, &job.0].into_iter().map(OsString::from).collect();
        let (command, said) = ask(&command, host)?;
        if said.stderr.trim().is_empty() { Ok(()) } else { Err(refused(&command, &said)) }
    }

    /// The tasks of this process's job, with their hosts. These are all tasks that were ever started, including the
    /// script, agents and launchers' ranks. A rank that an agent has started belongs to the agent's task.
    ///
    /// # Errors
    /// This process is not in a job: only its moms know its tasks, and they answer only its own processes. Or its mom
    /// does not answer.
    pub async fn tasks(&self, host: &dyn Host, timeout: Duration) -> Result<Vec<(String, Task)>> {
        if job(host).is_none() {
            let message = "only the moms of a job know its tasks, and they answer its own processes alone";
            return Err(Error::invalid_with(
                message,
                "ask in the job: in its script, or in what that starts",
            ));
        }
        let client = Client::connect(&read_environment(host)?, Framing::Packets, timeout).await?;
        let mut all: Vec<(String, Task)> = Vec::new();
        for node in client.nodes().all().to_vec() {
            let name = node.host.clone().unwrap_or_default();
            for task in client.task_info(node.id, timeout).await? {
                // A mom lists the tasks of its own host once for each of the host's nodes.
                if all.iter().all(|(_, known)| known.id != task.id) {
                    all.push((name.clone(), task));
                }
            }
        }
        Ok(all)
    }

    /// The place of this process in its job. A client of its task management needs it:
    /// [`tm::Client::connect`](super::tm::Client::connect).
    ///
    /// # Errors
    /// This process is not in a job, or the job's node file cannot be read.
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
        let found = |name| crate::extras::<PbsExtras>(crate::registry::find(name).unwrap()).is_some();
        assert!(found("pbs") && !found("slurm"));
        let host = FakeHost::default().with_env("PATH", "/bin").with_file("/bin/qstat", "");
        let (said, words) = ("{\"timestamp\": 1}", "qstat: Unknown Job Id 9.head");
        let unknown = host.with_answer("/bin/qstat -f -F json 9", said, words);
        let unknown = unknown.with_answer("/bin/qstat -x -f -F json 9", said, words);
        let error = PbsExtras.job(&JobRef("9".to_owned()), &unknown).unwrap_err();
        assert_eq!(error.to_string(), "PBS knows no job 9: qstat: Unknown Job Id 9.head");
    }

    #[tokio::test]
    async fn tasks_are_known_in_the_job_alone() {
        let asked = PbsExtras.tasks(&FakeHost::default(), Duration::from_secs(1)).await;
        assert!(asked.unwrap_err().to_string().contains("answer its own processes alone"));
    }

    #[test]
    fn a_signal_is_qsigs() {
        let host = FakeHost::default().with_env("PATH", "/bin").with_file("/bin/qsig", "");
        let host = host.with_answer("/bin/qsig -s USR1 9", "", "");
        let host = host.with_answer("/bin/qsig -s BAD 9", "", "qsig: Unknown or illegal signal 9.head");
        let ask = |signal| PbsExtras.signal(&JobRef("9".to_owned()), signal, &host);
        assert!(ask("USR1").is_ok());
        assert!(ask("BAD").unwrap_err().to_string().contains("illegal signal"));
    }
}
