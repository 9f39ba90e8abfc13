//! The task that handles everything that happens to an app, until the app is over.

use std::sync::Arc;
use std::time::Duration;

use gantry_shared::wire::message::{LEAVE_SLACK, Notice, Order, To};
use gantry_types::error::Kind;
use gantry_types::rank_set::NodeSet;
use gantry_types::status::ExitStatus;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::cause::tell_cause;
use super::core::{Core, DAEMON_GRACE, EndRequest, Stage};
use super::mpi_reach::test_hosts;
use super::state::Happening;
use crate::error::Error;
use crate::event::Event;
use crate::guard::GuardEvent;
use crate::info::AppState;
use crate::lock::lock;
use crate::overlay::OverlayEvent;

/// How long daemons have to end by themselves after the app's end.
pub(crate) const DAEMON_PATIENCE: Duration = Duration::from_secs(2);

/// After the last rank's end, data of a rendezvous may still be on its way to processes that are no ranks. It is dropped
/// when none of it has moved for this time.
const LAST_DELIVERIES: Duration = Duration::from_secs(2);

/// How long a launcher may take to end after the agents that it started. Later, those agents count as lost.
const LAUNCHER_AFTER_AGENT: Duration = Duration::from_secs(1);

/// How long the end of the events waits for output that is being written.
const LAST_WRITES: Duration = Duration::from_secs(1);

/// Handles events until the app is over or its owner asks for its end, then cleans up.
pub(super) async fn listen(
    core: Arc<Core>,
    mut overlay_events: mpsc::UnboundedReceiver<OverlayEvent>,
    mut guard_events: mpsc::UnboundedReceiver<GuardEvent>,
) {
    let over = Over(Arc::clone(&core));
    let mut guard_lives = true;
    while *core.stage.borrow() == Stage::Alive && *lock(&core.wish) == EndRequest::None {
        tokio::select! {
            event = overlay_events.recv() => match event {
                Some(event) => take_overlay_event(&core, event),
                None => break,
            },
            event = guard_events.recv(), if guard_lives => {
                if let Some(GuardEvent::LauncherEnded(status)) = event {
                    core.launcher_ended(status);
                } else if let Some(GuardEvent::Held(_) | GuardEvent::NotHeld(_)) = event {
                    tracing::debug!(?event, "late news of a launcher");
                } else if let Some(GuardEvent::StepEnded { status, last_words, .. }) = event {
                    // The links of the agents show the consequences.
                    tracing::debug!(%status, last_words, "the step of the agents ended");
                } else if !matches!(event, Some(GuardEvent::AgentEnded { .. })) {
                    guard_lives = false;
                    let error = Error::Lost { what: vec!["the guard".to_owned()], reason: "it ended unasked".to_owned() };
                    core.publish(&Event::of_failure(Some(core.app), error.to_failure()));
                    core.end();
                } else if let Some(GuardEvent::AgentEnded { node, status, last_words }) = event {
                    tracing::warn!(node, %status, last_words, "an agent ended");
                }
            },
            () = core.wished.notified() => {}
        }
        core.let_launcher_end().await;
    }
    let let_go = *lock(&core.wish) == EndRequest::LetGo;
    if !let_go {
        clean_up(&core, &mut overlay_events).await;
        core.let_launcher_end().await;
    }
    if !let_go && *core.stage.borrow() == Stage::Exited {
        tell_cause(&core).await;
    }
    // No further event is handled, and no link may wait for that.
    drop(overlay_events);
    core.overlay.close().await;
    core.guard.dismiss().await;
    let mut launcher = ExitStatus::Unknown;
    if !let_go && guard_lives {
        // The guard waits for agents and ends what they left behind. The launcher ends meanwhile.
        let left = async {
            loop {
                match guard_events.recv().await {
                    Some(GuardEvent::LauncherEnded(status)) => launcher = status,
                    Some(GuardEvent::Gone) | None => break,
                    Some(_) => {}
                }
            }
        };
        if tokio::time::timeout(LEAVE_SLACK, left).await.is_err() {
            tracing::warn!("the guard does not leave");
        }
    }
    if !let_go {
        // No further report of the launcher's end can arrive, not even if the guard that waited for it is gone.
        core.happened(Happening::LauncherEnded(launcher, None));
        // The last output may be lost, which subscribers must learn. Do not wait for a reader that stands still.
        core.outputs.close();
        drop(tokio::time::timeout(LAST_WRITES, core.outputs.written()).await);
    }
    drop(over);
}

/// Closes everything that waits for the app. As a `Drop` it also runs when the runtime ends first: no other task or
/// thread may wait for ever.
#[derive(Debug)]
struct Over(Arc<Core>);

impl Drop for Over {
    fn drop(&mut self) {
        let core = &self.0;
        core.guard.abandon();
        core.rendezvous.close();
        core.member.close();
        core.outputs.close();
        core.channels.close(None);
        core.feed.close();
        core.advance(Stage::Gone);
        lock(&core.subscribers).clear();
    }
}

fn take_overlay_event(core: &Arc<Core>, event: OverlayEvent) {
    if let OverlayEvent::Lost { nodes, reason } = &event {
        core.channels.lose(nodes, reason);
    }
    match event {
        OverlayEvent::Lost { nodes, reason } if core.state().is_launcher_running() => {
            core.outputs.lost(&nodes);
            // A launcher ends an agent after its last rank. That is no loss, however long the launcher itself stays.
            let left = core.state().nodes_without_ranks(&nodes);
            let lost = nodes.difference(&left);
            if !left.is_empty() {
                core.happened(Happening::AgentsLeft(left));
            }
            if !lost.is_empty() {
                tokio::spawn(lose_unless_over(Arc::clone(core), lost, reason));
            }
        }
        OverlayEvent::Notice(node, notice, _room) => {
            if let Notice::Rendezvous(notice) = &notice
                && core.rendezvous.begins_mpi_world(notice)
            {
                tokio::spawn(test_hosts(Arc::clone(core)));
            }
            core.take_notice(node, notice);
        }
        OverlayEvent::Lost { nodes, reason } => {
            core.outputs.lost(&nodes);
            core.happened(Happening::NodesLost(nodes, reason));
        }
    }
}

/// Declares nodes lost, unless their launcher ends first. An agent that a launcher started may end with its ranks, and
/// the frontend may see that before the launcher's own end. If a node is lost while ranks are held, they cannot be
/// released any more: the launch has failed.
async fn lose_unless_over(core: Arc<Core>, nodes: NodeSet, reason: String) {
    let over = core.until(|state| (!state.is_launcher_running()).then_some(()));
    drop(tokio::time::timeout(LAUNCHER_AFTER_AGENT, over).await);
    let was_held = core.state().app_state() == AppState::Held;
    core.happened(Happening::NodesLost(nodes, reason));
    if was_held && core.state().is_launcher_running() {
        core.end();
    }
}

/// Has every agent end what it started, and handles events meanwhile so that none is lost.
async fn clean_up(core: &Arc<Core>, overlay_events: &mut mpsc::UnboundedReceiver<OverlayEvent>) {
    let has_exited = *core.stage.borrow() == Stage::Exited;
    let patience = if has_exited { DAEMON_PATIENCE } else { Duration::ZERO };
    let leaving = async {
        if has_exited && !core.rendezvous.finish_deliveries(LAST_DELIVERIES).await {
            tracing::warn!("data of a rendezvous is still on its way: it is dropped");
        }
        let order = Order::Leave { patience, grace: DAEMON_GRACE };
        let deadline = Instant::now() + DAEMON_GRACE + LEAVE_SLACK + patience;
        core.overlay.request(To::All, order, "cleaning up", deadline).await
    };
    tokio::pin!(leaving);
    let left = loop {
        tokio::select! {
            // Agents send their last notices before the answer, so take those first.
            biased;
            Some(event) = overlay_events.recv() => take_last_event(core, event),
            left = &mut leaving => break left,
        }
    };
    while let Ok(event) = overlay_events.try_recv() {
        take_last_event(core, event);
    }
    // A job that ends with its launcher ends the agents too.
    let may_leave = core.state().has_launcher_ended();
    let tell = |error: Error| {
        if !may_leave || error.kind() != Kind::Lost {
            core.publish(&Event::of_failure(Some(core.app), error.to_failure()));
        }
    };
    match left {
        Ok(answers) => {
            for (node, failure) in
                answers.into_iter().filter_map(|(node, answer)| Some((node, answer.err()?)))
            {
                tell(Error::Node { hosts: vec![core.state().host(node)], failure });
            }
        }
        // A lost node is cleaned up by its agent, or by this user's next agent there.
        Err(error) => tell(error),
    }
    let (attached, ended, all) = {
        let state = core.state();
        (state.is_attached(), state.exit().is_some(), state.live_nodes())
    };
    match (attached, ended) {
        (_, true) => {}
        // An app that was attached to continues without us.
        (true, false) => core.publish(&Event::Detached { app: core.app }),
        (false, false) => core.happened(Happening::AgentsLeft(all)),
    }
}

/// Handles an event during the cleanup. Agents that were told to leave close their links: that is no loss.
fn take_last_event(core: &Arc<Core>, event: OverlayEvent) {
    match event {
        OverlayEvent::Lost { .. } => {}
        OverlayEvent::Notice(node, notice, _room) => core.take_notice(node, notice),
    }
}
