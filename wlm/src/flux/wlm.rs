//! Flux's implementation of the WLM interface: the part that runs commands.

use std::ffi::OsString;
use std::path::Path;

use async_trait::async_trait;
use gantry_types::launch::{Mixed, SendAgent};

use super::ask::is_one_host;
use super::attach;
use super::command::build_name;
use super::detect::detect;
use super::extras::FluxExtras;
use super::jobs::FluxJobs;
use super::launcher::{FLUX_RUN, build_count};
use super::waits::RunWaits;
use super::wanted::{build_args, build_group_args};
use crate::error::{Error, Result};
use crate::give::start_steps;
use crate::host::Host;
use crate::job::{Adoption, AppRef, JobRef};
use crate::launch::{AgentCommand, Brought, Launch, Plan, ProcessOwner};
use crate::launcher::{Given, find_program, locate, plan_driven, plan_launcher, recognize};
use crate::seam::{Capabilities, Evidence, Wlm};

/// Other verbs of Flux that start something, and the suggested replacement.
const OTHER_VERBS: [(&str, &str); 3] = [
    ("bulksubmit", "leave out 'bulksubmit', and launch the jobs one by one"),
    ("batch", "submit scripts with 'gantry submit'"),
    ("alloc", "run 'flux alloc', and launch inside of it"),
];

/// Flux.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Flux;

#[async_trait]
impl Wlm for Flux {
    fn name(&self) -> &'static str {
        "flux"
    }

    fn detect(&self, host: &dyn Host) -> Option<Evidence> {
        detect(host)
    }

    fn capabilities(&self) -> &'static Capabilities {
        &CAPABILITIES
    }

    fn plan(&self, launch: &Launch, host: &dyn Host) -> Result<Plan> {
        let name = launch.launcher.clone().unwrap_or_else(|| "flux".into());
        let path = find_program(&name, host)?;
        let is_flux = recognize(&path, host).is_ok_and(|it| *it.dialect == FLUX_RUN);
        if launch.hold_method.is_by_launcher() {
            if is_flux {
                let hint = "leave out --hold-method: agents that 'flux run' brings hold the ranks";
                return Err(Error::invalid_with("'flux run' holds its ranks for its own tools only", hint));
            }
            return plan_driven(&name, launch, host);
        }
        check_agent(launch)?;
        if !is_flux {
            return plan_launcher(&name, launch, host).map(Plan::Brought);
        }
        plan_run(&name, launch, host).map(Plan::Brought)
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
        start_steps(app, agent, host, owner, |app, agent, gift, host| {
            attach::plan_agents(app, agent, gift, host).map(|step| vec![step])
        })
        .await
    }
}

/// The capabilities of Flux.
static CAPABILITIES: Capabilities = Capabilities {
    jobs: Some(&FluxJobs),
    batch: Some(&FluxJobs),
    described: Some(build_args),
    mixed: Some(plan_mixed),
    launcher_output: Some(&FluxJobs),
    launcher_waits: Some(&RunWaits),
    extras: Some(&FluxExtras),
    ..Capabilities::NONE
};

fn plan_mixed(mixed: &Mixed, launch: &Launch, host: &dyn Host) -> Result<Plan> {
    check_agent(launch)?;
    let launch = Launch { args: build_group_args(mixed)?, ..launch.clone() };
    let planned = plan_run("flux".as_ref(), &launch, host)?;
    let env = mixed.parts.iter().flat_map(|part| part.env.iter().cloned());
    Ok(Plan::Brought(Brought { env: env.collect(), ..planned }))
}

/// Refuses requests that a launcher cannot fulfil for the agents it starts.
fn check_agent(launch: &Launch) -> Result<()> {
    if launch.send_agent == SendAgent::Always {
        return Err(Error::invalid_with(
            "the agent cannot be sent to the nodes: it would be started by the launcher with the ranks",
            "have gantry at a path that all nodes see, or attach to a job that runs: there it is sent",
        ));
    }
    if launch.linger {
        let hint = "attach to the job instead, or leave out the lingering";
        return Err(Error::invalid_with(
            "the job of a launch ends with its ranks, and its nodes are others' then",
            hint,
        ));
    }
    Ok(())
}

/// Refuses what makes Flux stop the job's processes for a debugger. Those are the agents, which would wait for ever.
///
/// Source: flux-shell(1), `stop-tasks-in-exec`; flux-run(1), `--debug-emulate`.
fn refuse_stops(given: &[&Given]) -> Result<()> {
    let stops = |given: &&&Given| {
        let is_stop = |value: &OsString| {
            value.to_str().is_some_and(|text| text.split('=').next() == Some("stop-tasks-in-exec"))
        };
        given.name == "debug-emulate" || (given.name == "setopt" && given.values.iter().any(is_stop))
    };
    if given.iter().any(|given| stops(&given)) {
        return Err(Error::invalid_with(
            "'flux run' is told to stop the ranks for a debugger, and would stop gantry's agents",
            "leave '--debug-emulate' and '-o stop-tasks-in-exec' out: 'gantry launch --hold' holds the ranks",
        ));
    }
    Ok(())
}

/// Plans the user's `flux run` with the agent in place of the program. The job is named after the program, as without
/// gantry. `flux submit` has the same options and would not wait for the ranks, so it becomes `flux run`.
fn plan_run(name: &std::ffi::OsStr, launch: &Launch, host: &dyn Host) -> Result<Brought> {
    let mut args: Vec<OsString> = launch.args.clone();
    let first = args.first().and_then(|word| word.to_str());
    if let Some((verb, hint)) = OTHER_VERBS.iter().find(|(verb, _)| first == Some(verb)) {
        return Err(Error::invalid_with(
            format!("gantry launches by 'flux run', and not by 'flux {verb}'"),
            *hint,
        ));
    }
    if first == Some("submit") {
        args[0] = "run".into();
    }
    let parts = locate(&FLUX_RUN, &args, &host.environment())?;
    let given: Vec<&Given> = parts.iter().flat_map(|part| &part.given).collect();
    let first_part = parts.first().ok_or_else(|| Error::invalid("nothing to launch: no part"))?;
    refuse_stops(&given)?;
    let mut options: Vec<OsString> = build_name(&given, &args[first_part.program]).into_iter().collect();
    if is_one_host(host)? {
        options.push(build_count(true));
    }
    let start = first_part.options.start;
    args.splice(start..start, options);
    plan_launcher(name, &Launch { args, ..launch.clone() }, host)
}

#[cfg(test)]
mod tests {
    use gantry_types::launch::HoldMethod;

    use super::*;
    use crate::host::fake::FakeHost;

    fn host() -> FakeHost {
        FakeHost::default()
            .with_env("PATH", "/bin")
            .with_file("/bin/flux", "")
            .with_file("/bin/mpiexec.hydra", "")
    }

    fn plan(launch: Launch) -> std::result::Result<String, String> {
        let launch = Launch { agent: "/g/agent".into(), scratch: "/s".into(), ..launch };
        match Flux.plan(&launch, &host()) {
            Ok(Plan::Brought(it)) => Ok(it.argv.join(" ".as_ref()).into_string().unwrap()),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error.to_string()),
        }
    }

    fn args(line: &str) -> Launch {
        Launch { args: line.split(' ').map(OsString::from).collect(), ..Launch::default() }
    }

    const OURS: &str =
        "--env=GANTRY_TICKET --env=GANTRY_FLUX_NODE={{node.name}} --env=GANTRY_FLUX_NTASKS={{node.ntasks}}";
    const HOLD: &str = "/g/agent hold --by flux --";

    #[test]
    fn one_flux_run_brings_ranks_and_agents() {
        let expected = format!("flux run --job-name=app -N2 -n 4 {OURS} --verbose {HOLD} ./app -n");
        assert_eq!(plan(args("-N2 -n 4 ./app -n")), Ok(expected.clone()));
        assert_eq!(plan(args("run -N2 -n 4 ./app -n")), Ok(expected.clone()));
        assert_eq!(plan(args("submit -N2 -n 4 ./app -n")), Ok(expected));
        let own = format!("flux run --job-name=mine -v --env=-* -- {OURS} {HOLD} app");
        let own = own.replace(&format!(" -- {OURS}"), &format!(" {OURS} --"));
        assert_eq!(plan(args("--job-name=mine -v --env=-* -- app")), Ok(own));
    }

    #[test]
    fn all_ranks_are_on_the_host_that_has_all_brokers() {
        let host = host().with_env("FLUX_URI", "local:///x").with_answer(
            "/bin/flux getattr hostlist",
            "vm,vm\n",
            "",
        );
        let launch = Launch { agent: "/g/agent".into(), ..args("-N2 -n 4 ./app") };
        let Ok(Plan::Brought(planned)) = Flux.plan(&launch, &host) else { panic!("no plan") };
        let line = planned.argv.join(" ".as_ref()).into_string().unwrap();
        assert!(line.contains(" --env=GANTRY_FLUX_NTASKS={{ntasks}} "), "{line}");
        assert!(!line.contains("node.ntasks"), "{line}");
    }

    #[test]
    fn other_launchers_are_as_anywhere() {
        let hydra = Launch { launcher: Some("mpiexec.hydra".into()), ..args("-n 2 a") };
        assert_eq!(plan(hydra), Ok("mpiexec.hydra -n 2 /g/agent hold --by hydra -- a".to_owned()));
    }

    #[test]
    fn what_cannot_be_planned() {
        assert_eq!(
            plan(args("bulksubmit -n4 a")).unwrap_err(),
            "gantry launches by 'flux run', and not by 'flux bulksubmit'"
        );
        let only_of_submit = plan(args("submit --watch -n4 a")).unwrap_err();
        assert!(only_of_submit.contains("option '--watch' of flux run is unknown"), "{only_of_submit}");
        for stop in ["--debug-emulate", "-o stop-tasks-in-exec", "-ostop-tasks-in-exec=1"] {
            let stopped = plan(args(&format!("run {stop} -n4 a"))).unwrap_err();
            assert!(stopped.contains("would stop gantry's agents"), "{stop}: {stopped}");
        }
        let held = Launch { hold_method: HoldMethod::Mpir, ..args("-n4 a") };
        assert_eq!(plan(held).unwrap_err(), "'flux run' holds its ranks for its own tools only");
        let sent = Launch { send_agent: SendAgent::Always, ..args("-n4 a") };
        assert!(plan(sent).unwrap_err().starts_with("the agent cannot be sent"));
        let lingers = Launch { linger: true, ..args("-n4 a") };
        assert!(plan(lingers).unwrap_err().starts_with("the job of a launch ends with its ranks"));
    }

    #[test]
    fn an_instance_decides_before_what_is_installed() {
        let both = host()
            .with_env("FLUX_URI", "local:///x")
            .with_file("/bin/srun", "")
            .with_file("/etc/slurm/slurm.conf", "");
        assert_eq!(crate::choose(None, &both).unwrap().wlm.name(), "flux");
    }
}
