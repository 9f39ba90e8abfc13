//! Submits batch jobs by sbatch, and reports its message if it refuses.

use std::ffi::OsString;
use std::path::Path;

use gantry_types::error::{Failure, Kind};

use super::ask::{PATIENCE, find_command, refused};
use super::command::words;
use crate::host::Host;
use crate::{Error, JobRef, Result, Submission};

/// Submits a job. The name of an array or a heterogeneous job is that of the whole.
///
/// # Errors
/// There is no sbatch; it refuses.
pub(super) fn submit(submission: &Submission, host: &dyn Host) -> Result<JobRef> {
    let mut command = vec![find_command("sbatch", host)?, "--parsable".into()];
    command.extend(submission.args.iter().cloned());
    let mut env = submission.env.clone();
    if let Some(held) = &submission.held {
        // The last `--export` counts. Without all variables the script would find the real srun.
        command.extend(["--export=ALL".into(), held.script.clone()]);
        env.push(("PATH".into(), put_in_front(&held.launchers, &env, host)));
    }
    let said = host.ask_in_with(&submission.cwd, &command, &env, PATIENCE).map_err(|error| {
        let message = format!("cannot run sbatch in {}: {error}", submission.cwd.display());
        Error::Refused(Failure::new(Kind::LauncherFailed, message))
    })?;
    match parse_submitted(&said.stdout) {
        Some(job) => Ok(JobRef(job.to_owned())),
        None => Err(refused(&command, &said).unwrap_or_else(|| {
            Error::invalid_with(
                format!("sbatch printed no job: '{}'", said.stdout.trim()),
                "leave out options with which nothing is submitted",
            )
        })),
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

/// The program that cancels jobs.
///
/// # Errors
/// There is no scancel.
pub(super) fn find_cancel(host: &dyn Host) -> Result<OsString> {
    find_command("scancel", host)
}

/// The command that cancels a job.
///
/// # Errors
/// There is no scancel.
pub(super) fn plan_cancel(job: &JobRef, host: &dyn Host) -> Result<Vec<OsString>> {
    let mut command = vec![find_cancel(host)?];
    command.extend(words(&["--quiet", &job.0]));
    Ok(command)
}

/// The job's number in the output of `sbatch --parsable`: `7`, or with a cluster's name `7;cluster`.
fn parse_submitted(stdout: &str) -> Option<&str> {
    let line = stdout.lines().last()?.trim();
    let job = line.split_once(';').map_or(line, |(job, _)| job);
    (!job.is_empty() && job.bytes().all(|byte| byte.is_ascii_digit())).then_some(job)
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
        match (submit(&submission, &host), expected) {
            (Ok(job), Ok(expected)) => assert_eq!(job.0, expected),
            (Err(error), Err(expected)) => assert!(error.to_string().contains(expected), "{error}"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_job_or_sbatchs_own_words() {
        check("7\n", "", Ok("7"));
        check("7;there\n", "sbatch: a word\n", Ok("7"));
        let words = "sbatch: error: Batch job submission failed: Invalid partition name specified";
        check("", words, Err(words));
        check("", words, Err("(command: /bin/sbatch --parsable -N2 job.sh)"));
        check("slurm 22.05.8\n", "", Err("sbatch printed no job"));
    }

    #[test]
    fn a_held_script_comes_after_its_search_path() {
        let host = FakeHost::default().with_env("PATH", "/bin").with_file("/bin/sbatch", "");
        let host = host.with_answer("/bin/sbatch --parsable --export=NONE --export=ALL job.sh", "7\n", "");
        let held = HeldScript { script: "job.sh".into(), launchers: "/p/held".into() };
        let submission = Submission {
            args: vec!["--export=NONE".into()],
            held: Some(held),
            env: Vec::new(),
            cwd: "/w".into(),
        };
        assert_eq!(submit(&submission, &host).unwrap().0, "7");
        let check = |env: &[(&str, &str)], expected: &str| {
            let env: Vec<_> = env.iter().map(|(name, value)| (name.into(), value.into())).collect();
            assert_eq!(put_in_front(Path::new("/p/held"), &env, &host), expected);
        };
        check(&[], "/p/held:/bin");
        check(&[("PATH", "/a"), ("PATH", "/b")], "/p/held:/b");
    }

    #[test]
    fn a_job_is_cancelled_by_its_number() {
        let host = FakeHost::default().with_env("PATH", "/bin").with_file("/bin/scancel", "");
        let command = plan_cancel(&JobRef("7".to_owned()), &host).unwrap();
        assert_eq!(command, ["/bin/scancel", "--quiet", "7"].map(OsString::from));
    }
}
