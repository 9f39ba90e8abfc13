//! Slurm at the seam: what acts.

use std::path::PathBuf;

use async_trait::async_trait;
use gantry_shared::error::Failure;
use gantry_shared::placement::Placement;
use gantry_shared::wire::hold::{GANTRY_SENT_AGENT, GANTRY_TASK_EPILOG, GANTRY_TICKET};

use super::{Holding, build_held, detect, parse_failure};
use crate::host::Host;
use crate::launcher::{Launcher, build_shim, find_launcher, locate, move_files, plan_launcher};
use crate::{
    AgentCommand, AppRef, Brought, Error, Evidence, JobRef, Launch, Plan, ProcessOwner, Result, Wlm,
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
        let (_, dialect) = find_launcher(&name, host)?;
        let planned = match dialect.launcher {
            Launcher::Srun => plan_srun(&name, launch, host),
            Launcher::Hydra | Launcher::OpenMpi => plan_launcher(&name, launch, host),
        };
        planned.map(Plan::Brought)
    }

    async fn adopt(&self, job: &JobRef, _host: &dyn Host) -> Result<Placement> {
        Err(Error::Invalid {
            message: format!("attaching to {} by Slurm is not built in yet", job.0),
            hint: Some("launch it with gantry".to_owned()),
        })
    }

    async fn start_agents(
        &self,
        _app: &AppRef,
        _agent: &AgentCommand,
        _host: &dyn Host,
        _owner: &dyn ProcessOwner,
    ) -> Result<()> {
        Err(Error::Invalid {
            message: "agents of their own step are not built in yet".to_owned(),
            hint: None,
        })
    }

    fn explain(&self, command: &[String], status: &str, words: &str) -> Option<Failure> {
        Some(parse_failure(command, status, words))
    }
}

/// One srun brings ranks and agents. What it runs after each task waits until the node's agent has cleaned up, where it would be killed with
/// the step.
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
        task_epilog: Some(launch.agent_on_nodes()),
        bcast: launch.send_agent_to.as_deref(),
    };
    let held = build_held(&args, &parts, &holding, &environment)?;
    let mut argv = vec![path.into_os_string()];
    argv.extend(held.args);
    let sent = launch.send_agent_to.clone().map(PathBuf::into_os_string);
    let env = vec![(GANTRY_TASK_EPILOG.into(), held.user_epilog), (GANTRY_SENT_AGENT.into(), sent)];
    Ok(Brought { argv, env, files })
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
    fn the_users_epilog_is_remembered_and_other_launchers_are_as_anywhere() {
        let planned = plan(&host(), None, &["--task-epilog=/my/epilog", "./app"]);
        assert_eq!(planned.env[0], (GANTRY_TASK_EPILOG.into(), Some("/my/epilog".into())));
        let planned = plan(&host(), Some("mpiexec.hydra"), &["-n", "1", "./app"]);
        assert_eq!(planned.argv[0], "/bin/mpiexec.hydra");
    }
}
