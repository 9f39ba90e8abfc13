//! Attaches to an app that runs already: finds it, then starts guard and agents, then adopts its ranks.

use std::path::Path;

use gantry_shared::wire::message::{AdoptRanks, Found, Order, RankMarks, SeekRanks};
use gantry_types::id::NodeId;
use gantry_types::placement::{Placement, PlacementBuilder, PlacementError};
use gantry_wlm::host::Machine;
use gantry_wlm::{Adoption, JobRef, Wlm, read_reach_args};
use tokio::time::Instant;

use super::App;
use super::agent_hosts::AgentHosts;
use super::context::LaunchContext;
use super::launch::build_adoption;
use super::waiting::{ASK_EVERY, ASK_SOON, SHORT_WAIT, explain_late};
use crate::clock::Clock;
use crate::config::Frontend;
use crate::error::{Error, Result, WlmError};
use crate::event::MissingHost;
use crate::helpers;

/// Reports to the caller what an attachment waits for. None: the caller does not wait for a job that has no ranks yet.
pub(crate) type News<'a> = Option<&'a mut (dyn FnMut(&str) + Send)>;

impl Frontend {
    pub(crate) async fn attach_until(
        &self,
        wlm: &'static dyn Wlm,
        job: &JobRef,
        wait: News<'_>,
        clock: &Clock,
    ) -> Result<App> {
        self.check_policy(wlm, true)?;
        let context = LaunchContext::attach(self, wlm, job, wait.is_some())?;
        let wlm_data = read_reach_args(wlm, &self.config.reach_args)?;
        let Adoption { job: adopted, placement, marks } = adopt(wlm, job, &wlm_data, wait, clock).await?;
        let deadline = clock.deadline();
        let hosts = placement.hosts().map(str::to_owned).collect();
        let agent_hosts = AgentHosts { hosts, job: Some(adopted.clone()), wlm_data, fallback: None };
        let joined = self.start_agents(&context, agent_hosts, deadline).await?;
        let placement = put_last(&placement, &joined.left_out)?;
        let order = match marks {
            Some(marks) => {
                Order::SeekRanks(build_search(&placement, marks, self.config.rank_wrapper.clone()))
            }
            None => Order::AdoptRanks(AdoptRanks {
                size: placement.rank_count(),
                layout: build_adoption(&placement)?,
                found: Found::Running,
                wrapper: self.config.rank_wrapper.clone(),
                hold_at: None,
            }),
        };
        let begun = context.begin(joined, placement, Some(adopted), None).await?;
        begun.order_ranks(order, "attaching to ranks", deadline).await?.serve().await
    }
}

/// Asks the WLM where `job` runs, and repeats that until it runs if `wait` is given. The WLM's programs may take long,
/// so each question runs on a blocking thread.
pub(crate) async fn adopt(
    wlm: &'static dyn Wlm,
    job: &JobRef,
    wlm_data: &[String],
    mut wait: News<'_>,
    clock: &Clock,
) -> Result<Adoption> {
    let agent = helpers::find(helpers::AGENT)?;
    let started = Instant::now();
    // The WLM's last answer. After a timeout it explains more than the question that was interrupted.
    let mut said = None;
    let asking = async {
        loop {
            let not_yet = match ask(wlm, job, wlm_data, &agent).await {
                Err(Error::Wlm(WlmError(not_yet @ gantry_wlm::Error::NotYet { .. }))) => not_yet,
                found => return found,
            };
            let Some(tell) = &mut wait else { return Err(not_yet.into()) };
            match not_yet {
                gantry_wlm::Error::NotYet { queued: true, .. } => clock.stop(),
                _ => clock.go_on(),
            }
            tell(&not_yet.to_string());
            said = Some(not_yet);
            tokio::time::sleep(if started.elapsed() < SHORT_WAIT { ASK_SOON } else { ASK_EVERY }).await;
        }
    };
    let found = tokio::select! {
        found = asking => Ok(found),
        late = clock.run_out() => Err(late),
    };
    clock.go_on();
    found
        .unwrap_or_else(|late| Err(explain_late(clock, late, "looking for what to attach to", said.as_ref())))
}

/// Asks the WLM once.
async fn ask(wlm: &'static dyn Wlm, job: &JobRef, wlm_data: &[String], agent: &Path) -> Result<Adoption> {
    let (asked, wlm_data, agent) = (job.clone(), wlm_data.to_vec(), agent.to_owned());
    let runtime = tokio::runtime::Handle::current();
    let asking =
        tokio::task::spawn_blocking(move || runtime.block_on(wlm.adopt(&asked, &wlm_data, &agent, &Machine)));
    Ok(asking.await??)
}

/// Moves the nodes that were left out to the end, so that the nodes with agents are numbered without gaps.
fn put_last(placement: &Placement, left_out: &[MissingHost]) -> Result<Placement> {
    let strange = |e: PlacementError| Error::invalid(e.to_string());
    let is_there = |host: &&str| !left_out.iter().any(|missing| missing.host == *host);
    let mut moved = PlacementBuilder::with_capacity(placement.rank_count() as usize);
    for host in placement.hosts().filter(is_there) {
        moved.push_host(host).map_err(strange)?;
    }
    for place in placement.iter() {
        moved.push(place.host, place.pid, place.exe).map_err(strange)?;
    }
    Ok(moved.build())
}

/// Ranks by node.
fn build_search(placement: &Placement, marks: RankMarks, wrapper: Option<String>) -> SeekRanks {
    let layout = (0..placement.node_count()).map(|node| placement.ranks_on(NodeId(node))).collect();
    SeekRanks { size: placement.rank_count(), layout, marks, wrapper }
}
