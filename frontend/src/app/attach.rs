//! Attaches to an app that runs already: finds it, then starts guard and agents, then adopts its ranks.

use std::future::pending;
use std::path::Path;
use std::time::Duration;

use gantry_shared::wire::message::{AdoptRanks, Found, Order, RankMarks, SeekRanks};
use gantry_types::error::{Failure, Kind};
use gantry_types::id::NodeId;
use gantry_types::placement::{Placement, PlacementBuilder, PlacementError};
use gantry_wlm::{Adoption, JobRef, Wlm, read_reach_args};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use super::App;
use super::agent_hosts::AgentHosts;
use super::asking::ask;
use super::context::LaunchContext;
use super::launch::build_adoption;
use super::waiting::{NotThere, Wait};
use crate::clock::Clock;
use crate::config::Frontend;
use crate::error::{Error, Result, WlmError};
use crate::event::MissingHost;
use crate::guard::GuardEvent;
use crate::helpers;

/// How long an attachment may take before the WLM is asked whether the ranks still run. Later it is asked more rarely.
const LOOK_FIRST: Duration = Duration::from_secs(5);

/// How long the WLM may take to say whether ranks that could not be attached to have ended.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// Reports to the caller what an attachment waits for. None: the caller does not wait for a job that has no ranks yet.
pub(crate) type News<'a> = Option<&'a mut (dyn FnMut(&str) + Send)>;

/// What comes from the guard that owns a submitted job: nothing before its end. None: the caller does not own the job.
pub(crate) type Owner<'a> = Option<&'a mut mpsc::UnboundedReceiver<GuardEvent>>;

impl Frontend {
    /// Attaches to the ranks of `job`. If they end meanwhile and the caller waits, to those that come next: the first
    /// step of a script may be a short one.
    pub(crate) async fn attach_until(
        &self,
        wlm: &'static dyn Wlm,
        job: &JobRef,
        mut wait: News<'_>,
        mut owner: Owner<'_>,
        clock: &Clock,
    ) -> std::result::Result<App, NotThere> {
        self.check_policy(wlm, true)?;
        let wlm_data = read_reach_args(wlm, &self.config.reach_args).map_err(Error::from)?;
        let agent = helpers::find(helpers::AGENT)?;
        let waits = wait.is_some();
        loop {
            let context = LaunchContext::attach(self, wlm, job, waits)?;
            let found = adopt(wlm, job, &wlm_data, &mut wait, owner.as_deref_mut(), clock).await?;
            // A script may start other ranks beside these. That is no reason to leave them.
            let question = Question { wlm, job: &found.job, wlm_data: &wlm_data, agent: &agent };
            let attached = tokio::select! {
                attached = self.attach_found(context, found.clone(), wlm_data.clone(), clock) => attached,
                // Agents that seek ranks by marks do not know those that have ended from those that start.
                () = question.wait_for_end(&found, clock.deadline()), if waits && found.marks.is_some() => continue,
            };
            let error = match attached {
                Ok(app) => return Ok(app),
                Err(error) => error,
            };
            if !waits || !question.has_ended(&found, clock.deadline()).await {
                return Err(error.into());
            }
            tracing::debug!(%error, job = found.job.0, "the ranks that were found have ended");
        }
    }

    /// Attaches to ranks that were found.
    async fn attach_found(
        &self,
        context: LaunchContext,
        Adoption { job, placement, marks }: Adoption,
        wlm_data: Vec<String>,
        clock: &Clock,
    ) -> Result<App> {
        let deadline = clock.deadline();
        let hosts = placement.hosts().map(str::to_owned).collect();
        let agent_hosts = AgentHosts { hosts, job: Some(job.clone()), wlm_data, fallback: None };
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
        let begun = context.begin(joined, placement, Some(job), None).await?;
        begun.order_ranks(order, "attaching to ranks", deadline).await?.serve().await
    }
}

/// Asks the WLM where `job` runs, and repeats that until it runs if `wait` is given. The WLM's programs may take long,
/// so each question runs on a blocking thread.
pub(crate) async fn adopt(
    wlm: &'static dyn Wlm,
    job: &JobRef,
    wlm_data: &[String],
    wait: &mut News<'_>,
    owner: Owner<'_>,
    clock: &Clock,
) -> std::result::Result<Adoption, NotThere> {
    let agent = helpers::find(helpers::AGENT)?;
    let question = Question { wlm, job, wlm_data, agent: &agent };
    let wanted = |not_yet: &str| match wait {
        Some(tell) => {
            tell(not_yet);
            true
        }
        None => false,
    };
    tokio::select! {
        found = Wait::new(clock).until("looking for what to attach to", || question.ask(), wanted) => found,
        () = gone(owner) => Err(NotThere::Unowned),
    }
}

/// Waits until the guard that owns the job has ended.
pub(crate) async fn gone(owner: Owner<'_>) {
    match owner {
        Some(events) => drop(events.recv().await),
        None => pending().await,
    }
}

/// The question where the ranks of a job are.
struct Question<'a> {
    wlm: &'static dyn Wlm,
    job: &'a JobRef,
    wlm_data: &'a [String],
    /// The agent's path on this machine.
    agent: &'a Path,
}

impl Question<'_> {
    async fn ask(&self) -> Result<Adoption> {
        let (wlm, job) = (self.wlm, self.job.clone());
        let (wlm_data, agent) = (self.wlm_data.to_vec(), self.agent.to_owned());
        let runtime = tokio::runtime::Handle::current();
        ask(move |host| {
            runtime.block_on(async {
                tokio::select! {
                    biased;
                    () = host.given_up() => Err(gantry_wlm::Error::Failed(given_up())),
                    found = wlm.adopt(&job, &wlm_data, &agent, host) => found,
                }
            })
        })
        .await
    }

    /// Whether the ranks that were found are no longer there, according to the WLM. In doubt they are: the question may
    /// fail for the same reason as the attachment.
    async fn has_ended(&self, found: &Adoption, deadline: Instant) -> bool {
        let until = deadline.min(Instant::now() + LOOK_AGAIN);
        match timeout_at(until, self.ask()).await {
            // A step is what it was as long as it has its name.
            Ok(Ok(now)) => found.marks.is_none() && now.placement != found.placement,
            Ok(Err(Error::Wlm(WlmError(gantry_wlm::Error::Unanswered(_))))) | Err(_) => false,
            Ok(Err(error)) => matches!(error.kind(), Kind::NotFound | Kind::Gone),
        }
    }

    async fn wait_for_end(&self, found: &Adoption, deadline: Instant) {
        let mut pause = LOOK_FIRST;
        loop {
            tokio::time::sleep(pause).await;
            if self.has_ended(found, deadline).await {
                return;
            }
            pause *= 2;
        }
    }
}

/// The error of a question whose caller is gone. Nobody reads it.
fn given_up() -> Failure {
    Failure::new(Kind::Gone, "the question was given up")
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
