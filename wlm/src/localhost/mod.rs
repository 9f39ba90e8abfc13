//! Ranks on this machine, without a workload manager. The default, because it needs nothing.

pub(crate) mod command;
pub(crate) mod processes;
mod wanted;

use std::ffi::OsString;
use std::path::Path;

use async_trait::async_trait;
use gantry_types::launch::{HoldMethod, Mixed};
use gantry_types::rank_set::RankSet;

use crate::error::{Error, Result};
use crate::host::Host;
use crate::job::{Adoption, AppRef, JobRef};
use crate::launch::{AgentCommand, Direct, Launch, Plan, ProcessOwner};
use crate::launcher::{find_program, plan_driven, plan_launcher, recognize};
use crate::seam::{Capabilities, Evidence, Reach, Wlm};
use crate::wanted::lay_out;

/// This machine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Localhost;

#[async_trait]
impl Wlm for Localhost {
    fn name(&self) -> &'static str {
        "localhost"
    }

    fn detect(&self, _host: &dyn Host) -> Option<Evidence> {
        Some(Evidence("this machine is always there".to_owned()))
    }

    fn capabilities(&self) -> &'static Capabilities {
        &CAPABILITIES
    }

    fn plan(&self, launch: &Launch, host: &dyn Host) -> Result<Plan> {
        match (&launch.launcher, launch.hold_method) {
            (Some(launcher), HoldMethod::Mpir | HoldMethod::MpirStop) => {
                return plan_driven(launcher, launch, host);
            }
            (Some(launcher), HoldMethod::Detect)
                if recognize(&find_program(launcher, host)?, host).is_err() =>
            {
                return plan_driven(launcher, launch, host);
            }
            (Some(launcher), _) => return plan_launcher(launcher, launch, host).map(Plan::Brought),
            (None, HoldMethod::Mpir | HoldMethod::MpirStop) => {
                let hint = "name it with --launcher, or leave out --hold-method";
                return Err(Error::invalid_with("no launcher is named that could hold its ranks", hint));
            }
            (None, _) => {}
        }
        let options = command::parse_args(&launch.args)?;
        let hosts = command::build_hosts(&host.hostname(), options.nodes_needed());
        command::lay_out(options, hosts).map(Plan::Direct)
    }

    fn wants_labels(&self, args: &[OsString], _host: &dyn Host) -> bool {
        command::parse_args(args).is_ok_and(|options| options.labels)
    }

    async fn adopt(
        &self,
        job: &JobRef,
        _told: &[String],
        _agent: &Path,
        host: &dyn Host,
    ) -> Result<Adoption> {
        let placement = processes::find_target(&job.0, host)?;
        Ok(Adoption { job: job.clone(), placement, marks: None })
    }

    async fn start_agents(
        &self,
        app: &AppRef,
        agent: &AgentCommand,
        _host: &dyn Host,
        owner: &dyn ProcessOwner,
    ) -> Result<()> {
        for host in &app.hosts {
            let ticket = agent.ticket(host)?;
            owner.start_agent(host, &agent.program, ticket).await?;
        }
        Ok(())
    }
}

/// Optional abilities of this machine.
static CAPABILITIES: Capabilities = Capabilities {
    reach: Reach::ThisMachine,
    described: Some(wanted::build_args),
    mixed: Some(plan_mixed),
    ..Capabilities::NONE
};

fn plan_mixed(mixed: &Mixed, _launch: &Launch, host: &dyn Host) -> Result<Plan> {
    let here = host.hostname();
    let all = || (vec![here.clone()], vec![RankSet::first_n(mixed.size())]);
    let (hosts, layout) = lay_out(mixed).unwrap_or_else(all);
    command::check_hosts(&hosts, &here)?;
    Ok(Plan::Direct(Direct::of_mixed(mixed, hosts, layout, Vec::new())))
}
