//! Launches with a launcher that holds its ranks itself and reports where they are. The guard drives the launcher; the
//! agents start afterwards.

use std::ffi::OsString;

use gantry_shared::rendezvous::handle::{VARIABLES, build_node_service_name, build_variables};
use gantry_shared::wire::hold::GANTRY_TICKET;
use gantry_shared::wire::message::{AdoptRanks, Found, Order};
use gantry_types::placement::Placement;
use gantry_wlm::host::Machine;
use gantry_wlm::mpir::AtBreakpoint;
use gantry_wlm::{Driven, Host, JobRef, Reach, Wlm, explain_launcher_end, reach};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::App;
use super::agent_hosts::AgentHosts;
use super::brought::{ended, pass_on, with_words};
use super::context::LaunchContext;
use super::launch::build_adoption;
use super::prepare::{find_cwd, open_input};
use super::stdio::launcher::{self, LauncherStdio, Words};
use super::waiting::{JobNews, watch_launcher};
use crate::clock::{Clock, Late};
use crate::config::Frontend;
use crate::error::{Error, Result};
use crate::guard::{Guard, GuardEvent, LauncherStart};
use crate::helpers;
use crate::request::{LaunchRequest, build_program_env, show_args};
use gantry_guard::protocol::{Drive, HeldRanks};

impl Frontend {
    pub(super) async fn launch_driven(
        &self,
        context: LaunchContext,
        request: LaunchRequest,
        plan: Driven,
        news: JobNews<'_>,
        clock: &Clock,
    ) -> Result<App> {
        let (hold_at, wrapper) = (request.hold_at.clone(), self.config.rank_wrapper.clone());
        if plan.at_breakpoint == AtBreakpoint::Stay {
            // Ranks continue only if their launcher does.
            check_behind(hold_at.as_deref(), wrapper.as_deref())?;
        }
        let (app, wlm) = (context.app, context.wlm);
        let guard_program = helpers::find(helpers::GUARD)?;
        let env = build_env(&request.env, &context);
        let cwd = find_cwd(request.cwd)?;
        let stdio =
            launcher::connect(app, wlm, &Machine.hostname(), open_input(request.stdin)?, request.output);
        let LauncherStdio { theirs, pipes, output, to, mut words } =
            stdio.map_err(|e| Error::io("cannot connect a launcher", e))?;
        let (guard, mut guard_events) = Guard::start(&guard_program, self.config.stage_base.clone()).await?;
        let command = show_args(&plan.argv);
        // The guard does not know which time counts for a launcher that may wait, so it gets the latest deadline.
        let until =
            if wlm.capabilities().launcher_waits.is_some() { clock.latest() } else { clock.deadline() };
        let left = until.saturating_duration_since(Instant::now());
        let driven = Some(Drive { timeout: left, at_breakpoint: plan.at_breakpoint });
        let start = LauncherStart { argv: plan.argv, env, cwd, stdio: theirs, pipes, driven };
        guard.start_launcher(start).await?;
        let told = words.clone();
        let held = tokio::select! {
            held = wait_held(wlm, &mut guard_events, &command, &mut words) => held?,
            never = watch_launcher(wlm, &guard, &told, clock, news) => match never {},
            late = run_out(clock) => {
                let error = clock.explain(late, "waiting until the launcher has stopped its ranks", Vec::new());
                return Err(with_words(error, &told, &command));
            }
        };
        let deadline = clock.deadline();
        let HeldRanks { placement, job, step, stopped, stands } = held;
        check_hosts(wlm, &placement, &command)?;
        if !stopped {
            // The ranks are somewhere in the middle of a program.
            check_behind(hold_at.as_deref(), wrapper.as_deref())?;
        }
        let job = job.zip(step).map(|(job, step)| JobRef(format!("{job}.{step}")));
        let hosts = placement.hosts().map(str::to_owned).collect();
        let agent_hosts = AgentHosts { hosts, job: job.clone(), wlm_data: Vec::new(), fallback: None };
        let found = match (stopped, request.hold) {
            (true, true) => Found::Held,
            (true, false) => Found::HeldToRun,
            (false, true) => Found::Waiting,
            (false, false) => Found::WaitingToRun,
        };
        let order = AdoptRanks {
            size: placement.rank_count(),
            layout: build_adoption(&placement)?,
            found,
            wrapper,
            hold_at,
        };
        let joined = self.start_agents_by((guard, guard_events), &context, agent_hosts, deadline).await?;
        joined.guard.ranks_there().await?;
        let begun = context.begin(joined, placement, job, Some(words)).await?;
        pass_on(begun.core(), output, to)?;
        let order = Order::AdoptRanks(order);
        let begun = begun.order_ranks(order, "taking over held ranks", deadline).await?;
        if stands {
            begun.core().keep_launcher();
        }
        // If a launcher stops its ranks itself and is still at its breakpoint, the guard could not make it leave. Ranks
        // of other launchers are stopped by now, or are to run.
        let stays = plan.at_breakpoint == AtBreakpoint::Stay || stopped;
        if !stays || !request.hold {
            begun.core().let_launcher_go().await?;
        }
        begun.serve().await
    }
}

/// Refuses options that need ranks stopped at their first instruction.
fn check_behind(hold_at: Option<&str>, wrapper: Option<&str>) -> Result<()> {
    let (message, hint) = match (hold_at, wrapper) {
        (None, None) => return Ok(()),
        (Some(_), _) => (
            "a launcher that holds its ranks itself holds the program that it starts".to_owned(),
            "leave out --hold-at or --hold-method",
        ),
        (None, Some(wrapper)) => (
            format!("a launcher that holds its ranks itself holds '{wrapper}' and not what runs in it"),
            "leave out --hold-method",
        ),
    };
    Err(Error::Invalid { message, hint: Some(hint.to_owned()) })
}

/// The launcher's environment: the user's, and where the ranks find their rendezvous. No agents run on the nodes yet,
/// but the names of their sockets are known.
fn build_env(changes: &[(OsString, OsString)], context: &LaunchContext) -> Vec<(OsString, OsString)> {
    let (mut env, _) = build_program_env(Machine.environment(), changes);
    let service = build_node_service_name(context.app, &context.secret);
    env.retain(|(name, _)| name != GANTRY_TICKET && !VARIABLES.iter().any(|variable| name == variable));
    let variables = build_variables(&service, context.subjob());
    env.extend(variables.into_iter().map(|(name, value)| (name.into(), value.into())));
    env
}

/// Refuses hosts that agents cannot reach: a WLM of this machine starts agents on this machine only.
fn check_hosts(wlm: &dyn Wlm, placement: &Placement, command: &[String]) -> Result<()> {
    let here = Machine.hostname();
    let short = here.split('.').next().unwrap_or(&here);
    let is_here = |host: &str| host == here || host.split('.').next() == Some(short) || host == "localhost";
    match placement.hosts().find(|host| !is_here(host)) {
        Some(host) if reach(wlm) == Reach::ThisMachine => Err(Error::Invalid {
            message: format!(
                "{} has started ranks on {host}, where {} has no agents",
                command.join(" "),
                wlm.name()
            ),
            hint: Some(
                "leave out --hold-method, so that the launcher brings agents with the ranks".to_owned(),
            ),
        }),
        _ => Ok(()),
    }
}

/// How long to wait after the deadline for the guard's own timeout report, which quotes the launcher.
const SLACK: std::time::Duration = std::time::Duration::from_secs(2);

async fn run_out(clock: &Clock) -> Late {
    let late = clock.run_out().await;
    sleep(SLACK).await;
    late
}

/// Waits until the guard reports where the ranks are.
async fn wait_held(
    wlm: &'static dyn Wlm,
    events: &mut mpsc::UnboundedReceiver<GuardEvent>,
    command: &[String],
    words: &mut Words,
) -> Result<HeldRanks> {
    loop {
        match events.recv().await {
            Some(GuardEvent::Held(held)) => return Ok(*held),
            Some(GuardEvent::NotHeld(failure)) => {
                words.through().await;
                let said = words.so_far();
                let explained =
                    explain_launcher_end(wlm, command, "an error", &said).filter(|_| !said.is_empty());
                return Err(Error::Node { hosts: Vec::new(), failure: explained.unwrap_or(failure) });
            }
            Some(GuardEvent::LauncherEnded(status)) => {
                return Err(ended(wlm, Some(status), command, words).await);
            }
            Some(GuardEvent::Gone) | None => return Err(ended(wlm, None, command, words).await),
            Some(GuardEvent::AgentEnded { .. } | GuardEvent::StepEnded { .. }) => {}
        }
    }
}
