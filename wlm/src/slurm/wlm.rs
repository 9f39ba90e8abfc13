//! Slurm at the seam: what acts.

use std::ffi::OsString;
use std::path::PathBuf;

use async_trait::async_trait;
use gantry_shared::error::Failure;
use gantry_shared::wire::hold::{GANTRY_SENT_AGENT, GANTRY_TASK_EPILOG, GANTRY_TICKET};

use super::conf::leftovers_survive;
use super::{
    AgentGroup, AgentStep, Holding, JobName, Target, attach, build_agent_step, build_held, detect,
    is_for_srun, parse_failure,
};
use crate::host::Host;
use crate::launcher::{
    Launcher, build_shim, find_dialect, find_launcher, find_program, locate, move_files, plan_launcher,
};
use crate::{
    Adoption, AgentCommand, AppRef, Brought, Driven, Error, Evidence, HoldMethod, JobRef, Launch, Plan,
    ProcessOwner, Result, StepStart, Wanted, Wlm,
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
        owner.start_step(plan_agents(app, agent, host)?).await
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

/// One srun starts all agents in a step of their own, beside what runs in the job.
fn plan_agents(app: &AppRef, agent: &AgentCommand, host: &dyn Host) -> Result<StepStart> {
    let job = app.job.as_ref().ok_or_else(|| Error::invalid("agents need a job of Slurm to run in"))?;
    let JobName::Plain(id) = job.0.parse::<Target>()?.job else {
        return Err(Error::invalid(format!("gantry cannot start agents in job {} yet", job.0)));
    };
    let srun = host.find_in_path("srun").ok_or_else(|| Error::NotFound {
        message: "there is no srun in PATH".to_owned(),
        hint: Some("install Slurm's commands, or add their folder to PATH".to_owned()),
    })?;
    let path = agent.send_to.as_ref().unwrap_or(&agent.program);
    let variables: &[&str] = if agent.send_to.is_some() { &[GANTRY_SENT_AGENT] } else { &[] };
    let mut argv = build_agent_step(&AgentStep {
        job: id,
        groups: &[AgentGroup { component: None, hosts: &app.hosts }],
        // Where it is sent, srun itself replaces the path by that on the nodes.
        agent: &[agent.program.clone().into_os_string(), "serve".into()],
        variables,
        bcast: agent.send_to.as_deref(),
    });
    if let Some(program) = argv.first_mut() {
        *program = srun.into_os_string();
    }
    let mut env = host.environment();
    env.retain(|(name, _)| !is_for_srun(name) && name != GANTRY_SENT_AGENT);
    if agent.send_to.is_some() {
        env.push((GANTRY_SENT_AGENT.into(), path.clone().into_os_string()));
    }
    // Every node knows its own name.
    Ok(StepStart { argv, env, ticket: agent.ticket("").map_err(Error::NotStarted)? })
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

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
        };
        let agent = AgentCommand::new("/g/agent".into(), Some("/tmp/a".into()), |host| Ok(host.into()));
        let start = plan_agents(&app, &agent, &host).unwrap();
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
    }

    #[test]
    fn the_users_epilog_is_remembered_and_other_launchers_are_as_anywhere() {
        let planned = plan(&host(), None, &["--task-epilog=/my/epilog", "./app"]);
        assert_eq!(planned.env[0], (GANTRY_TASK_EPILOG.into(), Some("/my/epilog".into())));
        let planned = plan(&host(), Some("mpiexec.hydra"), &["-n", "1", "./app"]);
        assert_eq!(planned.argv[0], "/bin/mpiexec.hydra");
    }
}
