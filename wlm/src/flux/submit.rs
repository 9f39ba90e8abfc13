//! Submits batch jobs by `flux batch`, and reports its own message if it refuses.

use std::ffi::OsString;

use gantry_types::error::{Failure, Kind};

use super::ask::{Instance, explain, flux, refused};
use super::jobs::FluxJobs;
use super::reference::{JobId, Target};
use crate::caps::batch::{ANSWER_WITHIN, BatchJobs};
use crate::host::Host;
use crate::{Error, JobRef, Result, Submission};

impl BatchJobs for FluxJobs {
    fn submit(&self, submission: &Submission, host: &dyn Host) -> Result<JobRef> {
        if submission.held.is_some() {
            return Err(Error::invalid_with(
                "gantry cannot hold the first launch of a script for Flux: it would have to stand in the place of flux itself",
                "submit without the hold and attach, or write 'gantry launch --hold' in the script",
            ));
        }
        let words: Vec<OsString> =
            std::iter::once("batch".into()).chain(submission.args.iter().cloned()).collect();
        let command = flux(&words, host)?;
        // A site's own command may print more, and stay until the job's end.
        let is_answer = |line: &str| parse_submitted(line).is_some();
        let said =
            host.ask_for_line(submission.cwd.as_ref(), &command, &submission.env, is_answer, ANSWER_WITHIN);
        let said = said.map_err(|error| {
            let message = format!("cannot run flux batch in {}: {error}", submission.cwd.display());
            Error::Failed(Failure::new(Kind::LauncherFailed, message))
        })?;
        match parse_submitted(&said.stdout) {
            Some(job) => Ok(JobRef(job.to_string())),
            None if said.stderr.trim().is_empty() => Err(Error::invalid_with(
                format!("flux batch printed no job: '{}'", said.stdout.trim()),
                "leave out options with which nothing is submitted",
            )),
            None => Err(Error::Failed(explain(&command, &said))),
        }
    }

    fn cancel(&self, job: &JobRef, host: &dyn Host) -> Result<()> {
        let target: Target = job.0.parse()?;
        // Cancel a job inside of an instance there. This process may not know the instance's address at the time of the
        // cancellation.
        let mut words: Vec<OsString> = match target.instance_path() {
            Some(path) => ["proxy".into(), path.into(), "flux".into()].to_vec(),
            None => Vec::new(),
        };
        words.extend(["cancel".into(), target.job.to_string().into()]);
        let said = Instance::default().ask(&words, host)?;
        if said.stderr.trim().is_empty() {
            return Ok(());
        }
        words.insert(0, "flux".into());
        Err(refused(&words, &said))
    }
}

/// The job's id. `flux batch` prints nothing else, but a site's own may.
fn parse_submitted(stdout: &str) -> Option<JobId> {
    stdout.lines().find_map(|line| line.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HeldScript;
    use crate::host::fake::FakeHost;

    fn submission() -> Submission {
        let args = ["-N2", "job.sh"].map(OsString::from).to_vec();
        Submission { args, held: None, env: Vec::new(), cwd: "/w".into() }
    }

    #[track_caller]
    fn check(stdout: &str, stderr: &str, expected: std::result::Result<&str, &str>) {
        let host = FakeHost::default().with_env("PATH", "/bin").with_file("/bin/flux", "");
        let host = host.with_answer("/bin/flux batch -N2 job.sh", stdout, stderr);
        match (FluxJobs.submit(&submission(), &host), expected) {
            (Ok(job), Ok(expected)) => assert_eq!(job.0, expected),
            (Err(error), Err(expected)) => assert!(error.to_string().contains(expected), "{error}"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_job_or_fluxs_own_words() {
        check("ƒ5k97iNj\n", "", Ok("f5k97iNj"));
        check("2 jobs wait\nƒ5k97iNj\nyour balance is 3\n", "", Ok("f5k97iNj"));
        let words = "flux-batch: ERROR: 'x' is not a valid queue";
        check("", words, Err(words));
        check("{}\n", "", Err("flux batch printed no job"));
    }

    #[test]
    fn a_script_cannot_be_held() {
        let held = Some(HeldScript { script: "job.sh".into(), launchers: "/p".into() });
        let error = FluxJobs.submit(&Submission { held, ..submission() }, &FakeHost::default()).unwrap_err();
        assert!(error.hint().is_some_and(|hint| hint.contains("gantry launch --hold")), "{error}");
    }

    #[test]
    fn a_job_is_cancelled_where_it_is() {
        let check = |job: &str, command: &str, stderr: &str, expected: Option<bool>| {
            let host = FakeHost::default().with_env("PATH", "/bin").with_file("/bin/flux", "");
            let host = host.with_answer(command, "", stderr);
            let again =
                FluxJobs.cancel(&JobRef(job.to_owned()), &host).err().map(|error| error.is_temporary());
            assert_eq!(again, expected, "{stderr}");
        };
        check("f7", "/bin/flux cancel f7", "", None);
        check("f7/f2", "/bin/flux proxy f7 flux cancel f2", "", None);
        let ended = "flux-cancel: ERROR: f7: job is inactive";
        check("f7", "/bin/flux cancel f7", ended, Some(false));
        check(
            "f7",
            "/bin/flux cancel f7",
            "flux-cancel: ERROR: broker: Connection reset by peer",
            Some(true),
        );
    }
}
