//! PBS's implementation of the WLM interface.

use std::ffi::OsString;
use std::path::Path;

use async_trait::async_trait;
use gantry_types::error::{Failure, Kind};
use gantry_types::id::Pid;
use gantry_types::launch::SendAgent;
use gantry_types::rank_set::RankSet;
use gantry_types::status::EndCause;

use super::ask::find_command;
use super::command::{Options, parse_args};
use super::detect::{detect, job};
use super::extras::PbsExtras;
use super::place::{build_slots, read_environment};
use super::qstat::ask_job;
use super::submit::PbsBatch;
use super::{agents, attach, cause, look, submit, tm, wanted, word};
use crate::caps::jobs::Jobs;
use crate::caps::launcher_output::LauncherOutput;
use crate::caps::queue::{JobStarter, Queue, Stop};
use crate::direct;
use crate::error::{Error, Result};
use crate::host::Host;
use crate::job::{Adoption, AppRef, EndedApp, JobPhase, JobRef};
use crate::launch::{AgentCommand, Direct, Launch, Plan, ProcessOwner, Queued};
use crate::launcher::{plan_driven, plan_launcher};
use crate::seam::{Capabilities, Evidence, Wlm};
use crate::slots::HostSlots;

/// The remedy for too few places.
const MORE_PLACES: &str = "ask for fewer ranks, give --ppn RANKS, or ask for more places in the job: -l select=2:ncpus=8:mpiprocs=8";

/// The remedy for hosts without gantry.
const SEND_INSIDE: &str = "have gantry where the job's first host sees it, and launch with --send-agent in the job's script or in 'qsub -I'";

/// PBS.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pbs;

#[async_trait]
impl Wlm for Pbs {
    fn name(&self) -> &'static str {
        "pbs"
    }

    fn detect(&self, host: &dyn Host) -> Option<Evidence> {
        detect(host)
    }

    fn capabilities(&self) -> &'static Capabilities {
        &CAPABILITIES
    }

    fn plan(&self, launch: &Launch, host: &dyn Host) -> Result<Plan> {
        match (&launch.launcher, launch.hold_method.is_by_launcher()) {
            (Some(_), true) if job(host).is_none() => {
                let hint = "launch in a job, or leave out --hold-method";
                return Err(Error::invalid_with(
                    "outside of a job no launcher of PBS's hosts can be driven",
                    hint,
                ));
            }
            (Some(launcher), true) => return plan_driven(launcher, launch, host),
            (Some(launcher), false) => return plan_launcher(launcher, launch, host).map(Plan::Brought),
            (None, true) => {
                let hint = "name it with --launcher, or leave out --hold-method";
                return Err(Error::invalid_with("no launcher is named that could hold its ranks", hint));
            }
            (None, false) => {}
        }
        let options = parse_args(&launch.args)?;
        if job(host).is_some() {
            return plan_inside(options, host).map(Plan::Direct);
        }
        if launch.send_agent == SendAgent::Always {
            let message = "PBS cannot copy files to the hosts of a job that does not run yet";
            return Err(Error::invalid_with(message, SEND_INSIDE));
        }
        find_command("qsub".as_ref(), host)?;
        Ok(Plan::Queued(Queued { args: launch.args.clone() }))
    }

    fn wants_labels(&self, args: &[OsString], _host: &dyn Host) -> bool {
        parse_args(args).is_ok_and(|options| options.common.labels)
    }

    async fn adopt(&self, job: &JobRef, _told: &[String], agent: &Path, host: &dyn Host) -> Result<Adoption> {
        attach::adopt(job, agent, host).await
    }

    async fn start_agents(
        &self,
        app: &AppRef,
        agent: &AgentCommand,
        host: &dyn Host,
        owner: &dyn ProcessOwner,
    ) -> Result<()> {
        if attach::start_agents(app, agent, host, owner).await? {
            return Ok(());
        }
        agents::start_agents(app, agent, host).await
    }
}

/// Optional abilities of PBS.
static CAPABILITIES: Capabilities = Capabilities {
    jobs: Some(&Pbs),
    batch: Some(&PbsBatch),
    queue: Some(&Pbs),
    described: Some(wanted::build_args),
    launcher_output: Some(&Pbs),
    extras: Some(&PbsExtras),
    ..Capabilities::NONE
};

/// The variable in which a process finds its job.
pub(crate) const JOB_VARIABLES: &[&str] = &[tm::environment::JOB];

impl Jobs for Pbs {
    fn is_inside(&self, host: &dyn Host) -> bool {
        job(host).is_some()
    }

    fn node_variables(&self) -> &'static [&'static str] {
        // A process with another task's variables could not use its mom.
        &["PBS_"]
    }

    fn find_cause(&self, ended: &EndedApp, host: &dyn Host) -> Result<Option<EndCause>> {
        // A process inside the job ends with it, and needs no cause; and qstat would create a file in its directory.
        if super::detect::job(host).is_some_and(|own| own == *ended.job.0) {
            return Ok(None);
        }
        cause::find_cause(ended, host)
    }
}

impl LauncherOutput for Pbs {
    fn explain_end(&self, command: &[String], status: &str, stderr: &str) -> Option<Failure> {
        attach::explain_end(command, status, stderr)
            .or_else(|| cause::explain_launcher(command, status, stderr))
    }
}

#[async_trait]
impl Queue for Pbs {
    fn submit_starter(&self, queued: &Queued, starter: &JobStarter, host: &dyn Host) -> Result<JobRef> {
        submit::submit_starter(&parse_args(&queued.args)?, starter, host)
    }

    fn find_nodes(&self, queued: &Queued, job: &JobRef, host: &dyn Host) -> Result<Direct> {
        let found = match ask_job(job, host) {
            Err(error) if error.kind() == Kind::Gone => return Err(submit::ended_unseen(job)),
            found => found?,
        };
        match found.phase() {
            JobPhase::Running if !found.slots().is_empty() => {
                plan_ranks(parse_args(&queued.args)?.common, found.slots(), Some(job.clone()))
            }
            JobPhase::Running | JobPhase::Waiting => {
                Err(Error::not_yet(found.describe(), "'qstat -s' shows the reason", true))
            }
            // The exit status shows the cause. It comes a little later than the state.
            JobPhase::Ending if found.exit_status.is_none() => {
                Err(Error::not_yet(found.describe(), None, false))
            }
            JobPhase::Ending | JobPhase::Ended => Err(submit::ended_early(&found)),
        }
    }

    async fn run_agents(
        &self,
        agent: &AgentCommand,
        on: Option<&[String]>,
        stop: Stop<'_>,
        host: &dyn Host,
    ) -> Result<()> {
        agents::run_agents(agent, on, stop, host).await
    }

    fn read_variables(
        &self,
        job: &JobRef,
        pid: Option<Pid>,
        host: &dyn Host,
    ) -> Result<Vec<(OsString, OsString)>> {
        attach::read_variables(job, pid, host)
    }

    async fn look(&self, program: &Path, host: &dyn Host) -> String {
        look::tell(look::look(program, host).await)
    }

    async fn leave_word(&self, failure: &Failure, host: &dyn Host) -> Result<()> {
        word::leave(failure, host).await
    }

    async fn leave(&self, host: &dyn Host) -> Result<()> {
        look::leave(host).await
    }
}

/// Places ranks on the hosts of this process's job.
fn plan_inside(options: Options, host: &dyn Host) -> Result<Direct> {
    if let Some(option) = options.qsub.first() {
        let what = format!("'{}' is for qsub, and in a job nothing is submitted", option.to_string_lossy());
        return Err(Error::invalid_with(
            what,
            "leave out qsub's options; --nodes says how many hosts get ranks",
        ));
    }
    let hosts = build_slots(&read_environment(host)?)?;
    plan_ranks(options.common, hosts, job(host).map(|job| JobRef(job.to_string_lossy().into_owned())))
}

/// Places ranks on the hosts of a job.
fn plan_ranks(options: direct::Options, mut hosts: Vec<HostSlots>, job: Option<JobRef>) -> Result<Direct> {
    if let Some(first) = options.nodes {
        let first = usize::try_from(first).unwrap_or(usize::MAX);
        if first > hosts.len() {
            let what = format!("{first} hosts are asked for, and the job has {}", hosts.len());
            return Err(Error::invalid_with(what, "ask for fewer, or for a job with more: -l select=HOSTS"));
        }
        hosts.truncate(first);
    }
    let (hosts, layout) = options.place(hosts, MORE_PLACES)?;
    let (bind, mpi) = (options.bind, options.mpi);
    let parts = options.build_parts(layout.iter().map(RankSet::len).sum());
    Ok(Direct { hosts, layout, job, parts, bind, mpi, ..Direct::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::fake::FakeHost;

    fn inside() -> FakeHost {
        let variables = [
            ("PBS_JOBID", "7.head"),
            ("PBS_JOBCOOKIE", "AB"),
            ("PBS_NODENUM", "0"),
            ("PBS_TASKNUM", "00000001"),
            ("PBS_MOMPORT", "15003"),
            ("PBS_NODEFILE", "/aux/7"),
        ];
        let host =
            variables.iter().fold(FakeHost::default(), |host, (name, value)| host.with_env(name, value));
        host.with_file("/aux/7", "n1\nn1\nn2\nn2\n")
    }

    #[track_caller]
    fn check(args: &str, host: &FakeHost, expected: &str) {
        let args = args.split(' ').map(OsString::from).collect();
        let shown = match Pbs.plan(&Launch { args, ..Launch::default() }, host) {
            Ok(Plan::Direct(it)) => {
                let ranks: Vec<_> =
                    it.hosts.iter().zip(&it.layout).map(|(host, ranks)| format!("{host}:{ranks}")).collect();
                ranks.join(" ")
            }
            Ok(other) => format!("{other:?}"),
            Err(error) => error.to_string(),
        };
        assert_eq!(shown, expected);
    }

    #[test]
    fn ranks_fill_the_jobs_places() {
        check("./app", &inside(), "n1:0-1 n2:2-3");
        check("-n 3 ./app", &inside(), "n1:0-1 n2:2");
        check("-n 3 --map-by node ./app", &inside(), "n1:0,2 n2:1");
        check("--ppn 1 ./app", &inside(), "n1:0 n2:1");
        check("--nodes 1 ./app", &inside(), "n1:0-1");
        check("-n 5 ./app", &inside(), "5 ranks for 4 places on 2 hosts");
        check("--nodes 3 ./app", &inside(), "3 hosts are asked for, and the job has 2");
    }

    #[test]
    fn the_current_job_outweighs_installed_programs() {
        let listens = "  sl\n   0: 00000000:3A9B 00000000:0000 0A\n";
        let both = inside().with_file("/proc/net/tcp", listens).with_env("PATH", "/bin");
        let both = both.with_file("/bin/srun", "").with_file("/etc/slurm/slurm.conf", "");
        assert_eq!(crate::choose(None, &both).unwrap().wlm.name(), "pbs");
        assert_eq!(crate::registry::detected(&both).iter().filter(|(_, found)| found.is_some()).count(), 3);
    }

    #[test]
    fn a_job_that_is_being_ended_is_waited_for_until_its_exit_status_is_known() {
        let find = |stdout: &str, stderr: &str| {
            let host = FakeHost::default().with_env("PATH", "/bin").with_file("/bin/qstat", "");
            let host = host.with_answer("/bin/qstat -f -F json 7.head", stdout, stderr);
            let words = "qstat: PBS is not configured to maintain job history 7.head";
            let host = host.with_answer("/bin/qstat -x -f -F json 7.head", "", words);
            let queued = Queued { args: vec!["./app".into()] };
            Pbs.find_nodes(&queued, &JobRef("7.head".to_owned()), &host).unwrap_err()
        };
        let ask = |state: &str| find(&format!(r#"{{"Jobs": {{"7.head": {{"job_state": {state}}}}}}}"#), "");
        let ending = ask(r#""E""#);
        assert!(matches!(ending, Error::NotYet { .. }), "{ending}");
        let known = ask(r#""E", "Exit_status": 127"#).to_string();
        assert!(known.contains("being ended with 127, and its agents were not there"), "{known}");
        let ended = ask(r#""F", "Exit_status": 127"#).to_string();
        assert!(ended.contains("is ended with 127"), "{ended}");
        let unseen = find("", "qstat: Unknown Job Id 7.head");
        assert!(unseen.to_string().contains("ended before its agents were there"), "{unseen}");
        assert!(unseen.hint().is_some_and(|hint| hint.contains("-o FILE")), "{unseen}");
    }

    #[test]
    fn launchers_that_hold_their_ranks_are_driven_in_jobs() {
        let plan = |launcher: Option<&str>, host: &FakeHost| {
            let (args, hold_method) = (vec!["./app".into()], gantry_types::launch::HoldMethod::Mpir);
            let launcher = launcher.map(OsString::from);
            Pbs.plan(&Launch { args, launcher, hold_method, ..Launch::default() }, host)
        };
        let host = inside().with_env("PATH", "/bin").with_file("/bin/mpirun", "");
        let driven = plan(Some("mpirun"), &host).unwrap();
        assert!(matches!(driven, Plan::Driven(it) if it.argv == ["/bin/mpirun", "./app"]));
        let refused = |launcher, host, expected| {
            let error = plan(launcher, host).unwrap_err().to_string();
            assert_eq!(error, expected);
        };
        refused(None, &host, "no launcher is named that could hold its ranks");
        let outside = FakeHost::default().with_env("PATH", "/bin").with_file("/bin/mpirun", "");
        refused(Some("mpirun"), &outside, "outside of a job no launcher of PBS's hosts can be driven");
    }

    #[test]
    fn requests_that_cannot_be_planned() {
        check("-l select=1 ./app", &inside(), "'-l' is for qsub, and in a job nothing is submitted");
        check("./app", &FakeHost::default(), "there is no qsub in PATH");
        let login = FakeHost::default().with_env("PATH", "/bin").with_file("/bin/qsub", "");
        let (args, send_agent) = (vec!["./app".into()], SendAgent::Always);
        let sent = Pbs.plan(&Launch { args, send_agent, ..Launch::default() }, &login).unwrap_err();
        assert!(sent.hint().is_some_and(|it| it.contains("in the job's script")), "{sent}");
        check("-l select=2 ./app", &login, r#"Queued(Queued { args: ["-l", "select=2", "./app"] })"#);
    }
}
