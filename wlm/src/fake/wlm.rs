//! The cluster as a workload manager.

use std::ffi::OsString;
use std::path::Path;

use async_trait::async_trait;
use gantry_types::error::Failure;
use gantry_types::id::Pid;
use gantry_types::status::EndCause;
use zeroize::Zeroizing;

use crate::caps::batch::BatchJobs;
use crate::caps::jobs::Jobs;
use crate::caps::queue::{JobStarter, Queue, Stop};
use crate::direct::Options;
use crate::error::{Error, Result};
use crate::host::Host;
use crate::job::{Adoption, AppRef, EndedApp, JobRef, Submission};
use crate::launch::{AgentCommand, Direct, Launch, Plan, ProcessOwner, Queued};
use crate::localhost::command::{self, parse_args};
use crate::localhost::processes::find_target;
use crate::seam::{Capabilities, Evidence, Reach, Wlm};
use crate::wanted::build_plain_args;

use super::agents;
use super::job::{Job, State, Work};
use super::site::{self, JOB, LOOK_EVERY, SITE, Site};

/// The simulated cluster.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fake;

#[async_trait]
impl Wlm for Fake {
    fn name(&self) -> &'static str {
        "fake"
    }

    fn detect(&self, host: &dyn Host) -> Option<Evidence> {
        host.env(SITE).map(|site| Evidence(format!("{SITE} is {}", site.display())))
    }

    fn capabilities(&self) -> &'static Capabilities {
        &CAPABILITIES
    }

    fn plan(&self, launch: &Launch, host: &dyn Host) -> Result<Plan> {
        if launch.launcher.is_some() || launch.hold_method.is_by_launcher() {
            return Err(Error::invalid_with(
                "this cluster has no launcher",
                "leave out --launcher and --hold-method",
            ));
        }
        let options = parse_args(&launch.args)?;
        let site = Site::read(host)?;
        match Job::of_process(host)? {
            Some(job) => {
                check_nodes(options.nodes_needed(), job.nodes(host)?, "the job")?;
                lay_out(options, &job).map(Plan::Direct)
            }
            None => {
                check_nodes(options.nodes_needed(), site.nodes, "the cluster")?;
                Ok(Plan::Queued(Queued { args: launch.args.clone() }))
            }
        }
    }

    async fn adopt(
        &self,
        job: &JobRef,
        _told: &[String],
        _agent: &Path,
        host: &dyn Host,
    ) -> Result<Adoption> {
        let (site, found) = (Site::read(host)?, Job::find(job, host)?);
        if site.hangs {
            std::future::pending::<()>().await;
        }
        site.check_answer()?;
        match found.state(host)? {
            State::Queued => Err(found.still_queued(&site)),
            State::Ended(how) => Err(found.has_ended(&how)),
            State::Running => {
                let (job, pid) = found.newest_process(host)?;
                let placement = find_target(&pid.to_string(), host)?;
                Ok(Adoption { job, placement, marks: None })
            }
        }
    }

    async fn start_agents(
        &self,
        app: &AppRef,
        agent: &AgentCommand,
        host: &dyn Host,
        owner: &dyn ProcessOwner,
    ) -> Result<()> {
        if let Some(name) = &app.job {
            Job::find(name, host)?.note_attachment(name)?;
        }
        while Site::read(host)?.stuck {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Site::read(host)?.check_hosts(&app.hosts)?;
        for host in &app.hosts {
            let ticket = agent.ticket(host)?;
            owner.start_agent(host, &agent.program, ticket).await?;
        }
        Ok(())
    }
}

/// Optional abilities of this cluster.
static CAPABILITIES: Capabilities = Capabilities {
    reach: Reach::ThisMachine,
    jobs: Some(&Fake),
    batch: Some(&Fake),
    queue: Some(&Fake),
    described: Some(|wanted| build_plain_args(wanted, "fake")),
    ..Capabilities::NONE
};

fn check_nodes(asked: u32, there: u32, whose: &str) -> Result<()> {
    if asked <= there {
        return Ok(());
    }
    Err(Error::invalid_with(
        format!("{asked} nodes are asked for, and {whose} has {there}"),
        "ask for fewer nodes",
    ))
}

/// Places ranks on the first nodes of the job.
fn lay_out(options: Options, job: &Job) -> Result<Direct> {
    let hosts = site::hosts(options.nodes_needed());
    Ok(Direct { job: Some(job.name()), ..command::lay_out(options, hosts)? })
}

impl Jobs for Fake {
    fn is_inside(&self, host: &dyn Host) -> bool {
        host.env(JOB).is_some()
    }

    fn node_variables(&self) -> &'static [&'static str] {
        &[]
    }

    fn find_cause(&self, ended: &EndedApp, host: &dyn Host) -> Result<Option<EndCause>> {
        Job::find(&ended.job, host)?.cause(host)
    }
}

impl BatchJobs for Fake {
    fn submit(&self, submission: &Submission, host: &dyn Host) -> Result<JobRef> {
        if submission.held.is_some() {
            return Err(Error::invalid_with("this cluster cannot hold a batch script", "leave out the hold"));
        }
        let site = Site::read(host)?;
        site.check_submission()?;
        let job = Job::create(host)?;
        let Submission { args, env, cwd, .. } = submission;
        job.start(&site, &Work { nodes: site.nodes, command: args, env, cwd: cwd.as_ref(), input: None })?;
        Site::wait_for_acceptance(host)?;
        Ok(job.name())
    }

    fn cancel(&self, job: &JobRef, host: &dyn Host) -> Result<()> {
        Job::find(job, host)?.cancel(host)
    }
}

#[async_trait]
impl Queue for Fake {
    fn submit_starter(&self, queued: &Queued, starter: &JobStarter, host: &dyn Host) -> Result<JobRef> {
        let site = Site::read(host)?;
        site.check_submission()?;
        let job = Job::create(host)?;
        let command = [starter.program.clone(), "start".into(), self.name().into(), "never".into()];
        let input = Zeroizing::new(format!("{}\n", starter.input.as_str()));
        let nodes = parse_args(&queued.args)?.nodes_needed();
        let cwd = starter.cwd.as_ref();
        job.start(&site, &Work { nodes, command: &command, env: &[], cwd, input: Some(input) })?;
        Site::wait_for_acceptance(host)?;
        Ok(job.name())
    }

    fn find_nodes(&self, queued: &Queued, job: &JobRef, host: &dyn Host) -> Result<Direct> {
        let (site, job) = (Site::read(host)?, Job::find(job, host)?);
        site.check_answer()?;
        match job.state(host)? {
            State::Queued => Err(job.still_queued(&site)),
            State::Ended(how) => Err(job.has_ended(&how)),
            State::Running => lay_out(parse_args(&queued.args)?, &job),
        }
    }

    async fn run_agents(
        &self,
        agent: &AgentCommand,
        on: Option<&[String]>,
        stop: Stop<'_>,
        host: &dyn Host,
    ) -> Result<()> {
        let site = Site::read(host)?;
        let job = Job::of_process(host)?
            .ok_or_else(|| Error::invalid_with("this process is in no job", "submit it"))?;
        let all = site::hosts(job.nodes(host)?);
        let hosts = on.map_or(all, <[String]>::to_vec);
        site.check_hosts(&hosts)?;
        agents::run(agent, &hosts, &job, stop).await
    }

    fn read_variables(
        &self,
        job: &JobRef,
        _pid: Option<Pid>,
        host: &dyn Host,
    ) -> Result<Vec<(OsString, OsString)>> {
        Job::find(job, host)?;
        Ok(vec![(JOB.into(), job.0.clone().into())])
    }

    async fn look(&self, _program: &Path, _host: &dyn Host) -> String {
        String::new()
    }

    async fn leave_word(&self, _word: &Failure, _host: &dyn Host) -> Result<()> {
        Ok(())
    }

    async fn leave(&self, _host: &dyn Host) -> Result<()> {
        Ok(())
    }
}
