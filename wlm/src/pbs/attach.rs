//! Attaches to a running job. The server names the job's first host. There, by ssh, a program of gantry acts on
//! behalf of the job's script. It reads the required data, above all the job's cookie, from the script's variables,
//! which the kernel shows only to the job's owner. Inside the job no further help is needed.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gantry_shared::environ;
use gantry_shared::wire::hold::to_hex;
use gantry_types::error::{Failure, Kind};
use gantry_types::id::Pid;
use gantry_types::launch::SendAgent;
use zeroize::Zeroizing;

use super::detect;
use super::look::{look, parse_told};
use super::processes::{SCRIPT, find};
use super::qstat::{ask_job, short_name};
use super::tm::environment::{JOB, is_of_one_task};
use crate::aside::aside;
use crate::caps::queue::STARTER;
use crate::host::Host;
use crate::ssh::remote;
use crate::{Adoption, AgentCommand, AppRef, Error, JobPhase, JobRef, ProcessOwner, Result, StepStart};

/// The message for a job whose script has not started.
const NOT_BEGUN: &str = "its script has not begun";

/// The timeout for a look, including all hosts of the job and the connection.
const PATIENCE: Duration = Duration::from_secs(60);

/// The place of a job's script.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Script {
    job: JobRef,
    owner: String,
    host: String,
    /// The session of its login shell. 0: the server does not know it yet.
    session: i32,
}

/// Finds the ranks of a job.
///
/// # Errors
/// [`Error::NotYet`]: it waits, or runs nothing yet. PBS does not know the job, or it has ended. Its first host refuses
/// the login.
pub(super) async fn adopt(job: &JobRef, agent: &Path, host: &dyn Host) -> Result<Adoption> {
    let program = agent.with_file_name(STARTER);
    if let Some(own) = find_own(job, host) {
        let placement = look(&program, host).await?;
        return Ok(Adoption { job: own, placement, marks: None });
    }
    let script = find_script(job, host)?;
    let (said, words) =
        remote::ask(&script.host, &build_words(&script, agent, "look")?, agent, PATIENCE, host)?;
    let placement = parse_told(&said).unwrap_or_else(|| Err(explain(&script, &words)))?;
    Ok(Adoption { job: script.job, placement, marks: None })
}

/// Starts agents for the job, if this process is not in that job. False: it is.
///
/// # Errors
/// As [`adopt`], and the guard cannot start a process.
pub(super) async fn start_agents(
    app: &AppRef,
    agent: &AgentCommand,
    host: &dyn Host,
    owner: &dyn ProcessOwner,
) -> Result<bool> {
    let not_own = app.job.as_ref().filter(|job| find_own(job, host).is_none());
    let Some(job) = not_own.cloned() else { return Ok(false) };
    if agent.send == SendAgent::Always {
        let hint = "have gantry where the job's hosts see it, or attach from within the job";
        return Err(Error::invalid_with("the agent is not sent to a job's hosts from elsewhere", hint));
    }
    let script = aside(host, move |host| find_script(&job, host)).await?;
    let words = build_words(&script, &agent.program, "start")?;
    let argv = remote::build_command(&script.host, &words, &agent.program, host)?;
    let ticket = Zeroizing::new(agent.ticket("")?);
    let ticket = build_input(&to_hex(&ticket), &app.hosts);
    owner.start_step(StepStart { argv, env: remote::build_environment(host), ticket }).await?;
    Ok(true)
}

/// The variables with which to act for `job`: those of the process `pid`, or of any process of the script.
///
/// # Errors
/// The process belongs to another user, has ended, has not started, or is in another job.
pub(super) fn read_variables(
    job: &JobRef,
    pid: Option<Pid>,
    host: &dyn Host,
) -> Result<Vec<(OsString, OsString)>> {
    let of_script = || find(job.0.as_bytes(), host).into_iter().find(|it| it.task == SCRIPT).map(|it| it.pid);
    let Some(pid) = pid.or_else(of_script) else {
        return Err(not_yet(format!("{NOT_BEGUN} on {}", host.hostname()), false));
    };
    let path = PathBuf::from(format!("/proc/{pid}/environ"));
    let read = host.read(&path).map_err(|source| match source.kind() {
        io::ErrorKind::PermissionDenied => Error::no_access(
            format!("job {} belongs to another user", job.0),
            "only the submitter of a job can attach to it",
        ),
        io::ErrorKind::NotFound => {
            Error::Failed(Failure::new(Kind::Gone, format!("the script of job {} has ended", job.0)))
        }
        _ => Error::Read { path: path.clone(), source },
    })?;
    if environ::value(&read, JOB) != Some(job.0.as_bytes()) {
        let message = format!("process {pid} on {} is not in job {}", host.hostname(), job.0);
        return Err(Error::not_found(message, None));
    }
    let entries = environ::entries(&read).filter(|entry| is_of_one_task(entry));
    let pairs = entries.filter_map(|entry| {
        let at = entry.iter().position(|byte| *byte == b'=')?;
        Some((OsString::from_vec(entry[..at].to_vec()), OsString::from_vec(entry[at + 1..].to_vec())))
    });
    Ok(pairs.collect())
}

/// The full name of this process's own job, if `job` means it. Users omit the server's name.
fn find_own(job: &JobRef, host: &dyn Host) -> Option<JobRef> {
    let own = detect::job(host)?.into_string().ok()?;
    let is_meant = own == job.0 || own.split('.').next() == Some(job.0.as_str());
    is_meant.then_some(JobRef(own))
}

fn find_script(job: &JobRef, host: &dyn Host) -> Result<Script> {
    if job.0.contains("[]") {
        let hint = format!("name one of them, as {}: 'qstat -t' lists them", job.0.replace("[]", "[1]"));
        return Err(Error::invalid_with(format!("{} is an array of many jobs", job.0), hint));
    }
    let found = ask_job(job, host)?;
    let described = found.describe();
    match found.phase() {
        JobPhase::Waiting => return Err(not_yet(described, true)),
        JobPhase::Ending | JobPhase::Ended => {
            return Err(Error::Failed(Failure::new(Kind::Gone, described)));
        }
        JobPhase::Running => {}
    }
    let Some(first) = found.first_host() else {
        return Err(not_yet(format!("{described}, and {NOT_BEGUN}"), false));
    };
    let host = short_name(first).to_owned();
    let session = found.session_id.unwrap_or_default();
    Ok(Script { job: JobRef(found.id.clone()), owner: found.owner.clone(), host, session })
}

fn not_yet(message: String, queued: bool) -> Error {
    Error::not_yet(message, "wait for it with --wait", queued)
}

/// The command for the first host: gantry's program, on behalf of the job's script.
fn build_words(script: &Script, agent: &Path, what: &str) -> Result<Vec<String>> {
    let program = agent.with_file_name(STARTER);
    let program = program.to_str().ok_or_else(|| Error::invalid("the path of gantry is not UTF-8"))?;
    let session = script.session.to_string();
    Ok([program, "in", "pbs", &script.job.0, &session, what].map(str::to_owned).to_vec())
}

/// The input of the program that starts agents: a ticket for all of them, and the chosen hosts. It is allocated with
/// its final size, so that no copy of the secret is left behind.
fn build_input(ticket: &str, hosts: &[String]) -> Zeroizing<Vec<u8>> {
    let hosts = hosts.join(",");
    let mut input = Zeroizing::new(Vec::with_capacity(ticket.len() + hosts.len() + 2));
    for line in [ticket, &hosts] {
        input.extend_from_slice(line.as_bytes());
        input.push(b'\n');
    }
    input
}

/// The error of a look that printed only these lines.
fn explain(script: &Script, words: &str) -> Error {
    let words = if words.is_empty() { "it printed nothing" } else { words };
    if words.contains(NOT_BEGUN) {
        return not_yet(format!("job {} is running, and {NOT_BEGUN}", script.job.0), false);
    }
    let failure = match words {
        it if it.contains("belongs to another user") => {
            let what = format!("job {} is {}'s", script.job.0, script.owner);
            Failure::new(Kind::NoAccess, what).with_hint("only the submitter of a job can attach to it")
        }
        it if it.contains("No such file") || it.contains("not found") => Failure::new(Kind::NotFound, it)
            .with_hint("install gantry at a path that all hosts of the job see"),
        it => Failure::new(Kind::LauncherFailed, it),
    };
    Error::Hosts { of: 1, missing: vec![(script.host.clone(), failure)] }
}

/// Why the program that starts agents has ended. None: it was another program.
pub(super) fn explain_end(command: &[String], status: &str, words: &str) -> Option<Failure> {
    // The last word is the program on the first host.
    let (said, rest) = command.split_last()?;
    said.contains(" 'in' 'pbs' ").then_some(())?;
    Some(remote::explain_end(rest.last()?, status, words))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::fake::FakeHost;

    const AGENT: &str = "/g/gantry-agent";

    fn login(job: &str) -> FakeHost {
        let host = FakeHost::default().with_env("PATH", "/bin").with_file("/bin/qstat", "");
        let text = format!("{{\"Jobs\": {{\"7.head\": {{{job}}}}}}}");
        host.with_file("/bin/ssh", "").with_answer("/bin/qstat -f -F json 7", &text, "")
    }

    const RUNNING: &str =
        r#""job_state": "R", "Job_Owner": "me@login", "exec_host": "n1.site/0*2+n2/0", "session_id": 40"#;

    async fn check(host: &FakeHost, expected: &str) {
        let found = adopt(&JobRef("7".to_owned()), Path::new(AGENT), host).await;
        let shown = match found {
            Ok(it) => format!("{} on {}", it.job.0, it.placement.hosts().collect::<Vec<_>>().join(",")),
            Err(error) => format!("{}: {error}", error.kind()),
        };
        assert!(shown.contains(expected), "{shown}");
    }

    fn with_said(stdout: &str, stderr: &str) -> FakeHost {
        let host = login(RUNNING);
        let words = ["/g/gantry-guard", "in", "pbs", "7.head", "40", "look"];
        let line = remote::build_command("n1", &words, Path::new(AGENT), &host).unwrap();
        let line = line.join(std::ffi::OsStr::new(" ")).into_string().unwrap();
        host.with_answer(&line, stdout, stderr)
    }

    #[tokio::test]
    async fn a_job_is_looked_at_on_its_first_host() {
        let mut placement = gantry_types::placement::PlacementBuilder::new();
        placement.push("n2", Pid::new(5), "").unwrap();
        let told = super::super::look::tell(Ok(placement.build()));
        check(&with_said(&told, "Authenticated to n1 (x).\n"), "7.head on n2").await;
        let missing = "Authenticated to n1 (x).\nbash: /g/gantry-guard: No such file or directory\n";
        check(&with_said("", missing), "not-found: 1 of 1 hosts have no agent").await;
        let theirs = "Authenticated to n1 (x).\ngantry-guard: job 7.head belongs to another user\n";
        check(&with_said("", theirs), "no-access: 1 of 1 hosts").await;
        check(&with_said("", "me@n1: Permission denied (publickey).\n"), "no-access: ").await;
    }

    #[tokio::test]
    async fn a_job_that_does_not_run_says_why() {
        let held = login(r#""job_state": "H", "comment": "held""#);
        check(&held, "job 7.head is held by a user or the server: held").await;
        let adopted = adopt(&JobRef("7".to_owned()), Path::new(AGENT), &held).await;
        assert!(matches!(adopted, Err(Error::NotYet { .. })));
        let array = adopt(&JobRef("7[].head".to_owned()), Path::new(AGENT), &held).await.unwrap_err();
        assert_eq!(array.to_string(), "7[].head is an array of many jobs");
        assert!(array.hint().is_some_and(|hint| hint.contains("7[1].head")));
        check(&login(r#""job_state": "R""#), "its script has not begun").await;
        check(&login(r#""job_state": "F", "Exit_status": 3"#), "gone: job 7.head is ended with 3").await;
    }

    #[test]
    fn a_process_speaks_for_its_own_job_only() {
        let host = FakeHost::default();
        let host = host.with_file("/proc/40/environ", "A=1\0PBS_JOBID=7.head\0PBS_JOBCOOKIE=AB\0");
        let read = |job: &str, pid| read_variables(&JobRef(job.to_owned()), Pid::new(pid), &host);
        let found = read("7.head", 40).unwrap();
        assert_eq!(
            found,
            [("PBS_JOBID", "7.head"), ("PBS_JOBCOOKIE", "AB")].map(|(n, v)| (n.into(), v.into()))
        );
        assert!(read("8.head", 40).unwrap_err().to_string().contains("is not in job 8.head"));
        assert_eq!(read("7.head", 41).unwrap_err().kind(), Kind::Gone);
        assert!(matches!(read("7.head", 0), Err(Error::NotYet { .. })));
        let begun = super::super::processes::tests::with(host, (50, 1, 50), "bash", SCRIPT, "");
        assert!(read_variables(&JobRef("7.head".to_owned()), None, &begun).is_ok());
    }

    #[test]
    fn the_input_with_a_ticket_was_never_copied() {
        let input = build_input("c0ffee", &["a".to_owned(), "b".to_owned()]);
        assert_eq!((input.as_slice(), input.capacity()), (b"c0ffee\na,b\n".as_slice(), 11));
    }

    #[test]
    fn the_own_job_needs_no_server() {
        let host = FakeHost::default().with_env("PBS_JOBID", "7.head").with_env("PBS_JOBCOOKIE", "AB");
        let own = |job: &str| find_own(&JobRef(job.to_owned()), &host).map(|job| job.0);
        assert_eq!((own("7"), own("7.head")), (Some("7.head".to_owned()), Some("7.head".to_owned())));
        assert_eq!((own("8"), own("7.other")), (None, None));
    }
}
