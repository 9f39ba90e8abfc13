//! Attaching to a running job: finds its ranks, and starts agents beside them.
//!
//! The job's own shells start the agents, through their service for such commands. This needs only the rights of the
//! job's owner.

use std::ffi::OsString;

use gantry_types::error::{Failure, Kind};
use gantry_types::id::Rank;
use gantry_types::placement::{Placement, PlacementBuilder};
use gantry_types::rank_set::RankSet;

use super::ask::{Instance, flux, refused};
use super::command::{build_exec, build_jobspec, build_processes, build_running};
use super::job::{Job, parse_jobs, parse_processes, starts_broker};
use super::reference::{JobId, Target};
use crate::give::AgentGift;
use crate::host::Host;
use crate::launch::{AgentCommand, StepStart};
use crate::{Adoption, AppRef, Error, JobPhase, JobRef, Result};

/// The maximum nesting depth of instances. The name of the outermost one stands for the job in the innermost one.
const MAX_DEPTH: usize = 16;

/// Finds the ranks of a job. The name of an instance means the newest job that runs in it.
///
/// # Errors
/// The job is unknown, has ended, or belongs to another user. [`Error::NotYet`]: it has no ranks yet.
pub(super) fn adopt(text: &str, host: &dyn Host) -> Result<Adoption> {
    let mut target: Target = text.parse()?;
    let mut instance = Instance::of(&target, host)?;
    for _ in 0..MAX_DEPTH {
        let job = instance.ask_job(target.job, host)?;
        check_running(&job, host)?;
        let Some(uri) = job.instance() else {
            check_no_instance(&instance, &target, host)?;
            let placement = ask_placement(&instance, &job, host)?;
            return Ok(Adoption { job: JobRef(target.to_string()), placement, marks: None });
        };
        instance = Instance::at(uri, host);
        let newest = find_newest(&instance, &target, host)?;
        target = target.inside(newest);
    }
    Err(Error::invalid(format!("more than {MAX_DEPTH} instances lie in each other: {target}")))
}

fn check_running(job: &Job, host: &dyn Host) -> Result<()> {
    let (id, own) = (JobId(job.id), host.uid());
    if job.userid != own {
        let message = format!("job {id} belongs to user {}, and this is user {own}", job.userid);
        return Err(Error::no_access(message, None));
    }
    match job.phase() {
        JobPhase::Running => Ok(()),
        JobPhase::Waiting => Err(Error::not_yet(job.describe(), "wait for it with --wait", true)),
        JobPhase::Ending | JobPhase::Ended => {
            Err(Error::Failed(Failure::new(Kind::Gone, job.describe_end())))
        }
    }
}

/// Checks that a job has ranks of its own. The brokers of an instance are not ranks. An instance gets its address a
/// little later than its brokers.
fn check_no_instance(instance: &Instance, target: &Target, host: &dyn Host) -> Result<()> {
    let words = build_jobspec(target.job);
    let said = instance.ask(&words, host)?;
    if said.stdout.trim().is_empty() {
        let words = std::iter::once(OsString::from("flux")).chain(words);
        return Err(refused(&words.collect::<Vec<_>>(), &said));
    }
    if starts_broker(&said.stdout)? { Err(not_yet(target, "that is starting")) } else { Ok(()) }
}

/// The error for an instance without a job: it may get one later.
fn not_yet(instance: &Target, what: &str) -> Error {
    Error::not_yet(
        format!("{instance} is an instance of Flux {what}"),
        "wait for a job in it with --wait",
        false,
    )
}

/// The job of an instance that started last.
fn find_newest(instance: &Instance, of: &Target, host: &dyn Host) -> Result<JobId> {
    let said = instance.ask(&build_running(), host)?;
    // A starting instance has an address before all of its services run.
    if said.stderr.contains("No service matching") {
        return Err(not_yet(of, "that is starting"));
    }
    if said.stdout.trim().is_empty() && !said.stderr.trim().is_empty() {
        let words = std::iter::once(OsString::from("flux")).chain(build_running());
        return Err(refused(&words.collect::<Vec<_>>(), &said));
    }
    let jobs = parse_jobs(&said.stdout)?;
    let newest = jobs.iter().max_by(|one, other| one.t_run.total_cmp(&other.t_run));
    newest.map(|job| JobId(job.id)).ok_or_else(|| not_yet(of, "in which no job runs"))
}

/// Asks a job's shells where its ranks are.
fn ask_placement(instance: &Instance, job: &Job, host: &dyn Host) -> Result<Placement> {
    let id = JobId(job.id);
    let words = build_processes(id);
    let said = instance.ask(&words, host)?;
    if said.stdout.trim().is_empty() {
        if said.stderr.contains("timeout waiting for shell.start") {
            let message = format!("the ranks of job {id} have not started yet");
            return Err(Error::not_yet(message, "wait for them with --wait", false));
        }
        let words = std::iter::once(OsString::from("flux")).chain(words);
        return Err(refused(&words.collect::<Vec<_>>(), &said));
    }
    let strange = |error: gantry_types::placement::PlacementError| Error::invalid(error.to_string());
    let mut placement = PlacementBuilder::default();
    for name in job.hosts()? {
        placement.push_host(&name).map_err(strange)?;
    }
    for (name, pid) in parse_processes(&said.stdout)? {
        placement.push(&name, Some(pid), "").map_err(strange)?;
    }
    Ok(placement.build())
}

/// Plans one `flux exec` that starts all agents, one on each host of `app`.
///
/// # Errors
/// The job has ended, or has no shell on a host.
pub(super) fn plan_agents(
    app: &AppRef,
    agent: &AgentCommand,
    gift: &AgentGift,
    host: &dyn Host,
) -> Result<StepStart> {
    let job = app.job.as_ref().ok_or_else(|| Error::invalid("agents need a job of Flux to run beside"))?;
    let target: Target = job.0.parse()?;
    let instance = Instance::of(&target, host)?;
    let shells = choose_shells(&instance.ask_job(target.job, host)?, &app.hosts)?;
    let mut env = host.environment();
    let given: Vec<OsString> = instance.variables().into_iter().map(|(name, _)| name).collect();
    env.retain(|(name, _)| !given.contains(name) && !is_of_rank(name));
    env.extend(instance.variables());
    gift.put_into(&mut env);
    // No node name is given here: every node knows its own name.
    let ticket = agent.ticket("")?.into();
    Ok(StepStart { argv: flux(&build_exec(target.job, &shells, &gift.command), host)?, env, ticket })
}

/// Whether a variable would make an agent look like a rank of this process's own job.
fn is_of_rank(name: &OsString) -> bool {
    const BEGINNINGS: [&[u8]; 5] = [b"FLUX_TASK_", b"FLUX_JOB_", b"PMI_", b"PMIX_", b"OMPI_"];
    BEGINNINGS.iter().any(|beginning| name.as_encoded_bytes().starts_with(beginning))
}

/// Chooses one of the job's shells on each host, by index. One host may have several brokers.
fn choose_shells(job: &Job, hosts: &[String]) -> Result<RankSet> {
    let of_shells = job.hosts()?;
    let mut shells = RankSet::new();
    for name in hosts {
        let shell = of_shells.iter().position(|host| host == name).and_then(|at| u32::try_from(at).ok());
        let shell = shell.ok_or_else(|| {
            Error::invalid(format!(
                "job {} has no shell on {name}: its nodes are {}",
                JobId(job.id),
                job.nodelist
            ))
        })?;
        shells.insert(Rank(shell));
    }
    Ok(shells)
}

#[cfg(test)]
mod tests {
    use gantry_types::launch::SendAgent;

    use super::*;
    use crate::host::fake::FakeHost;

    fn host() -> FakeHost {
        let host = FakeHost::default().with_env("PATH", "/bin").with_file("/bin/flux", "");
        let spec = |command: &str| format!(r#"{{"tasks": [{{"command": [{command}]}}]}}"#);
        host.with_answer("/bin/flux job info f7 jobspec", &spec(r#""./app", "x""#), "")
            .with_answer("/bin/flux job info f3 jobspec", &spec(r#""./app""#), "")
            .with_answer("/bin/flux job info f9 jobspec", &spec(r#""flux", "broker", "script""#), "")
    }

    fn job(state: u32, more: &str) -> String {
        format!(
            r#"{{"id": 6, "userid": 1000, "state": {state}, "urgency": 16, "nodelist": "n1,n1,n2"{more}}}"#
        )
    }

    #[test]
    fn ranks_are_where_the_shells_say() {
        let host = host().with_answer("/bin/flux job list-ids f7", &job(16, ""), "").with_answer(
            "/bin/flux job hostpids --timeout=1s f7",
            "n1:70,n2:40,n1:71\n",
            "",
        );
        let adoption = adopt("ƒ7", &host).unwrap();
        assert_eq!(adoption.job.0, "f7");
        let places: Vec<_> = adoption
            .placement
            .iter()
            .map(|place| (place.host.to_owned(), place.pid.unwrap().get()))
            .collect();
        assert_eq!(places, [("n1".to_owned(), 70), ("n2".to_owned(), 40), ("n1".to_owned(), 71)]);
    }

    #[test]
    fn an_instance_stands_for_the_newest_job_in_it() {
        let uri = r#", "annotations": {"user": {"uri": "ssh://fake/tmp/x/local-0"}}"#;
        let running = r#"{"id": 1, "userid": 1000, "state": 16, "t_run": 5.0}
{"id": 2, "userid": 1000, "state": 16, "t_run": 9.5, "nodelist": "n1"}
"#;
        let inner = r#"{"id": 2, "userid": 1000, "state": 16, "t_run": 9.5, "nodelist": "n1"}"#;
        let host = host()
            .with_answer("/bin/flux job list-ids f7", &job(16, uri), "")
            .with_answer("/bin/flux job list --states=run", running, "")
            .with_answer("/bin/flux job list-ids f3", inner, "")
            .with_answer("/bin/flux job hostpids --timeout=1s f3", "n1:70\n", "");
        assert_eq!(adopt("f7", &host).unwrap().job.0, "f7/f3");
    }

    #[test]
    fn an_instance_that_starts_or_is_idle_may_get_a_job() {
        let uri = r#", "annotations": {"user": {"uri": "ssh://fake/tmp/x/local-0"}}"#;
        let check = |stderr: &str, expected: &str| {
            let host = host().with_answer("/bin/flux job list-ids f7", &job(16, uri), "").with_answer(
                "/bin/flux job list --states=run",
                "",
                stderr,
            );
            let error = adopt("f7", &host).unwrap_err();
            assert!(matches!(error, Error::NotYet { queued: false, .. }), "{error}");
            assert_eq!(error.to_string(), format!("f7 is an instance of Flux {expected}"));
        };
        check("", "in which no job runs");
        let brokers = job(16, "").replace("\"id\": 6", "\"id\": 8");
        let host = host().with_answer("/bin/flux job list-ids f9", &brokers, "");
        let error = adopt("f9", &host).unwrap_err();
        assert_eq!(error.to_string(), "f9 is an instance of Flux that is starting");
        check(
            "flux-job: flux job-list.list: No service matching job-list.list is registered",
            "that is starting",
        );
    }

    #[test]
    fn what_cannot_be_attached_to() {
        let check = |answer: &str, stderr: &str, expected: &str| {
            let host = host().with_answer("/bin/flux job list-ids f7", answer, stderr);
            let error = adopt("f7", &host).unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
            error
        };
        assert!(matches!(check(&job(8, ""), "", "state SCHED"), Error::NotYet { queued: true, .. }));
        assert_eq!(check(&job(64, ""), "", "job f7 has ended").kind(), Kind::Gone);
        let other = job(16, "").replace("1000", "5");
        assert_eq!(check(&other, "", "belongs to user 5").kind(), Kind::NoAccess);
        assert_eq!(check("", "flux-job: f7: unknown job id\n", "unknown job id").kind(), Kind::NotFound);
        // A broker that is restarted says nothing about the job.
        for words in ["flux-job: flux_open: No such file or directory", "flux-job: Connection reset by peer"]
        {
            assert!(matches!(check("", words, words), Error::Unanswered(_)), "{words}");
        }
    }

    #[test]
    fn one_shell_of_each_host_starts_its_agent() {
        let host =
            host().with_env("FLUX_TASK_RANK", "0").with_answer("/bin/flux job list-ids f7", &job(16, ""), "");
        let hosts = ["n1", "n2"].map(str::to_owned).to_vec();
        let app = AppRef {
            app: "3kx9w0fz".parse().unwrap(),
            hosts,
            job: Some(JobRef("f7".to_owned())),
            wlm_data: Vec::new(),
        };
        let agent = AgentCommand::new("/g/agent".into(), SendAgent::Never, |host| Ok(host.into()));
        let gift = AgentGift { command: vec!["/g/agent".into(), "serve".into()], word: None };
        let start = plan_agents(&app, &agent, &gift, &host).unwrap();
        let line = start.argv.join(" ".as_ref()).into_string().unwrap();
        assert_eq!(line, "/bin/flux exec --quiet --dir=/ --jobid=f7 --rank=0,2 /g/agent serve");
        assert!(start.env.iter().all(|(name, _)| name == "PATH"), "{:?}", start.env);
        let nowhere = AppRef { hosts: vec!["n9".to_owned()], ..app };
        assert!(
            plan_agents(&nowhere, &agent, &gift, &host).unwrap_err().to_string().contains("no shell on n9")
        );
    }
}
