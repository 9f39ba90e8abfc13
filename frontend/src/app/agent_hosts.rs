//! The hosts on which agents start, and the spare hosts that replace unreachable ones.

use std::collections::HashSet;
use std::sync::Arc;

use gantry_types::error::Failure;
use gantry_types::launch::HostsPolicy;
use gantry_wlm::{AgentCommand, AppRef, Host, JobRef, ProcessOwner};
use tokio::sync::mpsc::UnboundedReceiver;

use super::asking::Asker;
use super::context::LaunchContext;
use crate::error::Result;
use crate::event::MissingHost;

/// Chooses other hosts in place of unreachable ones. The answer keeps the hosts that were reached.
pub(super) type Fallback = Arc<dyn Fn(&[MissingHost], &dyn Host) -> Result<Vec<String>> + Send + Sync>;

/// The hosts on which agents are to start.
pub(super) struct AgentHosts {
    /// The nodes' names, by node number.
    pub(super) hosts: Vec<String>,
    /// The job under which the app was adopted, if it was.
    pub(super) job: Option<JobRef>,
    /// Opaque data of the WLM.
    pub(super) wlm_data: Vec<String>,
    /// Present if more hosts are named than are needed.
    pub(super) fallback: Option<Fallback>,
}

/// The hosts on which agents have started.
#[derive(Debug)]
pub(super) struct Reached {
    /// The nodes' names, by node number.
    pub(super) hosts: Vec<String>,
    /// Hosts that could not be reached.
    pub(super) without: Vec<MissingHost>,
}

impl AgentHosts {
    /// The policy for one round of starts. `policy` applies to all rounds together.
    pub(super) fn round_policy(&self, policy: HostsPolicy) -> HostsPolicy {
        match (&self.fallback, policy) {
            (None, _) | (_, HostsPolicy::All) => policy,
            (Some(_), _) => HostsPolicy::BestEffort,
        }
    }

    /// Has the WLM start agents on all hosts. Replaces unreachable hosts for as long as the fallback names others.
    /// `left_out` receives the hosts that `agent` leaves out.
    ///
    /// # Errors
    /// What the WLM says; more hosts are missing than the policy allows.
    pub(super) async fn reach(
        self,
        context: &LaunchContext,
        policy: HostsPolicy,
        (agent, mut left_out): (&AgentCommand, UnboundedReceiver<(String, Failure)>),
        owner: &dyn ProcessOwner,
    ) -> Result<Reached> {
        let Self { mut hosts, job, wlm_data, fallback } = self;
        let asker = Asker::new(agent.deadline.map(Into::into));
        let fallback = fallback.filter(|_| policy != HostsPolicy::All);
        let wanted = hosts.len();
        let mut round = AppRef { app: context.app, hosts: hosts.clone(), job, wlm_data };
        let (mut missing, mut without) = (Vec::new(), Vec::new());
        loop {
            let started = context.wlm.start_agents(&round, agent, asker.host(), owner).await;
            let before = without.len();
            while let Ok((host, why)) = left_out.try_recv() {
                without.push(MissingHost::new(host.clone(), &why));
                missing.push((host, why));
            }
            match started {
                Ok(()) => {}
                // No host of this round was reached, but the fallback may name others.
                Err(gantry_wlm::Error::Hosts { missing: all, .. }) if fallback.is_some() => {
                    without.extend(all.iter().map(|(host, why)| MissingHost::new(host.clone(), why)));
                    missing.extend(all);
                }
                Err(error) => return Err(error.into()),
            }
            let lacking: HashSet<&str> = without.iter().map(|missing| missing.host.as_str()).collect();
            hosts.retain(|host| !lacking.contains(host.as_str()));
            let Some(fallback) = fallback.clone().filter(|_| without.len() > before) else { break };
            // Too few hosts remain for the plan. The check of the policy below reports it if that matters.
            let unreached = without.clone();
            let Ok(others) = asker.ask(move |host| fallback(&unreached, host)).await else { break };
            let reached: HashSet<&String> = hosts.iter().collect();
            round.hosts = others.iter().filter(|host| !reached.contains(host)).cloned().collect();
            hosts = others;
            if round.hosts.is_empty() {
                break;
            }
            tracing::info!(hosts = ?round.hosts, "take the place of hosts that cannot be reached");
        }
        if fallback.is_some() && !policy.allows(wanted, wanted.saturating_sub(hosts.len())) {
            let of = hosts.len() + missing.len();
            return Err(gantry_wlm::Error::Hosts { of, missing }.into());
        }
        Ok(Reached { hosts, without })
    }
}
