//! The task that listens to everything that happens to an app, until the app is over.

use std::sync::Arc;
use std::time::Duration;

use gantry_shared::wire::message::{Order, To};
use gantry_types::error::Kind;
use gantry_types::rank_set::NodeSet;
use gantry_types::status::ExitStatus;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::cause::tell_cause;
use super::core::{Core, DAEMON_GRACE, EndRequest, Stage};
use super::state::Happening;
use crate::error::Error;
use crate::event::Event;
use crate::guard::GuardEvent;
use crate::info::AppState;
use crate::lock::lock;
use crate::overlay::OverlayEvent;

/// How long daemons have to end by themselves when the app has ended.
pub(crate) const DAEMON_PATIENCE: Duration = Duration::from_secs(2);

/// How much longer than its daemons' time an agent may take to clean up.
const LEAVE_SLACK: Duration = Duration::from_secs(10);

/// How long a launcher may take to end once agents that it has brought are gone, before they count as lost.
const LAUNCHER_AFTER_AGENT: Duration = Duration::from_secs(1);

/// Listens until the app is over or its owner has had enough, and cleans up.
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
                    // The links of its agents tell what that means.
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
    // Nothing more is listened to, and no link waits for that.
    drop(overlay_events);
    core.overlay.close().await;
    core.guard.dismiss().await;
    let mut launcher = ExitStatus::Unknown;
    if !let_go && guard_lives {
        // It has agents to wait for, and what they may have left behind to end. The launcher ends meanwhile.
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
        // Nobody tells of it any more, also where the guard is gone that was to wait for it.
        core.happened(Happening::LauncherEnded(launcher, None));
    }
    drop(over);
}

/// Nobody listens to the app any more. Also true when the runtime ends first: who waits elsewhere, and our threads, must not do so for ever.
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
            // With its last rank an agent goes that the launcher would kill: that is no loss, however long the launcher stays.
            let left = core.state().nodes_without_ranks(&nodes);
            let lost = nodes.difference(&left);
            if !left.is_empty() {
                core.happened(Happening::AgentsLeft(left));
            }
            if !lost.is_empty() {
                tokio::spawn(lose_unless_over(Arc::clone(core), lost, reason));
            }
        }
        OverlayEvent::Notice(node, notice, _room) => core.take_notice(node, notice),
        OverlayEvent::Lost { nodes, reason } => {
            core.outputs.lost(&nodes);
            core.happened(Happening::NodesLost(nodes, reason));
        }
    }
}

/// With the ranks of a node the agent may go that their launcher has brought, and that is seen before the launcher's own end. What is lost otherwise while
/// ranks are held cannot be let go any more: the launch has failed.
async fn lose_unless_over(core: Arc<Core>, nodes: NodeSet, reason: String) {
    let over = core.until(|state| (!state.is_launcher_running()).then_some(()));
    drop(tokio::time::timeout(LAUNCHER_AFTER_AGENT, over).await);
    let was_held = core.state().app_state() == AppState::Held;
    core.happened(Happening::NodesLost(nodes, reason));
    if was_held && core.state().is_launcher_running() {
        core.end();
    }
}

/// Has every agent end what it started, and listens on meanwhile, so that no last word is lost.
async fn clean_up(core: &Arc<Core>, overlay_events: &mut mpsc::UnboundedReceiver<OverlayEvent>) {
    let patience = if *core.stage.borrow() == Stage::Exited { DAEMON_PATIENCE } else { Duration::ZERO };
    let order = Order::Leave { patience, grace: DAEMON_GRACE };
    let deadline = Instant::now() + patience + DAEMON_GRACE + LEAVE_SLACK;
    let leaving = core.overlay.request(To::All, order, "cleaning up", deadline);
    tokio::pin!(leaving);
    let left = loop {
        tokio::select! {
            // Agents send their last news before the answer: take them first.
            biased;
            Some(event) = overlay_events.recv() => take_last_event(core, event),
            left = &mut leaving => break left,
        }
    };
    while let Ok(event) = overlay_events.try_recv() {
        take_last_event(core, event);
    }
    // A job that ends with its launcher takes agents along.
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
        // What a lost node still has is removed by its agent, or by this user's next one there.
        Err(error) => tell(error),
    }
    let (attached, ended, all) = {
        let state = core.state();
        (state.is_attached(), state.exit().is_some(), state.live_nodes())
    };
    match (attached, ended) {
        (_, true) => {}
        // What was attached to goes on without us.
        (true, false) => core.publish(&Event::Detached { app: core.app }),
        (false, false) => core.happened(Happening::AgentsLeft(all)),
    }
}

/// Agents that were told to leave close their links: that is no loss.
fn take_last_event(core: &Arc<Core>, event: OverlayEvent) {
    match event {
        OverlayEvent::Lost { .. } => {}
        OverlayEvent::Notice(node, notice, _room) => core.take_notice(node, notice),
    }
}
