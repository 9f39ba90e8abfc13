//! The state that an app's handles share.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use gantry_shared::wire::message::{Answer, FlowId, Notice, Order, Reply, To};
use gantry_shared::wire::mpi::MpiEnd;
use gantry_types::id::{AppId, DaemonId, NodeId, Rank, SessionId};
use gantry_types::rank_set::NodeSet;
use gantry_types::signal::Signal;
use gantry_types::status::ExitStatus;
use gantry_wlm::Wlm;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::connected::Membership;
use super::events::{Events, Sink};
use super::state::{Happening, State};
use super::stdio::launcher::Words;
use super::stdio::{InputFeed, OutputStream, Outputs};
use crate::channel::hub::Channels;
use crate::coallocation::{Member, MpiFailure};
use crate::error::{Error, Result};
use crate::event::Event;
use crate::guard::Guard;
use crate::lock::lock;
use crate::overlay::Overlay;
use crate::rendezvous::Service;
use crate::session::place::Place;
use crate::staging::content::Contents;
use gantry_guard::protocol::LauncherTable;

/// How long daemons have between SIGTERM and SIGKILL.
pub(crate) const DAEMON_GRACE: Duration = Duration::from_secs(10);

/// How long ranks may take to end once their launcher has.
const RANKS_AFTER_LAUNCHER: Duration = Duration::from_secs(5);

/// How far an app is in its life, for its handles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// Agents are there.
    Alive,
    /// All ranks have ended; daemons and sessions are being cleaned up.
    Exited,
    /// Nothing is left, or the app was detached.
    Gone,
}

/// How the owner asks for the app's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EndRequest {
    None,
    End,
    LetGo,
}

/// What an app's handles share.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) app: AppId,
    pub(crate) wlm: &'static dyn Wlm,
    pub(crate) overlay: Overlay,
    pub(crate) outputs: Arc<Outputs>,
    pub(crate) channels: Arc<Channels>,
    pub(crate) feed: InputFeed,
    /// Where its sessions are.
    pub(crate) place: Place,
    /// Content of the staged files.
    pub(crate) contents: Arc<Contents>,
    /// The data that ranks exchange.
    pub(crate) rendezvous: Service,
    /// The job that its ranks are part of.
    pub(super) member: Member,
    rank_output: Mutex<Option<OutputStream>>,
    /// The launcher's stderr, if there is a launcher.
    pub(super) words: Mutex<Option<Words>>,
    pub(super) guard: Guard,
    /// The launcher is stopped at its breakpoint until the ranks are released or have ended.
    launcher_stands: AtomicBool,
    /// Nodes have been told to kill the processes that the ranks left behind.
    strays_told: AtomicBool,
    state: Mutex<State>,
    pub(super) subscribers: Mutex<Vec<Sink>>,
    pub(super) stage: watch::Sender<Stage>,
    changed: watch::Sender<u64>,
    pub(super) wish: Mutex<EndRequest>,
    pub(super) wished: Notify,
    /// Daemons and sessions outlive the ranks.
    linger: bool,
    next_session: AtomicU32,
    next_daemon: AtomicU32,
}

impl Core {
    /// Makes an app without its listening task; see [`listen`](super::listen).
    pub(super) fn new(
        part: Membership,
        (overlay, guard): (Overlay, Guard),
        state: State,
        words: Option<Words>,
    ) -> Arc<Self> {
        let placement = state.placement().clone();
        let member = part.member.unwrap_or_else(Member::alone);
        member.start(overlay.clone(), &placement);
        Arc::new(Self {
            app: part.app,
            wlm: part.wlm,
            outputs: Arc::new(Outputs::new(overlay.clone())),
            channels: Arc::new(Channels::new(overlay.clone())),
            rank_output: Mutex::default(),
            words: Mutex::new(words),
            feed: InputFeed::default(),
            place: Place::default(),
            contents: Arc::default(),
            rendezvous: Service::new(part.app, placement, overlay.clone(), part.seat),
            member,
            overlay,
            guard,
            launcher_stands: AtomicBool::new(false),
            strays_told: AtomicBool::new(false),
            state: Mutex::new(state),
            subscribers: Mutex::default(),
            stage: watch::Sender::new(Stage::Alive),
            changed: watch::Sender::new(0),
            wish: Mutex::new(EndRequest::None),
            wished: Notify::new(),
            linger: part.linger,
            next_session: AtomicU32::new(1),
            next_daemon: AtomicU32::new(1),
        })
    }

    /// The locked state. Never hold it across an await.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Updates the state and publishes the events that follow.
    pub(crate) fn happened(&self, happening: Happening) {
        let mut missed = None;
        match &happening {
            Happening::RankExited(rank, status) => {
                self.rendezvous.rank_ended(*rank, *status);
                self.member.rank_ended(*rank);
            }
            Happening::NodesLost(nodes, _) => {
                // Others of its MPI world may wait for it for ever.
                missed = self.rendezvous.is_mpi_world().then(|| self.state().find_missed(nodes)).flatten();
                self.rendezvous.nodes_lost(nodes);
                self.lose_ranks(nodes);
            }
            _ => {}
        }
        // Publish under the state's lock, so that every subscriber sees the events in the order in which they happened.
        let mut state = self.state();
        let events = state.handle(happening);
        if state.exit().is_some() && !self.linger {
            // Advance before subscribers are notified: a subscriber finds handles that know of the end.
            self.advance(Stage::Exited);
            // Wake the listening task; it may be waiting for another event.
            self.wished.notify_one();
        }
        events.iter().for_each(|event| self.publish(event));
        drop(state);
        self.changed.send_modify(|n| *n += 1);
        if let Some((rank, host)) = missed {
            let why = format!("rank {rank} was lost with its node {host}");
            self.mpi_failed(rank, 1, why, MpiEnd::Killed);
        }
    }

    /// The ranks' MPI world cannot go on: ends them. The first failure counts, and exit codes that SIGKILL causes do not.
    fn mpi_failed(&self, rank: Rank, code: i32, why: String, end: MpiEnd) {
        self.member.mpi_failed(MpiFailure { code, why: why.clone(), end });
        self.happened(Happening::MpiFailed(rank, code, why));
        self.overlay.tell(To::All, Order::Signal { signal: Signal::KILL, ranks: None });
    }

    /// Tells subscribers of an event that changes no state.
    pub(crate) fn publish(&self, event: &Event) {
        lock(&self.subscribers).retain(|subscriber| subscriber.send(event.clone()));
    }

    /// The app's present state and every event from now on.
    pub(crate) fn subscribe(&self) -> Events {
        let state = self.state();
        let size = state.placement().rank_count() as usize + state.placement().node_count() as usize;
        let (sink, events) = Events::new(self.app, size);
        let exit = state.exit().cloned().map(Event::Exited);
        let past = [Some(state.standing()), state.left_out()].into_iter().flatten();
        for event in past.chain(state.findings().iter().cloned()).chain(exit) {
            // This function owns the receiver, so sending cannot fail.
            let _read = sink.send(event);
        }
        // Check under the lock: the end of the app clears the list after its stage is `Gone`.
        let mut subscribers = lock(&self.subscribers);
        if *self.stage.borrow() != Stage::Gone {
            subscribers.push(sink);
        }
        drop(subscribers);
        events
    }

    /// Sends an order to nodes and returns each node's answer. The first refusal is the error.
    pub(crate) async fn ask(
        &self,
        nodes: &NodeSet,
        order: Order,
        phase: &'static str,
        deadline: Instant,
    ) -> Result<Vec<(NodeId, Answer)>> {
        self.accept(self.ask_each(nodes, order, phase, deadline).await?)
    }

    /// As [`Core::ask`], but refusals are among the answers.
    pub(crate) async fn ask_each(
        &self,
        nodes: &NodeSet,
        order: Order,
        phase: &'static str,
        deadline: Instant,
    ) -> Result<Vec<(NodeId, Reply)>> {
        self.check_alive()?;
        let to = if *nodes == self.state().live_nodes() { To::All } else { To::Nodes(nodes.clone()) };
        self.overlay.request(to, order, phase, deadline).await
    }

    /// The nodes that can be reached, and give no sign of life until the deadline.
    pub(crate) async fn find_silent(&self, deadline: Instant) -> Result<NodeSet> {
        self.check_alive()?;
        let outcome = self.overlay.ask(To::All, Order::Ping)?.outcome(deadline).await?;
        Ok(outcome.missing.into_iter().collect())
    }

    /// Takes the nodes' answers to an order. The first refusal is the error.
    pub(crate) fn accept(&self, answers: Vec<(NodeId, Reply)>) -> Result<Vec<(NodeId, Answer)>> {
        let mut refused: Option<(Vec<NodeId>, gantry_types::error::Failure)> = None;
        let mut good = Vec::with_capacity(answers.len());
        for (node, answer) in answers {
            match (answer, &mut refused) {
                (Ok(answer), _) => good.push((node, answer)),
                (Err(failure), None) => refused = Some((vec![node], failure)),
                (Err(_), Some((nodes, _))) => nodes.push(node),
            }
        }
        match refused {
            None => Ok(good),
            Some((nodes, failure)) => {
                let state = self.state();
                let hosts = if state.placement().node_count() > 1 {
                    nodes.into_iter().map(|node| state.host(node)).collect()
                } else {
                    Vec::new()
                };
                Err(Error::Node { hosts, failure })
            }
        }
    }

    /// Keeps the ranks' output until a caller takes it.
    pub(crate) fn keep_rank_output(&self, stream: OutputStream) {
        *lock(&self.rank_output) = Some(stream);
    }

    /// Has a thread write output of ranks or of a daemon to two descriptors.
    pub(crate) fn write_output(self: &Arc<Self>, stream: OutputStream, to: (OwnedFd, OwnedFd)) -> Result<()> {
        let core = Arc::downgrade(self);
        let lost = move |stream, error: &io::Error| {
            if let Some(core) = core.upgrade() {
                let message = error.to_string();
                core.happened(Happening::Found(Event::OutputLost { app: core.app, stream, message }));
            }
        };
        let started = self.outputs.write_stream(stream, to, lost);
        started.map_err(|e| Error::io("cannot start a thread for output", e))
    }

    /// Takes the ranks' output. Works once.
    pub(crate) fn take_rank_output(&self) -> Option<OutputStream> {
        lock(&self.rank_output).take()
    }

    /// Nodes that can be reached.
    pub(crate) fn live_nodes(&self) -> NodeSet {
        self.state().live_nodes()
    }

    /// The number that the next session will have.
    pub(crate) fn next_session(&self) -> u32 {
        self.next_session.load(Ordering::Relaxed)
    }

    /// A session number that was never used in this app.
    pub(crate) fn new_session(&self) -> SessionId {
        SessionId(self.next_session.fetch_add(1, Ordering::Relaxed))
    }

    /// A daemon number that was never used in this app.
    pub(crate) fn new_daemon(&self) -> DaemonId {
        DaemonId(self.next_daemon.fetch_add(1, Ordering::Relaxed))
    }

    /// Refuses when the app is over.
    pub(crate) fn check_alive(&self) -> Result<()> {
        match *self.stage.borrow() {
            Stage::Alive => Ok(()),
            Stage::Exited | Stage::Gone => Err(Error::Gone { what: format!("app {}", self.app) }),
        }
    }

    /// Waits until the app has reached `stage`.
    pub(crate) async fn reached(&self, stage: Stage) {
        let mut stages = self.stage.subscribe();
        // `self` owns the sender, so waiting cannot fail.
        drop(stages.wait_for(|now| *now >= stage).await);
    }

    /// Waits until `ready` finds something in the state, or the state cannot change any more.
    pub(crate) async fn until<T>(&self, mut ready: impl FnMut(&State) -> Option<T>) -> Option<T> {
        let mut changes = self.changed.subscribe();
        loop {
            changes.mark_unchanged();
            if let Some(found) = ready(&self.state()) {
                return Some(found);
            }
            tokio::select! {
                changed = changes.changed() => changed.ok()?,
                () = self.reached(Stage::Gone) => return ready(&self.state()),
            }
        }
    }

    /// Makes a socket that the guard knows of. None: the app is over, so the guard has already removed the sockets that
    /// it knew.
    pub(crate) async fn make_socket<T>(&self, make: impl FnOnce() -> Result<T>) -> Result<Option<T>> {
        self.guard.before_dismissal(make).await.transpose()
    }

    /// As [`Guard::launcher_table`].
    pub(super) async fn launcher_table(&self, wrapped: bool) -> Option<LauncherTable> {
        self.guard.launcher_table(wrapped).await
    }

    /// Keeps the launcher at its breakpoint until [`Core::let_launcher_go`].
    pub(super) fn keep_launcher(&self) {
        self.launcher_stands.store(true, Ordering::Relaxed);
        // All ranks may have ended already.
        self.wished.notify_one();
    }

    /// Releases a launcher that was kept at its breakpoint.
    pub(super) async fn let_launcher_go(&self) -> Result<()> {
        if !self.launcher_stands.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        match self.guard.let_launcher_go().await {
            // The app is over, and its launcher has ended.
            Err(Error::Gone { .. }) => Ok(()),
            done => done,
        }
    }

    /// Lets the launcher end once all ranks have ended. A launcher at its breakpoint does not notice that they have,
    /// and background processes of the ranks may keep it running.
    pub(super) async fn let_launcher_end(&self) {
        if !self.state().are_ranks_over() {
            return;
        }
        if self.state().is_launcher_running() && !self.strays_told.swap(true, Ordering::Relaxed) {
            self.overlay.tell(To::All, Order::Signal { signal: Signal::KILL, ranks: None });
        }
        if self.launcher_stands.load(Ordering::Relaxed) {
            // A guard that is gone has ended the launcher too.
            drop(self.let_launcher_go().await);
        }
    }

    /// Asks the listening task to end the app and clean up. Returns at once.
    pub(crate) fn end(&self) {
        self.wish_for(EndRequest::End);
    }

    /// Detaches from the app. After this nothing that this process does has any effect on the app.
    pub(crate) async fn let_go(&self, deadline: Instant) -> Result<()> {
        let nodes = self.live_nodes();
        self.ask(&nodes, Order::Detach, "detaching", deadline).await?;
        // After the detachment no process could release the launcher any more.
        self.let_launcher_go().await?;
        self.guard.detach().await?;
        self.publish(&Event::Detached { app: self.app });
        self.wish_for(EndRequest::LetGo);
        self.reached(Stage::Gone).await;
        Ok(())
    }

    fn wish_for(&self, wish: EndRequest) {
        let mut wished = lock(&self.wish);
        if *wished == EndRequest::None {
            *wished = wish;
            self.wished.notify_one();
        }
    }

    pub(super) fn advance(&self, stage: Stage) {
        self.stage.send_if_modified(|now| {
            let further = stage > *now;
            *now = (*now).max(stage);
            further
        });
    }

    /// Handles the launcher's end. Its ranks have ended or are about to. Ranks that outlive their launcher belong to no
    /// launch and are killed.
    pub(super) fn launcher_ended(self: &Arc<Self>, status: ExitStatus) {
        let core = Arc::clone(self);
        tokio::spawn(async move {
            let words = lock(&core.words).clone();
            let mut cause = None;
            if let Some(mut words) = words {
                words.through().await;
                cause = words.cause();
            }
            core.happened(Happening::LauncherEnded(status, cause));
            let over = core.until(|state| state.exit().map(drop));
            if tokio::time::timeout(RANKS_AFTER_LAUNCHER, over).await.is_err() {
                tracing::warn!("ranks have outlived their launcher");
                core.overlay.tell(To::All, Order::Signal { signal: Signal::KILL, ranks: None });
            }
        });
    }

    pub(super) fn take_notice(self: &Arc<Self>, node: NodeId, notice: Notice) {
        match notice {
            Notice::RankExited { rank, status } => self.rank_exited(rank, status),
            Notice::DaemonExited { daemon, status } => {
                self.happened(Happening::DaemonExited(node, daemon, status));
            }
            Notice::Flow { flow: FlowId::Output(group), word } => {
                let origin = || (self.app, self.state().host(node));
                self.outputs.hear(node, group, word, origin);
            }
            Notice::Flow { flow: FlowId::Input(_), word } => self.feed.hear(&word),
            Notice::Flow { flow: FlowId::Messages(daemon), word } => {
                self.channels.hear_daemon(node, daemon, word);
            }
            Notice::Flow { flow: FlowId::Part { operation, part }, word } => {
                self.channels.hear_part(node, operation, part, word);
            }
            Notice::Flow { flow: FlowId::Items, word } => self.rendezvous.hear(node, word),
            Notice::Flow { flow: FlowId::Link(link), word } => self.take_link(node, link, word),
            Notice::Rendezvous(notice) => self.rendezvous.take_notice(node, notice),
            Notice::Channel(notice) => self.channels.hear(node, notice),
            Notice::MpiFailed { rank, code, why, end } => self.mpi_failed(rank, code, why, end),
            Notice::MpiNote(note) => self.happened(Happening::MpiNote(note)),
            // The overlay handles these itself.
            Notice::ChildJoined { .. }
            | Notice::NodesLost { .. }
            | Notice::Alive
            | Notice::BulkStalled { .. } => {}
        }
    }
}
