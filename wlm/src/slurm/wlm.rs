//! Slurm at the seam: what acts.

use std::any::Any;
use std::ffi::OsString;
use std::path::PathBuf;

use async_trait::async_trait;
use gantry_shared::error::Failure;
use gantry_shared::wire::hold::{GANTRY_SENT_AGENT, GANTRY_TASK_EPILOG, GANTRY_TICKET};

use super::ask::{ask_jobs, find_command};
use super::cause::cause_of_job;
use super::conf::leftovers_survive;
use super::{
    AgentGroup, AgentStep, Holding, Job, JobId, JobName, JobPhase, SlurmExtras, Target, attach,
    build_agent_step, build_held, detect, is_for_srun, parse_cause, parse_failure, submit,
};
use crate::host::Host;
use crate::launcher::{
    Launcher, build_shim, find_dialect, find_launcher, find_program, locate, move_files, plan_launcher,
};
use crate::{
    Adoption, AgentCommand, AppRef, Brought, Driven, EndCause, Error, Evidence, HoldMethod, JobRef, Launch,
    Plan, ProcessOwner, Result, StepStart, Submission, Wanted, Wlm,
};

/// Slurm.
#[derive(Debug, Clone, Copy)]
pub struct Slurm;

#[async_trait]
impl Wlm for Slurm {
    fn name(&self) -> &'static str {
        "slurm"
    }

    fn detect(&self, host: &dyn Host) -> Option<Evidence> {
        detect(host)
    }

    fn plan(&self, launch: &Launch, host: &dyn Host) -> Result<Plan> {
        let name = launch.launcher.clone().unwrap_or_else(|| "srun".into());
        let path = find_program(&name, host)?;
        let known = find_dialect(&path, host).map(|dialect| dialect.launcher);
        let planned = match (launch.hold_method, known) {
            (HoldMethod::Mpir, _) | (HoldMethod::Detect, None) => return plan_driven(path, known, launch),
            (_, Some(Launcher::Hydra | Launcher::OpenMpi)) => plan_launcher(&name, launch, host),
            // Says what is wrong with one that is not known.
            (_, Some(Launcher::Srun) | None) => plan_srun(&name, launch, host),
        };
        planned.map(Plan::Brought)
    }

    fn build_args(&self, wanted: &Wanted) -> Result<Vec<OsString>> {
        super::wanted::build_args(wanted)
    }

    async fn adopt(&self, job: &JobRef, host: &dyn Host) -> Result<Adoption> {
        attach::adopt(&job.0, host)
    }

    async fn start_agents(
        &self,
        app: &AppRef,
        agent: &AgentCommand,
        host: &dyn Host,
        owner: &dyn ProcessOwner,
    ) -> Result<()> {
        for start in plan_agents(app, agent, host)? {
            owner.start_step(start).await?;
        }
        Ok(())
    }

    fn read_cause(&self, line: &str) -> Option<EndCause> {
        parse_cause(line)
    }

    async fn find_cause(&self, job: &JobRef, host: &dyn Host) -> Result<Option<EndCause>> {
        let jobs = ask_jobs(job.0.parse::<Target>()?.job, host)?;
        if jobs.iter().any(|job| job.phase() == JobPhase::Ending) {
            return Err(Error::NotYet { message: format!("job {} is being ended", job.0), hint: None });
        }
        Ok(jobs.iter().filter_map(cause_of_job).reduce(EndCause::or_better))
    }

    async fn submit(&self, submission: &Submission, host: &dyn Host) -> Result<JobRef> {
        submit::submit(submission, host)
    }

    fn plan_cancel(&self, job: &JobRef, host: &dyn Host) -> Result<Vec<OsString>> {
        submit::plan_cancel(job, host)
    }

    fn extras(&self) -> Option<&'static dyn Any> {
        Some(&SlurmExtras)
    }

    fn explain(&self, command: &[String], status: &str, words: &str) -> Option<Failure> {
        Some(parse_failure(command, status, words))
    }
}

/// The user's own srun, which holds the ranks as for a debugger, or a script that may run it. Other launchers may run under Slurm and tell where
/// ranks are, but none of those tried stops them before their first instruction.
fn plan_driven(path: PathBuf, known: Option<Launcher>, launch: &Launch) -> Result<Plan> {
    if known.is_some_and(|known| known != Launcher::Srun) {
        return Err(Error::Invalid {
            message: format!("{} does not hold ranks for a debugger", path.display()),
            hint: Some("leave out --hold-method".to_owned()),
        });
    }
    if launch.args.iter().any(|arg| arg == ":") {
        // Threads of srun of their own start the parts, and let the ranks go where nobody stops them: seen with version 22.05.
        return Err(Error::Invalid {
            message: "srun does not hold the ranks of several parts (':') for a debugger".to_owned(),
            hint: Some("leave out --hold-method, and name srun itself as the launcher".to_owned()),
        });
    }
    let mut argv = vec![path.into_os_string()];
    argv.extend(launch.args.iter().cloned());
    Ok(Plan::Driven(Driven { argv }))
}

/// One srun brings ranks and agents. Where agents would be killed with the step, what it runs after each task waits until the node's agent has
/// cleaned up. That has its price: Slurm looks once a second whether it has ended, task after task. So it is left out where agents surely survive.
fn plan_srun(name: &std::ffi::OsStr, launch: &Launch, host: &dyn Host) -> Result<Brought> {
    let (path, dialect) = find_launcher(name, host)?;
    let environment = host.environment();
    let mut args = launch.args.clone();
    let parts = locate(dialect, &args, &environment)?;
    // Where srun sends it, srun itself replaces the path by that on the nodes.
    let shim = build_shim(&launch.agent, dialect);
    let files = move_files(&mut args, &parts, dialect, &shim, launch, host)?;
    let holding = Holding {
        shim: &shim,
        variables: &[GANTRY_TICKET, GANTRY_TASK_EPILOG, GANTRY_SENT_AGENT],
        task_epilog: (!leftovers_survive(&path, host)).then(|| launch.agent_on_nodes()),
        bcast: launch.send_agent_to.as_deref(),
    };
    let held = build_held(&args, &parts, &holding, &environment)?;
    let mut argv = vec![path.into_os_string()];
    argv.extend(held.args);
    let sent = launch.send_agent_to.clone().map(PathBuf::into_os_string);
    let env = vec![(GANTRY_TASK_EPILOG.into(), held.user_epilog), (GANTRY_SENT_AGENT.into(), sent)];
    Ok(Brought { argv, env, files })
}

/// One srun starts all agents in a step of their own, beside what runs in the job; in a heterogeneous job one for each component that has nodes of
/// the app, as of several programs only one would be given the ticket.
fn plan_agents(app: &AppRef, agent: &AgentCommand, host: &dyn Host) -> Result<Vec<StepStart>> {
    let job = app.job.as_ref().ok_or_else(|| Error::invalid("agents need a job of Slurm to run in"))?;
    let name = job.0.parse::<Target>()?.job;
    let jobs = match (ask_jobs(name, host), name) {
        // A job's number says enough where it has no components.
        (Err(error), JobName::Plain(_)) => {
            tracing::debug!(%error, "Slurm tells nothing of the job");
            Vec::new()
        }
        (jobs, _) => jobs?,
    };
    let srun = find_command("srun", host)?;
    let variables: &[&str] = if agent.send_to.is_some() { &[GANTRY_SENT_AGENT] } else { &[] };
    let mut env = host.environment();
    env.retain(|(name, _)| !is_for_srun(name) && name != GANTRY_SENT_AGENT);
    if let Some(path) = &agent.send_to {
        env.push((GANTRY_SENT_AGENT.into(), path.clone().into_os_string()));
    }
    let starts = build_groups(name, &jobs, &app.hosts, host)?.into_iter().map(|(job, component, hosts)| {
        let mut argv = build_agent_step(&AgentStep {
            job,
            groups: &[AgentGroup { component, hosts: &hosts }],
            // Where it is sent, srun itself replaces the path by that on the nodes.
            agent: &[agent.program.clone().into_os_string(), "serve".into()],
            variables,
            bcast: agent.send_to.as_deref(),
        });
        if let Some(program) = argv.first_mut() {
            program.clone_from(&srun);
        }
        // Every node knows its own name.
        Ok(StepStart { argv, env: env.clone(), ticket: agent.ticket("").map_err(Error::NotStarted)? })
    });
    starts.collect()
}

/// Nodes that one step of agents is for: the job, and the component in a heterogeneous one.
type Group = (JobId, Option<u32>, Vec<String>);

/// The nodes of each step of agents.
fn build_groups(name: JobName, jobs: &[Job], hosts: &[String], host: &dyn Host) -> Result<Vec<Group>> {
    let component = jobs.iter().find_map(|job| match job.name {
        JobName::Component(leader, _) => Some(leader),
        JobName::Plain(_) | JobName::ArrayTask(..) => None,
    });
    let Some(leader) = component else {
        let named = jobs.iter().find(|job| job.name == name || JobName::Plain(job.id) == name);
        let own = named.map_or(name.number(), |job| job.id);
        return Ok(vec![(own, None, hosts.to_vec())]);
    };
    let all = match name == JobName::Plain(leader) {
        true => jobs.to_vec(),
        false => ask_jobs(JobName::Plain(leader), host)?,
    };
    let mut left = hosts.to_vec();
    let mut groups = Vec::new();
    for job in &all {
        let JobName::Component(_, component) = job.name else { continue };
        // A node that several components have needs one agent.
        let (here, rest) = left.into_iter().partition(|host| job.hosts.contains(host));
        left = rest;
        let here: Vec<String> = here;
        if !here.is_empty() {
            groups.push((leader, Some(component), here));
        }
    }
    match left.first() {
        None => Ok(groups),
        Some(host) => Err(Error::invalid(format!("no component of job {leader} has the node {host}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::fake::FakeHost;

    fn plan(host: &FakeHost, launcher: Option<&str>, args: &[&str]) -> Brought {
        let launch = Launch {
            args: args.iter().map(OsString::from).collect(),
            launcher: launcher.map(OsString::from),
            agent: "/g/agent".into(),
            scratch: "/s".into(),
            ..Launch::default()
        };
        match Slurm.plan(&launch, host).unwrap() {
            Plan::Brought(planned) => planned,
            other => panic!("{other:?}"),
        }
    }

    fn host() -> FakeHost {
        FakeHost::default()
            .with_env("PATH", "/bin")
            .with_file("/bin/srun", "")
            .with_file("/bin/mpiexec.hydra", "")
    }

    #[test]
    fn one_srun_brings_ranks_and_agents() {
        let planned = plan(&host(), None, &["-N2", "-n", "4", "./app", "-n"]);
        let expected: Vec<OsString> = [
            "/bin/srun",
            "-N2",
            "-n",
            "4",
            "--task-epilog=/g/agent",
            "/g/agent",
            "hold",
            "--by",
            "srun",
            "--",
            "./app",
            "-n",
        ]
        .map(OsString::from)
        .to_vec();
        assert_eq!(planned.argv, expected);
        assert_eq!(planned.env, [(GANTRY_TASK_EPILOG.into(), None), (GANTRY_SENT_AGENT.into(), None)]);
    }

    #[test]
    fn no_epilog_delays_the_end_where_agents_survive_the_step() {
        let survives = host().with_file("/etc/slurm/slurm.conf", "ProctrackType=proctrack/linuxproc");
        let planned = plan(&survives, None, &["-n1", "--task-epilog=/mine", "./app"]);
        let line = planned.argv.join(" ".as_ref()).into_string().unwrap();
        assert_eq!(line, "/bin/srun -n1 --task-epilog=/mine /g/agent hold --by srun -- ./app");
        assert_eq!(planned.env[0], (GANTRY_TASK_EPILOG.into(), None));
    }

    #[test]
    fn agents_get_nothing_that_was_meant_for_the_users_srun() {
        let host = host().with_env("SLURM_CPU_BIND", "x").with_env("SLURM_CONF", "/c").with_env("HOME", "/h");
        let app = AppRef {
            app: "3kx9w0fz".parse().unwrap(),
            hosts: vec!["n1".to_owned(), "n2".to_owned()],
            job: Some(JobRef("7.0".to_owned())),
            told: Vec::new(),
        };
        let agent = AgentCommand::new("/g/agent".into(), Some("/tmp/a".into()), |host| Ok(host.into()));
        let [start] = &plan_agents(&app, &agent, &host).unwrap()[..] else { panic!("several") };
        let line = start.argv.join(" ".as_ref()).into_string().unwrap();
        assert!(
            line.starts_with("/bin/srun --quiet --jobid=7 ") && line.ends_with("-- /g/agent serve"),
            "{line}"
        );
        assert!(line.contains(" --bcast=/tmp/a ") && line.contains(" --export=GANTRY_SENT_AGENT "), "{line}");
        let names: Vec<_> = start.env.iter().map(|(name, _)| name.to_str().unwrap()).collect();
        assert_eq!(names, ["PATH", "SLURM_CONF", "HOME", "GANTRY_SENT_AGENT"]);
        assert!(start.ticket.is_empty());
    }

    #[test]
    fn a_heterogeneous_job_gets_a_step_of_agents_for_each_component() {
        let line = |number: u32, component: u32, hosts: &str| {
            format!(
                "JobId={number} HetJobId=7 HetJobOffset={component} JobName=x UserId=me(1000) JobState=RUNNING Reason=None NodeList={hosts}\n"
            )
        };
        let lines = [line(7, 0, "n1"), line(8, 1, "n[1-3]"), line(9, 2, "n4")].concat();
        let host = host().with_file("/bin/scontrol", "").with_answer(
            "/bin/scontrol --oneliner show job 7",
            &lines,
            "",
        );
        let plan = |hosts: &[&str]| {
            let hosts = hosts.iter().map(|&host| host.to_owned()).collect();
            let job = Some(JobRef("7.0".to_owned()));
            let app = AppRef { app: "3kx9w0fz".parse().unwrap(), hosts, job, told: Vec::new() };
            let agent = AgentCommand::new("/g/agent".into(), None, |host| Ok(host.into()));
            plan_agents(&app, &agent, &host)
        };
        let starts = plan(&["n1", "n2", "n3"]).unwrap();
        let has =
            |start: &StepStart, words: &[&str]| words.iter().all(|word| start.argv.contains(&word.into()));
        assert_eq!(starts.len(), 2);
        assert!(has(&starts[0], &["--jobid=7", "--het-group=0", "--nodelist=n1"]), "{starts:?}");
        assert!(has(&starts[1], &["--jobid=7", "--het-group=1", "--nodelist=n[2-3]"]), "{starts:?}");
        assert_eq!(plan(&["n9"]).unwrap_err().to_string(), "no component of job 7 has the node n9");
    }

    #[test]
    fn mpir_leaves_the_command_line_alone_and_is_for_srun() {
        let plan = |launcher: &str| {
            let args = ["-N2", "./app"].map(OsString::from).to_vec();
            let (launcher, hold_method) = (Some(launcher.into()), HoldMethod::Mpir);
            Slurm.plan(&Launch { args, launcher, hold_method, ..Launch::default() }, &host())
        };
        let argv = ["/bin/srun", "-N2", "./app"].map(OsString::from).to_vec();
        assert_eq!(plan("srun").unwrap(), Plan::Driven(Driven { argv }));
        assert_eq!(
            plan("mpiexec.hydra").unwrap_err().to_string(),
            "/bin/mpiexec.hydra does not hold ranks for a debugger"
        );
        let args = ["./a", ":", "./b"].map(OsString::from).to_vec();
        let parts = Slurm.plan(&Launch { args, hold_method: HoldMethod::Mpir, ..Launch::default() }, &host());
        let refused = "srun does not hold the ranks of several parts (':') for a debugger";
        assert_eq!(parts.unwrap_err().to_string(), refused);
    }

    #[test]
    fn the_users_epilog_is_remembered_and_other_launchers_are_as_anywhere() {
        let planned = plan(&host(), None, &["--task-epilog=/my/epilog", "./app"]);
        assert_eq!(planned.env[0], (GANTRY_TASK_EPILOG.into(), Some("/my/epilog".into())));
        let planned = plan(&host(), Some("mpiexec.hydra"), &["-n", "1", "./app"]);
        assert_eq!(planned.argv[0], "/bin/mpiexec.hydra");
    }
}
