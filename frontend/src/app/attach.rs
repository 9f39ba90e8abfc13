//! The way of an app that runs already: where it is, guard, agents, ranks.

use gantry_shared::id::NodeId;
use gantry_shared::placement::{Placement, PlacementBuilder, PlacementError};
use gantry_shared::wire::message::{AdoptRanks, Found, Order, RankMarks, SeekRanks};
use gantry_wlm::host::Machine;
use gantry_wlm::{Adoption, JobRef, Wlm};
use tokio::time::{Instant, timeout_at};

use super::App;
use super::called::Called;
use super::launch::build_adoption;
use super::making::Making;
use super::waiting::{ASK_EVERY, ASK_SOON, SHORT_WAIT};
use crate::error::{Error, Result};
use crate::event::MissingHost;
use crate::frontend::Frontend;
use crate::helpers;

/// Who waits for a job that has no ranks yet hears by this what it waits for; none: nobody waits.
pub(crate) type News<'a> = Option<&'a mut (dyn FnMut(&str) + Send)>;

impl Frontend {
    pub(crate) async fn attach_until(
        &self,
        wlm: &'static dyn Wlm,
        job: &JobRef,
        wait: News<'_>,
        deadline: Instant,
    ) -> Result<App> {
        self.check_policy(wlm, true)?;
        let making = Making::attach(self, wlm, job, wait.is_some())?;
        let told = wlm.read_reach_args(&self.config.reach_args)?;
        let Adoption { job: adopted, placement, marks } = adopt(wlm, job, &told, wait, deadline).await?;
        let hosts = placement.hosts().map(str::to_owned).collect();
        let called = Called { hosts, job: Some(adopted.clone()), told, instead: None };
        let joined = self.start_agents(&making, called, deadline).await?;
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
        let begun = making.begin(joined, placement, Some(adopted), None).await?;
        begun.order_ranks(order, "attaching to ranks", deadline).await?.serve().await
    }
}

/// Asks the WLM where something is, until it is there if that is to be waited for. The WLM's programs may take their time, so a thread of its own
/// waits for them.
pub(crate) async fn adopt(
    wlm: &'static dyn Wlm,
    job: &JobRef,
    told: &[String],
    mut wait: News<'_>,
    deadline: Instant,
) -> Result<Adoption> {
    let started = Instant::now();
    let agent = helpers::find_helper(helpers::AGENT, &Machine)?;
    // What the WLM has said last: at the deadline that says more than that it was asked once more.
    let mut said = None;
    loop {
        let (asked, told, agent) = (job.clone(), told.to_vec(), agent.clone());
        let runtime = tokio::runtime::Handle::current();
        let asking =
            tokio::task::spawn_blocking(move || runtime.block_on(wlm.adopt(&asked, &told, &agent, &Machine)));
        let Ok(found) = timeout_at(deadline, asking).await else {
            let after = deadline.saturating_duration_since(started);
            let late = Error::TimedOut { phase: "looking for what to attach to", after, missing: Vec::new() };
            return Err(said.map_or(late, Error::Wlm));
        };
        match found.map_err(|error| Error::Protocol(error.to_string()))? {
            Err(gantry_wlm::Error::NotYet { message, hint }) => {
                let every = if started.elapsed() < SHORT_WAIT { ASK_SOON } else { ASK_EVERY };
                match &mut wait {
                    Some(tell) if Instant::now() + every < deadline => tell(&message),
                    _ => return Err(gantry_wlm::Error::NotYet { message, hint }.into()),
                }
                said = Some(gantry_wlm::Error::NotYet { message, hint });
                tokio::time::sleep(every).await;
            }
            found => return Ok(found?),
        }
    }
}

/// The same ranks, with the nodes last that are left out: those that have agents are numbered through.
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
