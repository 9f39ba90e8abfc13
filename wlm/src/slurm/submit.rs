//! Submits batch jobs by sbatch, and reports its message if it refuses.

use std::ffi::OsString;
use std::path::Path;

use gantry_types::error::{Failure, Kind};

use super::ask::{ask, find_command, refused};
use super::cluster;
use super::command::words;
use super::exported::Exported;
use super::jobs::SlurmJobs;
use crate::caps::batch::{ANSWER_WITHIN, BatchJobs};
use crate::host::Host;
use crate::{Error, JobRef, Result, Submission};

impl BatchJobs for SlurmJobs {
    fn submit(&self, submission: &Submission, host: &dyn Host) -> Result<JobRef> {
        cluster::check_variable(host)?;
        let mut command = vec![find_command("sbatch", host)?, "--parsable".into()];
        command.extend(submission.args.iter().cloned());
        let mut env = submission.env.clone();
        if let Some(held) = &submission.held {
            let exported = Exported::find(submission, &held.script, host)?;
            // The last `--export` counts. With another PATH the script would find the real srun.
            command.extend([exported.with(&mut env)?, held.script.clone()]);
            env.push(("PATH".into(), put_in_front(held.launchers.as_ref(), &env, host)));
        }
        // With --wait, also from the script or by SBATCH_WAIT, sbatch stays until the job's end.
        let is_answer = |line: &str| parse_submitted(line).is_some();
        let said = host.ask_for_line(submission.cwd.as_ref(), &command, &env, is_answer, ANSWER_WITHIN);
        let said = said.map_err(|error| {
            let message = format!("cannot run sbatch in {}: {error}", submission.cwd.display());
            Error::Failed(Failure::new(Kind::LauncherFailed, message))
        })?;
        match parse_submitted(&said.stdout) {
            // The name of an array or a heterogeneous job is that of the whole.
            Some((job, None)) => Ok(JobRef(job.to_owned())),
            // sbatch names its own cluster too, if it was told that name.
            Some((job, Some(cluster))) if cluster::is_asked(cluster.as_ref(), host) => {
                Ok(JobRef(job.to_owned()))
            }
            Some((job, Some(cluster))) => Err(refuse_elsewhere(job, cluster, host)),
            None => Err(refused(&command, &said).unwrap_or_else(|| {
                Error::invalid_with(
                    format!("sbatch printed no job: '{}'", said.stdout.trim()),
                    "leave out options with which nothing is submitted",
                )
            })),
        }
    }

    fn check_cancel(&self, host: &dyn Host) -> Result<()> {
        find_command("scancel", host).map(drop)
    }

    fn cancel(&self, job: &JobRef, host: &dyn Host) -> Result<()> {
        run_cancel(&words(&["scancel", "--quiet", &job.0]), host)
    }
}

/// The job's PATH, with one more directory at the front.
fn put_in_front(dir: &Path, env: &[(OsString, OsString)], host: &dyn Host) -> OsString {
    let given = env.iter().rev().find(|(name, _)| name == "PATH").map(|(_, path)| path.clone());
    let mut path = dir.as_os_str().to_owned();
    if let Some(rest) = given.or_else(|| host.env("PATH")) {
        path.push(":");
        path.push(rest);
    }
    path
}

/// Any message means that the job was not cancelled.
fn run_cancel(command: &[OsString], host: &dyn Host) -> Result<()> {
    let said = ask(command, host)?;
    refused(command, &said).map_or(Ok(()), Err)
}

/// Cancels a job that was submitted to a named cluster. Without that name its number means another job.
fn refuse_elsewhere(job: &str, cluster: &str, host: &dyn Host) -> Error {
    let there = format!("--clusters={cluster}");
    let end = match run_cancel(&words(&["scancel", &there, "--quiet", job]), host) {
        Ok(()) => "it was cancelled".to_owned(),
        Err(error) => format!("it was not cancelled: {error}"),
    };
    Error::invalid_with(
        format!(
            "job {job} is in the cluster {cluster}, and gantry follows jobs of its own cluster only; {end}"
        ),
        format!(
            "leave out --clusters, in the script and as SBATCH_CLUSTERS too, or submit on a login node of {cluster}"
        ),
    )
}

/// The job's number in the output of `sbatch --parsable`, and its cluster's name if sbatch was told one: `7`, or
/// `7;cluster`.
fn parse_submitted(stdout: &str) -> Option<(&str, Option<&str>)> {
    stdout.lines().map(str::trim).find_map(|line| {
        let (job, cluster) = line.split_once(';').map_or((line, None), |(job, cluster)| (job, Some(cluster)));
        (!job.is_empty() && job.bytes().all(|byte| byte.is_ascii_digit())).then_some((job, cluster))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HeldScript;
    use crate::host::fake::FakeHost;

    #[track_caller]
    fn check(stdout: &str, stderr: &str, expected: std::result::Result<&str, &str>) {
        let host = FakeHost::default().with_env("PATH", "/bin").with_file("/bin/sbatch", "");
        let host = host.with_answer("/bin/sbatch --parsable -N2 job.sh", stdout, stderr);
        let submission = Submission {
            args: ["-N2", "job.sh"].map(OsString::from).to_vec(),
            held: None,
            env: Vec::new(),
            cwd: "/w".into(),
        };
        match (SlurmJobs.submit(&submission, &host), expected) {
            (Ok(job), Ok(expected)) => assert_eq!(job.0, expected),
            (Err(error), Err(expected)) => assert!(error.to_string().contains(expected), "{error}"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_job_or_sbatchs_own_words() {
        check("7\n", "", Ok("7"));
        check("3 jobs wait\n7\nyour balance is 3\n", "", Ok("7"));
        let words = "sbatch: error: Batch job submission failed: Invalid partition name specified";
        check("", words, Err(words));
        check("", words, Err("(command: /bin/sbatch --parsable -N2 job.sh)"));
        check("slurm 22.05.8\n", "", Err("sbatch printed no job"));
    }

    #[test]
    fn a_job_of_another_cluster_is_cancelled_there() {
        let submitted_with = |variable: &str, cancelled: &str, own: Option<&str>| {
            let host = FakeHost::default().with_env("PATH", "/bin").with_file("/bin/sbatch", "");
            let host = host.with_env("SLURM_CLUSTERS", variable);
            let host = host.with_answer("/bin/sbatch --parsable -Mgpu job.sh", "7;gpu\n", "");
            let host = host.with_file("/bin/scancel", "");
            let host = host.with_answer("/bin/scancel --clusters=gpu --quiet 7", "", cancelled);
            let with =
                |host: FakeHost, own| host.with_file("/etc/slurm/slurm.conf", format!("ClusterName={own}"));
            let host = own.into_iter().fold(host, with);
            let args = ["-Mgpu", "job.sh"].map(OsString::from).to_vec();
            SlurmJobs.submit(&Submission { args, held: None, env: Vec::new(), cwd: "/w".into() }, &host)
        };
        let submitted = |cancelled: &str, own| submitted_with("", cancelled, own);
        for own in [None, Some("cpu")] {
            let error = submitted("", own).unwrap_err().to_string();
            assert!(
                error.contains("job 7 is in the cluster gpu") && error.ends_with("it was cancelled"),
                "{error}"
            );
        }
        let words = "scancel: error: No cluster 'gpu' known by database.";
        let error = submitted(words, None).unwrap_err().to_string();
        assert!(error.contains("it was not cancelled: ") && error.contains(words), "{error}");
        assert_eq!(submitted("", Some("GPU")).unwrap().0, "7");
        // Of a cluster without a known name the variable tells which one all commands ask.
        assert_eq!(submitted_with("gpu", "", None).unwrap().0, "7");
    }

    #[test]
    fn no_job_is_submitted_that_could_not_be_attached_to() {
        let host = FakeHost::default().with_file("/etc/slurm/slurm.conf", "ClusterName=cpu");
        let host = host.with_env("SLURM_CLUSTERS", "gpu");
        let submission =
            Submission { args: vec!["job.sh".into()], held: None, env: Vec::new(), cwd: "/w".into() };
        let error = SlurmJobs.submit(&submission, &host).unwrap_err().to_string();
        assert!(error.starts_with("SLURM_CLUSTERS is 'gpu'"), "{error}");
    }

    #[test]
    fn a_held_script_comes_after_its_search_path() {
        let host = FakeHost::default().with_env("PATH", "/bin").with_file("/bin/sbatch", "");
        let line = "/bin/sbatch --parsable --export=ALL,A=1 --export=ALL,A=1,PATH job.sh";
        let host = host.with_answer(line, "7\n", "");
        let held = HeldScript { script: "job.sh".into(), launchers: "/p/held".into() };
        let submission = Submission {
            args: vec!["--export=ALL,A=1".into()],
            held: Some(held),
            env: Vec::new(),
            cwd: "/w".into(),
        };
        assert_eq!(SlurmJobs.submit(&submission, &host).unwrap().0, "7");
        let check = |env: &[(&str, &str)], expected: &str| {
            let env: Vec<_> = env.iter().map(|(name, value)| (name.into(), value.into())).collect();
            assert_eq!(put_in_front(Path::new("/p/held"), &env, &host), expected);
        };
        check(&[], "/p/held:/bin");
        check(&[("PATH", "/a"), ("PATH", "/b")], "/p/held:/b");
    }

    #[test]
    fn a_job_is_cancelled_by_its_number() {
        let check = |stderr: &str, expected: Option<bool>| {
            let host = FakeHost::default().with_env("PATH", "/bin").with_file("/bin/scancel", "");
            let host = host.with_answer("/bin/scancel --quiet 7", "", stderr);
            let again =
                SlurmJobs.cancel(&JobRef("7".to_owned()), &host).err().map(|error| error.is_temporary());
            assert_eq!(again, expected, "{stderr}");
        };
        check("", None);
        check("scancel: error: Kill job error on job id 7: Unable to contact slurm controller", Some(true));
        check("scancel: error: Kill job error on job id 7: Invalid job id specified", Some(false));
        check("scancel: error: Kill job error on job id 7: Access/permission denied", Some(false));
    }
}
