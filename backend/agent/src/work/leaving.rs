//! How the agent's work ends: it ends sessions, ends everything, and leaves.

use std::time::Duration;

use gantry_shared::wire::message::{Answer, FlowId, Notice, Order};
use gantry_types::error::{Failure, Kind};
use gantry_types::id::{RequestId, SessionId};
use gantry_types::rank_set::RankSet;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use super::{Agent, Claim, Event, GRACE};
use crate::ending::{CLEAR_UP, Ending, Scope, Step};
use crate::overlay::{Input as Incoming, Uplink};
use crate::pmi::Failed;
use crate::process;
use crate::process::strays::{self, Doomed};
use crate::stdio::{OpenStreams, Outputs};
use crate::task;

/// How long a process may take no more of its answer after everything else has ended.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

impl Agent {
    pub(super) fn frontend_gone(&mut self) {
        self.outputs.drop_everything();
        // Only this agent could write to them: now they read the end of their input.
        self.stdin.clear();
        self.storage.nobody_sends();
        self.rendezvous.frontend_gone();
        if self.claim == Claim::Detached && !self.ranks.all_over() {
            return;
        }
        self.end_all(None, Duration::ZERO, GRACE);
    }

    /// Handles a failure of the ranks' MPI world: all ranks of the app must end.
    pub(super) fn mpi_failed(&mut self, Failed { rank, code, why, end }: Failed) {
        if self.rendezvous.is_alone() {
            // No frontend is there to hear why.
            return self.kill_ranks(None, None);
        }
        self.up.notice(Notice::MpiFailed { rank, code, why, end });
    }

    pub(super) fn close_session(&mut self, request: Option<RequestId>, session: SessionId, grace: Duration) {
        self.storage.closing(session);
        self.begin(Ending::new(Scope::Session(session), request, Instant::now(), Duration::ZERO, grace));
    }

    /// Begins the end of everything on this node.
    pub(super) fn end_all(&mut self, request: Option<RequestId>, patience: Duration, grace: Duration) {
        if self.started_here && self.claim != Claim::Detached {
            self.kill_ranks(None, None);
            self.following = None;
        } else if self.started_here && self.ranks.all_over() {
            // What the ranks have left behind ends with the app.
            self.kill_ranks(None, None);
        }
        self.begin(Ending::new(Scope::All, request, Instant::now(), patience, grace));
    }

    /// Kills ranks with their descendants. If all ranks are meant, also kills marked processes that are no longer their
    /// descendants. Answers `request` when all of them have ended.
    pub(super) fn kill_ranks(&mut self, request: Option<RequestId>, wanted: Option<&RankSet>) {
        if wanted.is_none() {
            self.doomed |= self.world.is_upcoming();
            if let Some(mpi) = &self.mpi {
                mpi.stop();
            }
        }
        let (killed, roots) = self.ranks.kill(wanted);
        // Descendants of processes that the agent itself has started are its own. They end when it leaves.
        let app = (wanted.is_none() && self.brought).then_some(self.ticket.app);
        if roots.is_empty() && app.is_none() {
            return self.answer(request, killed.map(|()| Answer::Done));
        }
        self.starting += 1;
        self.later(async move {
            let doomed = Doomed { roots, app };
            // The same task finds what apps have left whose launcher has ended too.
            let end = move || strays::end(&doomed).and_then(|()| strays::sweep().map(drop));
            let ended = tokio::task::spawn_blocking(end).await;
            let ended = ended.unwrap_or_else(|panic| Err(std::io::Error::other(panic)));
            let ended = ended.map_err(|e| crate::failure::from_io("end what ranks have started", &e));
            Event::RanksKilled(request, killed.and(ended))
        });
    }

    pub(super) fn begin(&mut self, ending: Ending) {
        let scope = ending.scope.clone();
        if let Some(running) = self.endings.iter_mut().find(|it| it.scope == scope) {
            // A second request joins the first, and may shorten its timeouts.
            running.join(ending);
        } else {
            self.endings.push(ending);
        }
        self.advance(&scope, false);
    }

    /// Advances an ending as far as possible now: asks daemons to end, or kills them.
    pub(super) fn advance(&mut self, scope: &Scope, due: bool) {
        let Some(ending) = self.endings.iter_mut().find(|it| it.scope == *scope) else { return };
        match ending.step(Instant::now(), due) {
            Step::Wait => {}
            Step::Signal(signal) => self.daemons.signal_scope(scope, signal),
        }
        if let Some(until) = ending.deadline() {
            let scope = scope.clone();
            self.later(async move {
                tokio::time::sleep_until(until).await;
                Event::Due(scope)
            });
        }
    }

    /// Finishes session endings whose daemons have ended, or cannot be ended.
    pub(super) fn check_endings(&mut self) {
        self.endings.iter().for_each(|ending| self.daemons.cancel_starts(&ending.scope));
        let daemons = &self.daemons;
        let done = |ending: &mut Ending| {
            ending.scope != Scope::All && (ending.is_left() || !daemons.any_in(&ending.scope))
        };
        let finished: Vec<Ending> = self.endings.extract_if(.., done).collect();
        for ending in finished {
            let left = self.daemons.pids_in(&ending.scope);
            let Scope::Session(session) = ending.scope else { continue };
            self.up.channel(|hub| hub.forget_session(session));
            let (events, closed) = (self.events.clone(), self.storage.close_session(session));
            task::spawn_local(async move {
                let answer = and_left(&left, closed.await);
                for request in ending.requests {
                    // After the agent has left, the event has no receiver.
                    drop(events.send(Event::Answered(Some(request), answer.clone())));
                }
            });
        }
    }

    pub(super) fn refuse_while_ending(&self) -> Result<(), Failure> {
        if self.endings.iter().any(|ending| ending.scope == Scope::All) {
            return Err(ending());
        }
        Ok(())
    }

    /// Whether the end of everything is complete, or all that can be ended has ended.
    pub(super) fn is_done(&self) -> bool {
        let Some(ending) = self.endings.iter().find(|it| it.scope == Scope::All) else { return false };
        let ranks = !self.started_here || self.ranks.all_over() || self.claim == Claim::None;
        let done = match ending.is_left() {
            // Ranks that were let go have not been told to end.
            true => ranks || self.claim != Claim::Detached,
            false => ranks && !self.daemons.any_in(&Scope::All),
        };
        done && self.starting == 0
    }

    /// The processes that should have ended and have not.
    fn find_left(&self) -> Vec<i32> {
        let mut pids = self.daemons.pids_in(&Scope::All);
        if self.started_here {
            pids.extend(self.ranks.pids().into_iter().map(|(_, pid)| pid));
        }
        pids
    }

    /// Clears up, answers and says goodbye after all processes have ended that can.
    ///
    /// # Errors
    /// Something stays behind, and no request was there to be answered with it.
    pub(super) async fn leave(mut self, inputs: mpsc::UnboundedReceiver<Incoming>) -> Result<(), Failure> {
        let until = Instant::now() + CLEAR_UP;
        let mut left = self.find_left();
        let streams = self.streams.into_values().chain(self.last_output).collect();
        let processes = async {
            // A library removes what it has made, and is then no orphan.
            let closed = match self.mpi {
                Some(mpi) => mpi.close().await,
                None => Ok(()),
            };
            process::end_orphans().await;
            if let Ok(thread) = std::rc::Rc::try_unwrap(self.thread) {
                thread.close().await;
            }
            closed
        };
        let clear_up = self.storage.remove_after(processes, until);
        let last_output = pass_last_output(&mut self.outputs, &self.up, (streams, until), inputs);
        let (removed, ()) = tokio::join!(clear_up, last_output);
        left.retain(|pid| process::procfs::read_stat(*pid).is_ok());
        let done = and_left(&left, removed.map(|()| Answer::Done));
        let requests: Vec<RequestId> = self.endings.into_iter().flat_map(|ending| ending.requests).collect();
        let mut untold = Ok(());
        if requests.is_empty() {
            untold = done.clone().map(drop);
            let also = untold.as_ref().err().map(|it| format!(", and failed to {it}")).unwrap_or_default();
            // A peer that is still connected takes a goodbye as the answer to its requests.
            self.up.leaving_unasked(&format!("its agent was told to end{also}"));
        }
        for request in requests {
            self.up.answer(request, done.clone());
        }
        self.up.close().await;
        // Processes that are no ranks may have asked. Ranks may end before the answer to them is written.
        drop(self.rendezvous);
        // A process that does not take its data by then does without.
        self.owed.nothing(LAST_ANSWERS).await;
        untold
    }
}

/// Waits until the output of the ended processes has been taken, at most until `until`. Handles nothing but credit.
async fn pass_last_output(
    outputs: &mut Outputs,
    up: &Uplink,
    (streams, until): (Vec<OpenStreams>, Instant),
    mut inputs: mpsc::UnboundedReceiver<Incoming>,
) {
    let through = async {
        for mut streams in streams {
            drop(streams.wait_for(|open| *open == 0).await);
        }
    };
    let through = timeout_at(until, through);
    tokio::pin!(through);
    loop {
        let input = tokio::select! {
            biased;
            _ = &mut through => return,
            input = inputs.recv() => input,
        };
        match input {
            Some(Incoming::Order { order: Order::Flow { flow: FlowId::Output(group), word }, .. }) => {
                outputs.hear(group, &word);
            }
            Some(Incoming::Order { request: Some(request), .. }) => up.answer(request, Err(ending())),
            Some(Incoming::Order { request: None, .. } | Incoming::Bulk(_)) => {}
            Some(Incoming::Gone { .. }) => outputs.drop_everything(),
            None => {
                outputs.drop_everything();
                drop(through.await);
                return;
            }
        }
    }
}

/// The outcome of an end with the processes that not even SIGKILL has ended. One failure has the words of both.
fn and_left(pids: &[i32], done: Result<Answer, Failure>) -> Result<Answer, Failure> {
    if pids.is_empty() {
        return done;
    }
    let mut message = format!("end processes {pids:?}: SIGKILL does not end them");
    let mut hint = "they wait in system calls: look at the node's file systems and devices".to_owned();
    if let Err(also) = done {
        message.extend(["; ", also.message()]);
        hint.extend(also.hint().into_iter().flat_map(|more| ["; ", more]));
    }
    Err(Failure::new(Kind::TimedOut, message).with_hint(hint))
}

pub(super) fn ending() -> Failure {
    Failure::new(Kind::Gone, "the app is ending on this node")
}
