//! Slurm's implementation of the WLM interface.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use gantry_shared::wire::hold::{AfterRank, GANTRY_TICKET};
use gantry_types::launch::{HoldMethod, Mixed, SendAgent};

use super::ask::{ask_jobs, find_command};
use super::cluster::check_option;
use super::conf::leftovers_survive;
use super::detect::doubt;
use super::jobs::SlurmJobs;
use super::site::build_site_options;
use super::srun::SRUN;
use super::waits::SrunWaits;
use super::{
    AgentGroup, AgentStep, Holding, Job, JobId, JobName, SlurmExtras, Target, attach, build_agent_step,
    build_held, detect, is_for_srun, mixed, wanted,
};
use crate::error::{Error, Result};
use crate::give::{AgentGift, GANTRY_GIVEN, start_steps};
use crate::host::Host;
use crate::job::{Adoption, AppRef, JobRef};
use crate::launch::{AgentCommand, Brought, Driven, Launch, Plan, ProcessOwner, StepStart};
use crate::launcher::{
    Dialect, Part, build_shim, find_launcher, find_program, locate, move_files, plan_driven, plan_launcher,
    recognize, rewrite_file,
};
use crate::mpir::AtBreakpoint;
use crate::seam::{Capabilities, Evidence, Wlm};

/// The timeout for a task epilog: a little less than Slurm's limit of five seconds.
const EPILOG_WITHIN: Duration = Duration::from_millis(4500);

/// Slurm.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slurm;

#[async_trait]
impl Wlm for Slurm {
    fn name(&self) -> &'static str {
        "slurm"
    }

    fn detect(&self, host: &dyn Host) -> Option<Evidence> {
        detect(host)
    }

    fn doubt(&self, host: &dyn Host) -> Option<String> {
        doubt(host)
    }

    fn capabilities(&self) -> &'static Capabilities {
        &CAPABILITIES
    }

    fn plan(&self, launch: &Launch, host: &dyn Host) -> Result<Plan> {
        let name = launch.launcher.clone().unwrap_or_else(|| "srun".into());
        let path = find_program(&name, host)?;
        let known = recognize(&path, host).ok().map(|it| it.dialect);
        check_cluster(launch, known, host)?;
        let method = choose_method(launch, known, &path, host)?;
        check_linger(launch, method, known, &path, host)?;
        match method {
            HoldMethod::Mpir | HoldMethod::MpirStop => plan_as_it_is(&name, known, launch, host),
            // Reports the problem of an unknown launcher.
            _ if is_srun(known) => plan_srun(&name, launch, host).map(Plan::Brought),
            _ => plan_launcher(&name, launch, host).map(Plan::Brought),
        }
    }

    async fn adopt(
        &self,
        job: &JobRef,
        _told: &[String],
        _agent: &Path,
        host: &dyn Host,
    ) -> Result<Adoption> {
        attach::adopt(&job.0, host)
    }

    async fn start_agents(
        &self,
        app: &AppRef,
        agent: &AgentCommand,
        host: &dyn Host,
        owner: &dyn ProcessOwner,
    ) -> Result<()> {
        start_steps(app, agent, host, owner, plan_agents).await
    }
}

/// Optional abilities of Slurm.
static CAPABILITIES: Capabilities = Capabilities {
    jobs: Some(&SlurmJobs),
    batch: Some(&SlurmJobs),
    described: Some(wanted::build_args),
    mixed: Some(plan_mixed),
    launcher_output: Some(&SlurmJobs),
    launcher_waits: Some(&SrunWaits),
    extras: Some(&SlurmExtras),
    ..Capabilities::NONE
};

fn plan_mixed(mixed: &Mixed, launch: &Launch, host: &dyn Host) -> Result<Plan> {
    let described = mixed::describe(mixed, &launch.scratch)?;
    let (path, dialect) = find_launcher("srun".as_ref(), host)?;
    let parts = locate(dialect, &described.args, &host.environment())?;
    let shim = build_shim(&launch.agent, dialect);
    let (file, text) = described.programs;
    let mut files = vec![(file, rewrite_file(dialect, &text, &shim)?)];
    files.extend(described.hosts);
    let program = mixed.parts.first().map(|part| part.program.clone());
    let called = Called { parts: &parts, programs: program.as_slice() };
    let mut planned = bring(path, &described.args, &called, &shim, launch, host)?;
    planned.env.extend(described.env);
    Ok(Plan::Brought(Brought { files, own: described.own, ..planned }))
}

/// Chooses the hold method. It is fastest if srun starts the agents together with the ranks. That requires that agents
/// may outlive the step for their clean-up. If Slurm kills them with the step, the end of every task would have to wait
/// a second for them. Then, if possible, srun holds the ranks itself, and agents get a separate step. Such an agent
/// must be allowed to trace ranks that it has not started: it needs that to follow a rank through a wrapper.
///
/// # Errors
/// The agent must be sent, but cannot be: sending needs a separate step.
fn choose_method(
    launch: &Launch,
    known: Option<&'static Dialect>,
    path: &Path,
    host: &dyn Host,
) -> Result<HoldMethod> {
    let can_be_driven = || !launch.hold_behind || may_be_traced(host);
    if launch.send_agent == SendAgent::Always && !launch.hold_method.is_by_launcher() {
        if !is_srun(known) || launch.hold_method == HoldMethod::Exec || !can_be_driven() {
            return Err(Error::invalid_with(
                "the agent cannot be sent to the nodes: it would be started by the launcher with the ranks",
                SEND_BY_STEP,
            ));
        }
        return Ok(HoldMethod::Mpir);
    }
    Ok(match (launch.hold_method, known) {
        (HoldMethod::Detect, None) => HoldMethod::Mpir,
        (HoldMethod::Detect, Some(_)) if is_srun(known) => {
            let own_step = can_be_driven() && (launch.linger || !leftovers_survive(path, host));
            if own_step { HoldMethod::Mpir } else { HoldMethod::Exec }
        }
        (HoldMethod::Detect, Some(_)) => HoldMethod::Exec,
        (method, _) => method,
    })
}

/// How the agent can be sent.
const SEND_BY_STEP: &str = "have srun hold the ranks (without --hold-method, and without --hold-at where nodes restrict tracing), or have gantry at a path that all nodes see";

/// Whether an agent may trace ranks that are not its children. Nodes are assumed to be configured like this machine.
/// Source: Documentation/admin-guide/LSM/Yama.rst.
fn may_be_traced(host: &dyn Host) -> bool {
    let scope = host.read(Path::new("/proc/sys/kernel/yama/ptrace_scope"));
    !scope.is_ok_and(|scope| scope.trim_ascii() != b"0")
}

/// Whether a launcher is srun, or unknown: an unknown one may run srun.
fn is_srun(known: Option<&Dialect>) -> bool {
    known.is_none_or(|known| *known == SRUN)
}

/// Whether the launch has several programs.
fn has_parts(launch: &Launch) -> bool {
    launch.args.iter().any(|arg| arg == ":")
}

/// Checks that a launch by srun stays in the cluster that gantry asks. Whoever reads the arguments reports other mistakes.
fn check_cluster(launch: &Launch, known: Option<&'static Dialect>, host: &dyn Host) -> Result<()> {
    let srun = known.filter(|known| **known == SRUN);
    let parts = srun.and_then(|srun| locate(srun, &launch.args, &host.environment()).ok());
    check_option(&parts.unwrap_or_default(), host)
}

/// Checks that agents can outlive the ranks. They need a step of their own, in a job that outlives it.
fn check_linger(
    launch: &Launch,
    method: HoldMethod,
    known: Option<&'static Dialect>,
    path: &Path,
    host: &dyn Host,
) -> Result<()> {
    if !launch.linger {
        return Ok(());
    }
    if !method.is_by_launcher() && (is_srun(known) || !leftovers_survive(path, host)) {
        let hint = "let srun hold the ranks itself: without --hold-method, and without --hold-at where nodes restrict tracing";
        return Err(Error::invalid_with("agents that a launcher brings with the ranks end with them", hint));
    }
    let environment = host.environment();
    let named = || {
        let parts = locate(known?, &launch.args, &environment).ok()?;
        parts.iter().any(|part| part.value("jobid").is_some()).then_some(())
    };
    if host.env("SLURM_JOB_ID").is_none() && named().is_none() {
        let hint = "launch inside an allocation (salloc, a batch job, --jobid)";
        return Err(Error::invalid_with("the job that srun makes ends with the ranks, and all in it", hint));
    }
    Ok(())
}

/// Plans the user's launcher without changes; it reports where its ranks are. It is srun, which stops the ranks as for
/// a debugger; a script that may run srun; or another launcher, whose ranks wait for it at a later point.
fn plan_as_it_is(
    name: &OsStr,
    known: Option<&'static Dialect>,
    launch: &Launch,
    host: &dyn Host,
) -> Result<Plan> {
    let plan = plan_driven(name, launch, host)?;
    // srun starts each part in a separate thread, and releases the ranks of all parts.
    let by_threads = has_parts(launch) && is_srun(known);
    match plan {
        Plan::Driven(_) if by_threads && launch.hold_method == HoldMethod::MpirStop => {
            Err(Error::invalid_with(
                "srun cannot be stopped together with the ranks of several parts (':'): it starts each part in a thread of its own",
                "--hold-method mpir holds them while srun goes on",
            ))
        }
        Plan::Driven(plan) if by_threads => {
            Ok(Plan::Driven(Driven { at_breakpoint: AtBreakpoint::AsItHoldsInAllThreads, ..plan }))
        }
        plan => Ok(plan),
    }
}

/// Plans the user's srun with the agent in place of every program.
fn plan_srun(name: &std::ffi::OsStr, launch: &Launch, host: &dyn Host) -> Result<Brought> {
    let (path, dialect) = find_launcher(name, host)?;
    let mut args = launch.args.clone();
    let parts = locate(dialect, &args, &host.environment())?;
    let shim = build_shim(&launch.agent, dialect);
    let programs: Vec<OsString> = parts.iter().filter_map(|part| args.get(part.program).cloned()).collect();
    let files = move_files(&mut args, &parts, dialect, &shim, launch, host)?;
    let called = Called { parts: &parts, programs: &programs };
    Ok(Brought { files, ..bring(path, &args, &called, &shim, launch, host)? })
}

/// The parts of an srun, and the programs that name them.
#[derive(Debug, Clone, Copy)]
struct Called<'a> {
    parts: &'a [Part],
    programs: &'a [OsString],
}

/// Plans one srun that starts ranks and agents. If Slurm kills agents with the step, a task epilog waits until the
/// node's agent has cleaned up. That is slow, because Slurm polls epilogs once a second, task after task. So there is
/// no epilog if agents surely survive.
fn bring(
    path: PathBuf,
    args: &[OsString],
    called: &Called<'_>,
    shim: &[OsString],
    launch: &Launch,
    host: &dyn Host,
) -> Result<Brought> {
    let is_killed = !leftovers_survive(&path, host);
    let holding = Holding {
        programs: called.programs,
        shim,
        variables: &[GANTRY_TICKET],
        task_epilog: is_killed.then_some(&*launch.agent),
    };
    let held = build_held(args, called.parts, &holding, &host.environment())?;
    let mut argv = vec![path.into_os_string()];
    argv.extend(held.args);
    let after_rank = is_killed.then_some(AfterRank { program: held.user_epilog, within: EPILOG_WITHIN });
    Ok(Brought { argv, env: Vec::new(), files: Vec::new(), own: Vec::new(), after_rank })
}

/// Plans one srun that starts all agents in a separate step, inside of the running job. A heterogeneous job needs one
/// srun for each component with nodes of the app, because only one of several groups would get the ticket.
fn plan_agents(
    app: &AppRef,
    agent: &AgentCommand,
    gift: &AgentGift,
    host: &dyn Host,
) -> Result<Vec<StepStart>> {
    // Launchers other than Slurm's do not name the job in which they run.
    let own = || host.env("SLURM_JOB_ID").map(|job| JobRef(job.to_string_lossy().into_owned()));
    let job = app.job.clone().or_else(own);
    let job = job.ok_or_else(|| Error::invalid("agents need a job of Slurm to run in"))?;
    let name = job.0.parse::<Target>()?.job;
    let jobs = match (ask_jobs(name, host), name) {
        // A plain job number is sufficient without components.
        (Err(error), JobName::Plain(_)) => {
            tracing::debug!(%error, "Slurm has no record of the job");
            Vec::new()
        }
        (jobs, _) => jobs?,
    };
    let srun = find_command("srun", host)?;
    // A node that fetches the agent may have no other place for it than the home.
    let variables: &[&str] = if gift.word.is_some() { &[GANTRY_GIVEN, "HOME"] } else { &[] };
    let more = build_site_options(&srun, host);
    let mut env = host.environment();
    env.retain(|(name, _)| !is_for_srun(name));
    gift.put_into(&mut env);
    let starts = build_groups(name, &jobs, &app.hosts, host)?.into_iter().map(|(job, component, hosts)| {
        let mut argv = build_agent_step(&AgentStep {
            job,
            groups: &[AgentGroup { component, hosts: &hosts }],
            agent: &gift.command,
            variables,
            more: &more,
        });
        if let Some(program) = argv.first_mut() {
            program.clone_from(&srun);
        }
        // No node name is given here: every node knows its own name.
        let ticket = agent.ticket("")?.into();
        Ok(StepStart { argv, env: env.clone(), ticket })
    });
    starts.collect()
}

/// The nodes of one step of agents: the job, the component in a heterogeneous one, and the hosts.
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
        // A node in several components needs only one agent.
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

    /// A host whose Slurm does not kill leftover processes of a step.
    fn loose() -> FakeHost {
        host().with_file("/etc/slurm/slurm.conf", "ProctrackType=proctrack/linuxproc")
    }

    fn line(argv: &[OsString]) -> String {
        argv.join(" ".as_ref()).into_string().unwrap()
    }

    #[test]
    fn one_srun_brings_ranks_and_agents() {
        let planned = plan(&loose(), None, &["-N2", "-n", "4", "./app", "-n"]);
        assert_eq!(
            line(&planned.argv),
            "/bin/srun -N2 -n 4 --job-name=app /g/agent hold --by srun -- ./app -n"
        );
        assert_eq!((planned.env, planned.after_rank), (Vec::new(), None));
    }

    #[test]
    fn agents_that_the_step_would_kill_have_a_step_of_their_own_or_an_epilog_that_waits_for_them() {
        let plan = |launch: Launch| match Slurm.plan(&Launch { agent: "/g/agent".into(), ..launch }, &host())
        {
            Ok(Plan::Brought(Brought { argv, .. }) | Plan::Driven(Driven { argv, .. })) => line(&argv),
            other => panic!("{other:?}"),
        };
        let args = ["-n2", "./app"].map(OsString::from).to_vec();
        let launch = || Launch { args: args.clone(), ..Launch::default() };
        assert_eq!(plan(launch()), "/bin/srun -n2 ./app");
        let waits = "/bin/srun -n2 --job-name=app --task-epilog=/g/agent /g/agent hold --by srun -- ./app";
        assert_eq!(plan(Launch { hold_behind: true, ..launch() }), "/bin/srun -n2 ./app");
        assert_eq!(plan(Launch { hold_method: HoldMethod::Exec, ..launch() }), waits);
        let parts = || Launch { args: ["./a", ":", "./b"].map(OsString::from).to_vec(), ..Launch::default() };
        assert_eq!(plan(parts()), "/bin/srun ./a : ./b");
        let parts = plan(Launch { hold_method: HoldMethod::Exec, ..parts() });
        assert_eq!(parts.matches("--task-epilog=/g/agent").count(), 2, "{parts}");
    }

    #[test]
    fn agents_of_their_own_step_follow_wrappers_only_if_they_may_trace() {
        let plan = |scope: &str| {
            let host = host().with_file("/proc/sys/kernel/yama/ptrace_scope", scope);
            let args = ["-n2", "./app"].map(OsString::from).to_vec();
            let launch = Launch { args, hold_behind: true, agent: "/g/agent".into(), ..Launch::default() };
            matches!(Slurm.plan(&launch, &host).unwrap(), Plan::Driven(_))
        };
        assert_eq!(["0\n", "1\n", "2\n"].map(plan), [true, false, false]);
    }

    #[test]
    fn a_launch_stays_in_the_cluster_that_is_asked() {
        let plan = |hold_method| {
            let args = ["-Mgpu", "./app"].map(OsString::from).to_vec();
            Slurm.plan(&Launch { args, hold_method, ..Launch::default() }, &loose())
        };
        for method in [HoldMethod::Detect, HoldMethod::Mpir] {
            let error = plan(method).unwrap_err().to_string();
            assert!(error.starts_with("srun's --clusters sends the job to a cluster"), "{error}");
        }
    }

    #[test]
    fn agents_outlive_the_ranks_in_a_job_that_does() {
        let plan = |host: &FakeHost, args: &[&str], launch: Launch| {
            let args = args.iter().map(OsString::from).collect();
            Slurm.plan(&Launch { args, linger: true, ..launch }, host)
        };
        let driven = |plan: Result<Plan>| matches!(plan.unwrap(), Plan::Driven(_));
        let inside = loose().with_env("SLURM_JOB_ID", "7");
        assert!(driven(plan(&inside, &["./app"], Launch::default())));
        assert!(driven(plan(&inside, &["./a", ":", "./b"], Launch::default())));
        assert!(driven(plan(&loose(), &["--jobid=7", "./app"], Launch::default())));
        let ends = plan(&loose(), &["./app"], Launch::default()).unwrap_err();
        assert_eq!(ends.to_string(), "the job that srun makes ends with the ranks, and all in it");
        let with_them = "agents that a launcher brings with the ranks end with them";
        let brought = plan(&inside, &["./a"], Launch { hold_method: HoldMethod::Exec, ..Launch::default() });
        assert_eq!(brought.unwrap_err().to_string(), with_them);
        let behind = || Launch { hold_behind: true, ..Launch::default() };
        assert!(driven(plan(&inside, &["./a"], behind())));
        let restricted = loose().with_env("SLURM_JOB_ID", "7");
        let restricted = restricted.with_file("/proc/sys/kernel/yama/ptrace_scope", "1\n");
        assert_eq!(plan(&restricted, &["./a"], behind()).unwrap_err().to_string(), with_them);
        let hydra = || Launch { launcher: Some("mpiexec.hydra".into()), ..Launch::default() };
        assert!(plan(&inside, &["./a"], hydra()).is_ok());
        let strict = host().with_env("SLURM_JOB_ID", "7");
        assert_eq!(plan(&strict, &["./a"], hydra()).unwrap_err().to_string(), with_them);
    }

    #[test]
    fn no_epilog_delays_the_end_where_agents_survive_the_step() {
        let planned = plan(&loose(), None, &["-n1", "--task-epilog=/mine", "./app"]);
        assert_eq!(
            line(&planned.argv),
            "/bin/srun -n1 --task-epilog=/mine --job-name=app /g/agent hold --by srun -- ./app"
        );
        assert_eq!(planned.after_rank, None);
    }

    fn gift() -> AgentGift {
        AgentGift { command: vec!["/g/agent".into(), "serve".into()], word: None }
    }

    #[test]
    fn agents_get_nothing_that_was_meant_for_the_users_srun() {
        let host = host().with_env("SLURM_CPU_BIND", "x").with_env("SLURM_CONF", "/c").with_env("HOME", "/h");
        let host = host.with_answer("/bin/srun --version", "slurm 21.08.8\n", "");
        let app = AppRef {
            app: "3kx9w0fz".parse().unwrap(),
            hosts: vec!["n1".to_owned(), "n2".to_owned()],
            job: Some(JobRef("7.0".to_owned())),
            wlm_data: Vec::new(),
        };
        let agent = AgentCommand::new("/g/agent".into(), SendAgent::Never, |host| Ok(host.into()));
        let [start] = &plan_agents(&app, &agent, &gift(), &host).unwrap()[..] else { panic!("several") };
        let line = start.argv.join(" ".as_ref()).into_string().unwrap();
        assert!(
            line.starts_with("/bin/srun --quiet --jobid=7 ") && line.ends_with("-- /g/agent serve"),
            "{line}"
        );
        assert!(line.contains(" --export=NONE --gres=none "), "{line}");
        let names: Vec<_> = start.env.iter().map(|(name, _)| name.to_str().unwrap()).collect();
        assert_eq!(names, ["PATH", "SLURM_CONF", "HOME"]);
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
            let app = AppRef { app: "3kx9w0fz".parse().unwrap(), hosts, job, wlm_data: Vec::new() };
            let agent = AgentCommand::new("/g/agent".into(), SendAgent::Never, |host| Ok(host.into()));
            plan_agents(&app, &agent, &gift(), &host)
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
    fn mpir_leaves_the_command_line_alone() {
        let plan = |launcher: &str, args: &[&str], hold_method| {
            let launcher = Some(launcher.into());
            let args = args.iter().map(OsString::from).collect();
            Slurm.plan(&Launch { args, launcher, hold_method, ..Launch::default() }, &host())
        };
        let check = |launcher: &str, args: &[&str], method, at_breakpoint| {
            let path = format!("/bin/{launcher}");
            let argv = [&[path.as_str()], args].concat().into_iter().map(OsString::from).collect();
            assert_eq!(plan(launcher, args, method).unwrap(), Plan::Driven(Driven { argv, at_breakpoint }));
        };
        let (one, two) = (["-N2", "./app"], ["./a", ":", "./b"]);
        for launcher in ["srun", "mpiexec.hydra"] {
            check(launcher, &one, HoldMethod::Mpir, AtBreakpoint::AsItHolds);
            check(launcher, &one, HoldMethod::MpirStop, AtBreakpoint::Stay);
        }
        check("srun", &two, HoldMethod::Mpir, AtBreakpoint::AsItHoldsInAllThreads);
        check("mpiexec.hydra", &two, HoldMethod::MpirStop, AtBreakpoint::Stay);
        let refused = "srun cannot be stopped together with the ranks of several parts (':'): it starts each part in a thread of its own";
        assert_eq!(plan("srun", &two, HoldMethod::MpirStop).unwrap_err().to_string(), refused);
    }

    #[test]
    fn the_users_epilog_is_remembered_and_other_launchers_are_as_anywhere() {
        let args = ["--task-epilog=/my/epilog", "./app"].map(OsString::from).to_vec();
        let launch =
            Launch { args, hold_method: HoldMethod::Exec, agent: "/g/agent".into(), ..Launch::default() };
        let planned = Slurm.plan(&launch, &host()).unwrap();
        let Plan::Brought(planned) = planned else { panic!("{planned:?}") };
        let after_rank = AfterRank { program: Some("/my/epilog".into()), within: EPILOG_WITHIN };
        assert_eq!(planned.after_rank, Some(after_rank));
        let planned = plan(&host(), Some("mpiexec.hydra"), &["-n", "1", "./app"]);
        assert_eq!(planned.argv[0], "mpiexec.hydra");
    }
}
