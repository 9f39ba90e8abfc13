//! The implementation of the WLM interface over ssh.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use gantry_link::greeting::build_mark;
use gantry_types::launch::Mixed;
use gantry_types::rank_set::RankSet;

use super::agent_file::AgentFile;
use super::attach::{self, Named};
use super::client::find_client;
use super::command::{Placed, Reaching, names_hosts, parse_args};
use super::fan_out::{FanOut, start_all};
use super::hosts::host_for_ssh;
use super::wanted;
use crate::aside::aside;
use crate::caps::host_lists::HostLists;
use crate::error::{Error, Result};
use crate::host::Host;
use crate::job::{Adoption, AppRef, JobRef};
use crate::launch::{AgentCommand, Direct, Launch, Plan, ProcessOwner};
use crate::launcher::plan_launcher;
use crate::seam::{Capabilities, Evidence, Wlm};
use crate::wanted::lay_out;

/// Hosts that the user names and gantry reaches by ssh.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ssh;

#[async_trait]
impl Wlm for Ssh {
    fn name(&self) -> &'static str {
        "ssh"
    }

    fn detect(&self, _host: &dyn Host) -> Option<Evidence> {
        None
    }

    fn capabilities(&self) -> &'static Capabilities {
        &CAPABILITIES
    }

    fn plan(&self, launch: &Launch, host: &dyn Host) -> Result<Plan> {
        if launch.hold_method.is_by_launcher() {
            let hint = "leave out --hold-method";
            return Err(Error::invalid_with("over ssh no launcher holds ranks for a debugger", hint));
        }
        if let Some(launcher) = &launch.launcher {
            return plan_launcher(launcher, launch, host).map(Plan::Brought);
        }
        let options = parse_args(&launch.args, host)?;
        let Placed { hosts, layout, spare } = options.place(&launch.without, host)?;
        find_client(host, &launch.agent)?;
        let wlm_data = options.reaching.to_words();
        let (bind, mpi) = (options.common.bind, options.common.mpi);
        let parts = options.common.build_parts(layout.iter().map(RankSet::len).sum());
        Ok(Plan::Direct(Direct { hosts, layout, spare, wlm_data, parts, bind, mpi, ..Direct::default() }))
    }

    fn wants_labels(&self, args: &[OsString], host: &dyn Host) -> bool {
        parse_args(args, host).is_ok_and(|options| options.common.labels)
    }

    async fn adopt(
        &self,
        job: &JobRef,
        wlm_data: &[String],
        agent: &Path,
        host: &dyn Host,
    ) -> Result<Adoption> {
        let placement = attach::find(job, wlm_data, agent, host).await?;
        Ok(Adoption { job: job.clone(), placement, marks: None })
    }

    async fn start_agents(
        &self,
        app: &AppRef,
        agent: &AgentCommand,
        host: &dyn Host,
        owner: &dyn ProcessOwner,
    ) -> Result<()> {
        let named = app.job.as_ref().map(Named::parse).transpose()?;
        // A launcher on this machine may have local ranks. They need no ssh.
        let own = named.as_ref().filter(|named| named.host.is_none()).map(|_| host.hostname());
        let mut hosts = Vec::with_capacity(app.hosts.len());
        for name in &app.hosts {
            let ticket = agent.ticket(name)?;
            match own.as_ref() == Some(name) {
                true => owner.start_agent(name, &agent.program, ticket).await?,
                false => hosts.push((host_for_ssh(name)?, ticket)),
            }
        }
        if hosts.is_empty() {
            return Ok(());
        }
        let client = find_client(host, &agent.program)?;
        tracing::info!("hosts are reached by {client}");
        let program = agent.program.clone();
        let looked_at = aside(host, move |host| AgentFile::look(program, host)).await?;
        let reaching = match &named {
            Some(named) => named.reaching(&app.wlm_data)?,
            None => Reaching::from_words(&app.wlm_data),
        };
        let common = FanOut {
            mark: build_mark(app.app),
            client: Arc::new(client),
            errand: ["serve", "attached", reaching.transport.to_word()].map(str::to_owned).to_vec(),
            reaching,
            agent: looked_at,
            until: agent.deadline.map(Into::into),
            policy: agent.policy,
            watch: agent.watch.clone(),
            links: agent.links.clone(),
        };
        for (host, why) in start_all(common, hosts).await? {
            agent.left_out.tell((host, why));
        }
        Ok(())
    }
}

/// Optional abilities of ssh.
static CAPABILITIES: Capabilities = Capabilities {
    described: Some(wanted::build_args),
    mixed: Some(plan_mixed),
    host_lists: Some(&Ssh),
    ..Capabilities::NONE
};

impl HostLists for Ssh {
    fn find_host_option(&self, args: &[OsString]) -> Option<String> {
        names_hosts(args)
    }

    fn read_reach_args(&self, args: &[OsString]) -> Result<Vec<String>> {
        Reaching::parse(args).map(|reaching| reaching.to_words())
    }

    fn describe_transport(&self, agent: &Path, host: &dyn Host) -> Result<String> {
        find_client(host, agent).map(|client| client.to_string())
    }
}

fn plan_mixed(mixed: &Mixed, launch: &Launch, host: &dyn Host) -> Result<Plan> {
    let (hosts, layout) = lay_out(mixed).ok_or_else(|| {
        Error::invalid_with("ssh has no scheduler that chooses hosts", "name the hosts of all processes")
    })?;
    hosts.iter().try_for_each(|name| host_for_ssh(name).map(drop))?;
    find_client(host, &launch.agent)?;
    Ok(Plan::Direct(Direct::of_mixed(mixed, hosts, layout, Reaching::default().to_words())))
}

#[cfg(test)]
mod tests {
    use OsString;

    use super::*;
    use crate::host::fake::FakeHost;
    use crate::registry::choose_for;

    fn plan(args: &str) -> Result<Plan> {
        let host = FakeHost::default().with_env("PATH", "/bin").with_file("/bin/ssh", "");
        let args = args.split(' ').map(OsString::from).collect();
        Ssh.plan(&Launch { args, ..Launch::default() }, &host)
    }

    #[test]
    fn agents_start_the_ranks_on_the_hosts_that_are_named() {
        let Plan::Direct(planned) = plan("--hosts n[1-2]:2 --window 3 ./app -n").unwrap() else { panic!() };
        assert_eq!(planned.hosts, ["n1", "n2"]);
        let (size, part) = (planned.size(), &planned.parts[0]);
        assert_eq!((size, &part.program, &part.args), (4, &"./app".into(), &vec!["-n".into()]));
        assert_eq!(Reaching::from_words(&planned.wlm_data).window, 3);
    }

    #[test]
    fn without_hosts_or_a_client_nothing_is_planned() {
        assert_eq!(plan("./app").unwrap_err().to_string(), "no hosts are named");
        let args = ["--hosts", "a", "./app"].map(OsString::from).to_vec();
        let error = Ssh.plan(&Launch { args, ..Launch::default() }, &FakeHost::default()).unwrap_err();
        assert_eq!(error.to_string(), "there is no ssh in PATH");
    }

    #[test]
    fn a_process_manager_s_hosts_are_no_options_logins_or_commands_of_ssh() {
        let host = FakeHost::default().with_env("PATH", "/bin").with_file("/bin/ssh", "");
        for name in ["-oProxyCommand=touch x", "$(id)", "me@other", "n 1"] {
            let mixed = Mixed { hosts: vec!["n1".to_owned(), name.to_owned()], ..Mixed::default() };
            let error = plan_mixed(&mixed, &Launch::default(), &host).unwrap_err();
            assert!(
                error.to_string().starts_with(&format!("'{name}' is not the name of a host: ")),
                "{error}"
            );
        }
    }

    #[test]
    fn it_is_used_only_when_it_is_meant() {
        assert_eq!(Ssh.detect(&FakeHost::default()), None);
        let args = ["--hosts", "a", "x"].map(OsString::from);
        let chosen = |asked, args: &[OsString], host: &FakeHost| {
            let choice = choose_for(asked, args, host).unwrap();
            (choice.wlm.name(), choice.why.0)
        };
        let plain = FakeHost::default();
        let why = "--hosts names hosts, which are reached by ssh".to_owned();
        assert_eq!(chosen(None, &args, &plain), ("ssh", why));
        assert_eq!(chosen(Some("localhost"), &args, &plain).0, "localhost");
        assert_eq!(chosen(None, &args, &FakeHost::default().with_env("CTI_WLM_IMPL", "slurm")).0, "slurm");
        assert_eq!(chosen(None, &args[2..], &plain).0, "localhost");
        assert_eq!(chosen(None, &args[2..], &FakeHost::default().with_env("CTI_WLM_IMPL", "ssh")).0, "ssh");
    }
}
