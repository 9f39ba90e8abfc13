//! Launches with a launcher that starts the agents in place of the ranks' programs: the agent is in its command line.

use std::ffi::{OsStr, OsString};
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gantry_shared::wire::hold::{GANTRY_TICKET, HoldTicket, SHIM_WORDS};
use gantry_shared::wire::message::RankReport;
use gantry_shared::wire::mpi::MpiRanks;
use gantry_types::error::{Failure, Kind};
use gantry_types::launch::SendAgent;
use gantry_types::placement::{Placement, PlacementBuilder};
use gantry_types::status::ExitStatus;
use gantry_wlm::host::Machine;
use gantry_wlm::{Brought, Host, Reach, Wlm, explain_launcher_end, reach};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::App;
use super::connected::Connected;
use super::context::LaunchContext;
use super::core::Core;
use super::prepare::{build_ticket, choose_scratch, find_cwd, open_input};
use super::state::Happening;
use super::stdio::OutputStream;
use super::stdio::launcher::{self, LauncherStdio, Words};
use super::table::{self, Look};
use super::waiting::{JobNews, watch_launcher};
use crate::clock::Clock;
use crate::config::Frontend;
use crate::error::{Error, Result};
use crate::guard::{Guard, GuardEvent, LauncherStart};
use crate::helpers;
use crate::overlay::Mustered;
use crate::request::{LaunchRequest, build_program_env, show_args};

/// How long to wait for an agent's report after its launcher has ended and the report must be on its way.
const AGENTS_WORD: Duration = Duration::from_secs(1);

impl Frontend {
    pub(super) async fn launch_brought(
        &self,
        context: LaunchContext,
        request: LaunchRequest,
        plan: Brought,
        news: JobNews<'_>,
        clock: &Clock,
    ) -> std::result::Result<App, NotBrought> {
        let (app, wlm) = (context.app, context.wlm);
        let guard_program = helpers::find(helpers::GUARD)?;
        let secret = context.secret.clone();
        let listener = self.listen(&context, &secret).await?;
        let base = self.config.stage_base.clone();
        let agent = build_ticket(wlm, app, secret, listener.addresses(), base, "", context.subjob());
        let ticket = HoldTicket {
            agent,
            hold: request.hold,
            hold_at: request.hold_at.clone(),
            wrapper: self.config.rank_wrapper.clone(),
            own: plan.own.clone(),
            after_rank: plan.after_rank.clone(),
            mpi: if request.joins_world { MpiRanks::Join } else { MpiRanks::NotServed },
        };
        // A program between the launcher and a rank is the process that the launcher knows. Its pids are then not the
        // ranks' pids.
        let pids = ticket.hold_at.is_none() && ticket.wrapper.is_none();
        let look = Look { pids, wrapped: !request.launcher_wrapper.is_empty() };
        let env = build_env(&plan, &request.env, &ticket)?;
        let cwd = find_cwd(request.cwd)?;
        let stdio =
            launcher::connect(app, wlm, &Machine.hostname(), open_input(request.stdin)?, request.output);
        let stdio = stdio.map_err(|e| Error::io("cannot connect a launcher", e))?;
        let LauncherStdio { theirs, pipes, output, to, mut words } = stdio;
        let (guard, mut guard_events) = Guard::start(&guard_program, self.config.stage_base.clone()).await?;
        let command = show_args(&plan.argv);
        // With `Auto` the launch can be retried with the agent sent to the nodes that lack it.
        let can_be_sent = self.choose_sending()? == SendAgent::Auto;
        let files = Scratch::write(choose_scratch(app), plan.files)?;
        let start = LauncherStart { argv: plan.argv, env, cwd, stdio: theirs, pipes, driven: None };
        guard.start_launcher(start).await?;
        let strangers = listener.strangers();
        let mut mustering = std::pin::pin!(listener.muster(clock));
        let mustered = tokio::select! {
            mustered = &mut mustering => mustered.map_err(|e| with_words(e, &words, &command)),
            status = launcher_ended(&mut guard_events) => {
                words.through().await;
                // When an agent has ended its ranks the launcher ends without a message. And a rank that could not be
                // started says so. The agent's report is then still on its way.
                let said = words.so_far();
                let knows_more = said.is_empty() || said.contains(SHIM_WORDS);
                let patience = if knows_more { AGENTS_WORD } else { Duration::ZERO };
                match timeout(patience, mustering).await {
                    Ok(Err(error @ Error::Node { .. })) => Err(error),
                    _ => Err(ended(wlm, status, &command, &mut words).await),
                }
            }
            () = wait_until_agent_is_missing(wlm, &words), if can_be_sent => Err(not_there(&words)),
            never = watch_launcher(wlm, &guard, &words, clock, news) => match never {},
        };
        let lacks_agent = mustered.is_err() && says_agent_is_missing(wlm, &words);
        let Mustered { overlay, events, nodes } =
            mustered.map_err(|error| NotBrought { error: strangers.explain(error), lacks_agent })?;
        guard.ranks_there().await?;
        let told = if reach(wlm) == Reach::Network { guard.launcher_job().await } else { None };
        let job = told.or_else(|| words.submitted());
        let placement = build_placement(&nodes)?;
        let (hosts, left_out) = (nodes.iter().map(|(host, _)| host.clone()).collect(), Vec::new());
        let joined = Connected { overlay, overlay_events: events, guard, guard_events, hosts, left_out };
        let begun = context.begin(joined, placement, job, Some(words)).await?;
        pass_on(begun.core(), output, to)?;
        for (_, ranks) in nodes {
            begun.core().happened(Happening::RanksThere(ranks));
        }
        let app = begun.serve().await?;
        table::check(&app.handle.core, look, request.hold, files).await;
        Ok(app)
    }
}

/// A launch that a launcher could not make.
#[derive(Debug)]
pub(super) struct NotBrought {
    pub(super) error: Error,
    /// Nodes lack the agent.
    pub(super) lacks_agent: bool,
}

impl From<Error> for NotBrought {
    fn from(error: Error) -> Self {
        Self { error, lacks_agent: false }
    }
}

/// How often to check whether the launcher has reported that nodes lack the agent. Such a launcher keeps running if
/// other nodes have the agent.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Whether the launcher has reported that nodes lack the agent.
fn says_agent_is_missing(wlm: &dyn Wlm, words: &Words) -> bool {
    let output = wlm.capabilities().launcher_output;
    output.is_some_and(|output| output.lacks_agent(&words.so_far()))
}

/// Waits until the launcher reports that nodes lack the agent.
async fn wait_until_agent_is_missing(wlm: &dyn Wlm, words: &Words) {
    while !says_agent_is_missing(wlm, words) {
        sleep(LOOK_EVERY).await;
    }
}

fn not_there(words: &Words) -> Error {
    let message = format!("nodes do not have gantry's agent: {}", words.so_far());
    let failure = Failure::new(Kind::NotFound, message)
        .with_hint("launch with --send-agent=always, or GANTRY_SEND_AGENT=always; the launch is made again by itself where rank 0 reads a file or a terminal");
    Error::Node { hosts: Vec::new(), failure }
}

/// Files that a launcher reads while it starts. Dropping it removes them.
#[derive(Debug)]
struct Scratch(Option<PathBuf>);

impl Scratch {
    fn write(folder: PathBuf, files: Vec<(PathBuf, Vec<u8>)>) -> Result<Self> {
        if files.is_empty() {
            return Ok(Self(None));
        }
        let failed = |e| Error::io(format!("cannot write to {}", folder.display()), e);
        // Fails if the name exists already.
        DirBuilder::new().mode(0o700).create(&folder).map_err(failed)?;
        let scratch = Self(Some(folder.clone()));
        for (path, bytes) in files {
            std::fs::write(path, bytes).map_err(failed)?;
        }
        Ok(scratch)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Some(folder) = &self.0
            && let Err(error) = std::fs::remove_dir_all(folder)
        {
            tracing::warn!(folder = %folder.display(), %error, "a launch's files stay behind");
        }
    }
}

/// Connects the launcher's output to the tool.
pub(super) fn pass_on(
    core: &Arc<Core>,
    output: Option<OutputStream>,
    to: Option<(std::os::fd::OwnedFd, std::os::fd::OwnedFd)>,
) -> Result<()> {
    match (output, to) {
        (Some(output), Some(to)) => core.write_output(output, to),
        (Some(output), None) => {
            core.keep_rank_output(output);
            Ok(())
        }
        (None, _) => Ok(()),
    }
}

/// The launcher's environment: the user's, what the plan changes, and the ticket.
fn build_env(
    plan: &Brought,
    changes: &[(OsString, OsString)],
    ticket: &HoldTicket,
) -> Result<Vec<(OsString, OsString)>> {
    let text = ticket.to_text().map_err(|e| Error::Internal(e.to_string()))?;
    let (mut env, _) = build_program_env(Machine.environment(), changes);
    let is_changed =
        |name: &OsStr| name == GANTRY_TICKET || plan.env.iter().any(|(changed, _)| changed == name);
    env.retain(|(name, _)| !is_changed(name));
    env.extend(plan.env.iter().cloned());
    env.push((GANTRY_TICKET.into(), text.as_str().into()));
    Ok(env)
}

/// Nodes in the order of their first ranks, and ranks as the launcher has numbered them.
fn build_placement(nodes: &[(String, Vec<RankReport>)]) -> Result<Placement> {
    let mut hosts = std::collections::BTreeMap::new();
    for (host, ranks) in nodes {
        hosts.extend(ranks.iter().map(|report| (report.rank, host)));
    }
    let mut placement = PlacementBuilder::with_capacity(hosts.len());
    for (host, _) in nodes {
        placement.push_host(host).map_err(|e| Error::Protocol(e.to_string()))?;
    }
    for host in hosts.into_values() {
        placement.push(host, None, "").map_err(|e| Error::Protocol(e.to_string()))?;
    }
    Ok(placement.build())
}

/// Waits for the launcher's exit status. None: the guard ended first.
async fn launcher_ended(events: &mut mpsc::UnboundedReceiver<GuardEvent>) -> Option<ExitStatus> {
    loop {
        match events.recv().await {
            Some(GuardEvent::LauncherEnded(status)) => return Some(status),
            Some(GuardEvent::Gone) | None => return None,
            Some(_) => {}
        }
    }
}

/// The error for a launcher that ended before its ranks were there.
pub(super) async fn ended(
    wlm: &dyn Wlm,
    status: Option<ExitStatus>,
    command: &[String],
    words: &mut Words,
) -> Error {
    let Some(status) = status else {
        return Error::Lost { what: vec!["the guard".to_owned()], reason: "it ended unasked".to_owned() };
    };
    words.through().await;
    let said = words.so_far();
    let failure = explain_launcher_end(wlm, command, &status.to_string(), &said).unwrap_or_else(|| {
        let command = command.join(" ");
        let said = if said.is_empty() { "it printed nothing".to_owned() } else { said };
        let message =
            format!("the launcher ended ({status}) before all ranks were there: {said} (command: {command})");
        Failure::new(Kind::LauncherFailed, message)
    });
    Error::Node { hosts: Vec::new(), failure }
}

/// Adds the launcher's messages to a timeout: a launcher that waits usually says for what.
pub(super) fn with_words(error: Error, words: &Words, command: &[String]) -> Error {
    if !matches!(error, Error::TimedOut { .. } | Error::Queued { .. }) {
        return error;
    }
    let said = words.so_far();
    let said = if said.is_empty() { "has printed nothing".to_owned() } else { format!("says: {said}") };
    let message = format!("{error}; the launcher {said} (command: {})", command.join(" "));
    if error.is_queue_timeout() {
        return Error::Queued { message };
    }
    Error::Node { hosts: Vec::new(), failure: Failure::new(Kind::TimedOut, message) }
}
