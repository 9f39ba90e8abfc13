//! The agent's main loop over orders, ends of processes and timers. It owns all state.
//!
//! Every input becomes an [`Event`]. [`Agent::handle`] processes one at a time and never waits. Work that takes time
//! (starting processes, reading files) runs outside the loop and comes back as an event.

mod starting;
mod worlds;
mod leaving;

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::time::Duration;

use crate::unpack::Limits;
use gantry_shared::wire::message::{Answer, Consumer, FlowId, Notice, Order, Ticket, Word};
use gantry_shared::wire::mpi::{MpiNote, MpiRanks};
use gantry_types::error::Failure;
use gantry_types::id::{DaemonId, NodeId, Rank, RequestId, SessionId};
use gantry_types::rank_set::RankSet;
use gantry_types::session_dirs::SessionDirs;
use gantry_types::signal::Signal;
use gantry_types::status::ExitStatus;
use tokio::net::{UnixListener, UnixStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot, watch};

use crate::daemons::Daemons;
use crate::ending::{Ending, Scope};
use crate::overlay::{BulkReceiver, Input as Incoming, Joined, Uplink};
use crate::pmi;
use crate::pmix;
use crate::process::hold::StartedRank;
use crate::process::reaper::{Exited, Reaper};
use crate::process::strays::Marker;
use crate::process::thread::RanksThread;
use crate::process::{self, HeldProof};
use crate::ranks::{OurEnds, Ranks};
use crate::reach;
use crate::receive::Announced;
use crate::rendezvous::service::Owed;
use crate::rendezvous::{self, Desk, Socket};
use crate::service::{AppFacts, View};
use crate::stdio::{Input, OpenStreams, Outputs};
use crate::storage::{Storage, Where};
use crate::task;

/// How long the report of an end waits for the last output: another process may still hold the pipe open.
const LAST_OUTPUT: Duration = Duration::from_millis(200);

/// How long ranks may take to start.
const START_DEADLINE: Duration = Duration::from_secs(60);

/// How long an order to release held ranks waits for their tracers. A reader of stacks lets go within milliseconds; a
/// debugger stays, and decides when its rank goes on.
const TRACED: Duration = Duration::from_millis(300);
/// The pause between two looks at the tracers.
const TRACED_PAUSE: Duration = Duration::from_millis(2);

/// How long daemons may end by themselves after the app has ended without a frontend.
const PATIENCE: Duration = Duration::from_secs(2);

/// The time between SIGTERM and SIGKILL when the launcher is about to kill everything on this node.
const HASTY_GRACE: Duration = Duration::from_secs(2);

/// The default time between SIGTERM and SIGKILL for daemons.
const GRACE: Duration = Duration::from_secs(10);

/// The answer to an order that has been carried out.
const DONE: Option<Answer> = Some(Answer::Done);

/// An input of the main loop.
#[derive(Debug)]
pub(crate) enum Event {
    /// An input from the overlay.
    Incoming(Incoming),
    /// A child of ours ended.
    ChildEnded(Exited),
    /// The output of an ended child is complete, or the wait for it has timed out.
    OutputDone(i32, ExitStatus),
    /// An adopted rank ended.
    AdoptedEnded(Rank, ExitStatus),
    /// The start of ranks has succeeded or failed. Before it, that of a PMIx server for them may have.
    RanksStarted(
        RequestId,
        Vec<Rank>,
        Vec<OurEnds>,
        Result<Vec<StartedRank>, Failure>,
        Option<pmix::Started>,
    ),
    /// Held ranks have become the right programs and are held, or have failed to.
    RanksFollowed(RequestId, Vec<Rank>, Result<Vec<(i32, HeldProof)>, Failure>),
    /// Ranks were killed, with all processes that they started.
    RanksKilled(Option<RequestId>, Result<(), Failure>),
    /// The start of a daemon has succeeded or failed.
    DaemonStarted(Option<RequestId>, SessionId, DaemonId, Result<(i32, OurEnds), Failure>),
    /// The creation of a session's directories has succeeded or failed.
    SessionOpened(Option<RequestId>, SessionId, Result<SessionDirs, Failure>),
    /// The answer of an order that ran outside the loop.
    Answered(Option<RequestId>, Result<Answer, Failure>),
    /// A timer of an ending is due.
    Due(Scope),
    /// An order to release held ranks waits for their tracers, until this time.
    ReleaseAgain(Option<RequestId>, tokio::time::Instant),
    /// A rank of a launcher has ended. When this socket closes, the launcher ends what it has started on this node.
    RankCollected(UnixStream),
    /// A process gets or puts rendezvous data.
    Rendezvous(rendezvous::Request),
    /// The ranks' MPI world has failed.
    MpiFailed(pmi::Failed),
    /// The user should know this about the MPI world.
    MpiNote(MpiNote),
    /// A rank's connection was not accepted. Comes once.
    NotAccepted(std::io::Error),
    /// A rank of a launcher asks for an MPI server, at this socket.
    MpiRank(Rank, OwnedFd),
    /// A signal asks the agent to end.
    AskedToGo,
}

/// What happens to the app if the frontend is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Claim {
    /// There are no ranks yet.
    None,
    /// The agent has started the ranks: they end with the frontend.
    Launched,
    /// The ranks ran before the agent: they go on as they were.
    Attached,
    /// The frontend has detached: ranks go on, and the agent stays until they have ended.
    Detached,
}

/// The ranks that an agent begins with.
#[derive(Debug)]
pub(crate) enum Beginning {
    /// None: the frontend names them later.
    Empty,
    /// Those that a launcher has started.
    Brought {
        /// The ranks of this node.
        ranks: Ranks,
        /// The number of ranks of the app.
        size: u32,
        /// Whether they stay held.
        hold: bool,
        /// The thread that holds them.
        thread: RanksThread,
        /// The desk where they checked in.
        desk: UnixListener,
        /// The socket where they exchange data. None if it could not be created.
        socket: Socket,
        /// Whether the agent serves them as MPI programs.
        mpi: MpiRanks,
    },
}

/// The agent's state.
pub(crate) struct Agent {
    ticket: Ticket,
    node: NodeId,
    nodes: u32,
    size: u32,
    up: Uplink,
    thread: std::rc::Rc<RanksThread>,
    nofile: Option<(u64, u64)>,
    claim: Claim,
    started_here: bool,
    /// A launcher has started the ranks for us: the processes that they start are not below the agent.
    brought: bool,
    /// See [`Agent::marker`].
    marker: OnceCell<Option<Marker>>,
    ranks: Ranks,
    daemons: Daemons,
    storage: Storage,
    outputs: Outputs,
    stdin: BTreeMap<Rank, Input>,
    streams: BTreeMap<i32, OpenStreams>,
    /// Output of ended processes that is not read completely yet.
    last_output: Vec<OpenStreams>,
    bulk: BulkReceiver,
    rendezvous: Desk,
    /// The ranks' MPI world until the agent serves it. Then `mpi` is its server.
    world: pmi::Upcoming,
    /// Ranks that are about to start are to be killed.
    doomed: bool,
    mpi: Option<pmi::Server>,
    /// The name of the socket for ranks.
    service: String,
    /// The rendezvous answers that are still owed.
    owed: Owed,
    endings: Vec<Ending>,
    /// Closed at the agent's end.
    collectors: Vec<UnixStream>,
    events: mpsc::UnboundedSender<Event>,
    to_own: Vec<i32>,
    /// Work outside the loop that must finish before the agent leaves.
    starting: usize,
    /// Ranks that are followed to their programs. Dropping this cancels the follow.
    following: Option<Following>,
    /// An order to release held ranks waits for their tracers.
    releasing: bool,
    view: watch::Sender<View>,
}

/// Ranks on the way to their intended programs.
struct Following {
    /// Whether they stay held there.
    hold: bool,
    _until: oneshot::Sender<()>,
}

/// Serves until the app is over on this node, and cleans up. Call it in a local set.
///
/// # Errors
/// The system refuses something that the agent needs.
pub(crate) async fn serve(ticket: Ticket, joined: Joined, beginning: Beginning) -> Result<(), Failure> {
    let failed = |error: std::io::Error| crate::failure::from_io("set up the agent", &error);
    let nofile = crate::process::spawn::raise_open_files().ok();
    let (thread, brought, socket) = match beginning {
        Beginning::Empty => (RanksThread::default(), None, rendezvous::bind_own(&ticket)?),
        Beginning::Brought { ranks, size, hold, thread, desk, socket, mpi } => {
            (thread, Some((ranks, size, hold, desk, mpi)), socket)
        }
    };
    let mut reaper = Reaper::new().map_err(failed)?;
    reaper.adopt_orphans().map_err(failed)?;
    let mut asked_to_go = signal(SignalKind::terminate()).map_err(failed)?;
    let (events, mut happened) = mpsc::unbounded_channel();
    let view = build_view(&ticket, &joined);
    let mut agent = Agent {
        rendezvous: Desk::new(joined.node),
        node: joined.node,
        nodes: joined.nodes,
        size: 0,
        up: joined.up,
        thread: std::rc::Rc::new(thread),
        nofile,
        claim: Claim::None,
        started_here: false,
        brought: false,
        marker: OnceCell::new(),
        ranks: Ranks::default(),
        daemons: Daemons::default(),
        storage: Storage::new(ticket.app, joined.node, ticket.stage_base.clone()),
        outputs: Outputs::default(),
        stdin: BTreeMap::new(),
        streams: BTreeMap::new(),
        last_output: Vec::new(),
        bulk: BulkReceiver::default(),
        world: pmi::Upcoming::None,
        doomed: false,
        mpi: None,
        service: socket.name.clone(),
        owed: Owed::default(),
        endings: Vec::new(),
        collectors: Vec::new(),
        events,
        to_own: Vec::new(),
        starting: 0,
        following: None,
        releasing: false,
        view: watch::Sender::new(view),
        ticket,
    };
    agent.serve_ranks(socket);
    if let Some((ranks, size, hold, desk, mpi)) = brought {
        agent.world = pmi::Upcoming::of_launcher(mpi);
        agent.take_brought(ranks, size, hold)?;
        agent.receive_collectors(desk);
    }
    let mut inputs = joined.inputs;
    let mut connected = true;
    while !agent.is_done() {
        let event = tokio::select! {
            // Ends of children come first, so that the agent never signals a pid that is known to have ended.
            biased;
            exited = reaper.next() => Event::ChildEnded(exited),
            Some(event) = happened.recv() => event,
            input = inputs.recv(), if connected => match input {
                Some(input) => Event::Incoming(input),
                None => {
                    connected = false;
                    Event::Incoming(Incoming::Gone { orderly: false, reason: "the overlay ended".to_owned() })
                }
            },
            _ = asked_to_go.recv() => Event::AskedToGo,
        };
        // Marks all reaped processes before it handles an event. Otherwise a signal could reach an unrelated process.
        reaper.take_collected().into_iter().for_each(|pid| agent.reaped(pid));
        agent.handle(event);
        agent.to_own.drain(..).for_each(|pid| reaper.own(pid));
    }
    // Later requests fail at once: the agent is leaving.
    drop(happened);
    agent.leave(inputs).await
}

/// The view of daemons on an app without ranks and sessions.
fn build_view(ticket: &Ticket, joined: &Joined) -> View {
    let facts = AppFacts {
        wlm: ticket.wlm.clone(),
        app: ticket.app,
        host: ticket.host.clone(),
        node: joined.node,
        nodes: joined.nodes,
        size: 0,
    };
    let secret = ticket.secret.clone();
    View { facts, ranks: Vec::new(), sessions: BTreeMap::new(), secret, daemons: BTreeMap::new() }
}

impl Agent {
    /// Handles one event. Every change of state starts here.
    fn handle(&mut self, event: Event) {
        match event {
            Event::Incoming(Incoming::Order { request, order }) => self.obey(request, order),
            Event::Incoming(Incoming::Bulk(piece)) => self.take_piece(piece),
            Event::Incoming(Incoming::Gone { .. }) => self.frontend_gone(),
            Event::ChildEnded(exited) => self.child_ended(exited),
            Event::OutputDone(pid, status) => self.tell_end(pid, status),
            Event::AdoptedEnded(rank, status) => self.rank_ended(rank, status),
            Event::RanksStarted(request, ranks, ends, result, server) => {
                self.starting -= 1;
                let answer = self.take_ranks(&ranks, ends, result, server);
                self.answer(Some(request), answer.map(Answer::Ranks));
            }
            Event::RanksFollowed(request, ranks, result) => {
                self.starting -= 1;
                let answer = self.take_followed(&ranks, result);
                self.answer(Some(request), answer.map(Answer::Ranks));
            }
            Event::DaemonStarted(request, session, daemon, result) => {
                self.take_daemon(request, session, daemon, result);
            }
            Event::RanksKilled(request, result) => {
                self.starting -= 1;
                self.answer(request, result.map(|()| Answer::Done));
            }
            Event::SessionOpened(request, session, opened) => {
                self.storage.opened(session, &opened);
                self.answer(request, opened.map(|dirs| Answer::Session(dirs.root.into_os_string())));
            }
            Event::Answered(request, answer) => self.answer(request, answer),
            Event::Due(scope) => self.advance(&scope, true),
            Event::ReleaseAgain(request, until) => self.release(request, until),
            Event::RankCollected(collector) => {
                self.collectors.push(collector);
                self.leave_with_ranks();
            }
            Event::Rendezvous(request) => self.rendezvous.ask(request),
            Event::MpiFailed(failed) => self.mpi_failed(failed),
            Event::MpiNote(note) => self.up.notice(Notice::MpiNote(note)),
            Event::NotAccepted(error) => self.tell_not_accepted(&error),
            Event::MpiRank(rank, socket) => self.serve_mpi_rank(rank, socket),
            Event::AskedToGo => self.end_all(None, Duration::ZERO, GRACE),
        }
        self.rendezvous.take_notices().into_iter().for_each(|it| self.up.notice(it));
        self.check_endings();
        self.show();
    }

    fn obey(&mut self, request: Option<RequestId>, order: Order) {
        // `None`: work beside the loop answers.
        let answer = match order {
            Order::StartRanks(order) => self.start_ranks(request, order).map(|()| None),
            Order::AdoptRanks(order) => self.adopt(request, &order).map(|reports| reports.map(Answer::Ranks)),
            Order::SeekRanks(order) => self.seek(&order).map(|reports| Some(Answer::Ranks(reports))),
            Order::JoinWorld(world) => self.join_world(&world).map(|()| DONE),
            Order::Listen { within } => reach::listen(within).map(|address| Some(Answer::Listens(address))),
            Order::Reach { others, within } => {
                return self.later(async move {
                    let unreached = reach::try_all(others, within).await;
                    Event::Answered(request, Ok(Answer::Unreached(unreached)))
                });
            }
            Order::Release => return self.release(request, tokio::time::Instant::now() + TRACED),
            Order::Signal { signal: Signal::KILL, ranks } => return self.kill_ranks(request, ranks.as_ref()),
            Order::Signal { signal: Signal::STOP, ranks } => return self.stop_ranks(request, ranks.as_ref()),
            Order::Signal { signal, ranks } => self.ranks.signal(ranks.as_ref(), signal).map(|()| DONE),
            Order::OpenSession { session, app_dir, base } => {
                self.open_session(request, session, Where { name: app_dir, base }).map(|()| None)
            }
            Order::CloseSession { session, grace } => return self.close_session(request, session, grace),
            Order::Provide { session, entries, libc } => {
                let done = self.answer_later(request);
                return self.storage.provide(session, entries, libc, done);
            }
            Order::Receive { session, stream, bytes, files, copied_bytes, compressed } => {
                let (done, limits) = (self.answer_later(request), Limits { bytes, files, copied_bytes });
                return self.storage.receive(Announced { session, stream, limits, compressed }, done);
            }
            Order::StartDaemon(order) => self.start_daemon(request, order).map(|()| None),
            Order::SignalDaemon { daemon, signal } => self.daemons.signal(daemon, signal).map(|()| DONE),
            Order::Flow { flow, word } => return self.hear(flow, word),
            Order::Detach => {
                self.claim = Claim::Detached;
                self.release_now().map(|()| DONE)
            }
            Order::Leave { patience, grace } => {
                // What stays held ends.
                self.release_now().ok();
                if self.claim == Claim::Detached && self.started_here {
                    // The detach did not reach every node, or the tool did not wait for it. Now the frontend ends
                    // the app.
                    self.claim = Claim::Launched;
                }
                return self.end_all(request, patience, grace);
            }
            Order::Ping => Ok(DONE),
            Order::Sink { stream } => return self.bulk.expect(stream, request),
            Order::Rendezvous(order) => return self.rendezvous.obey(request, order),
            // The overlay handles these.
            Order::Bulk(_) | Order::Channel(_) | Order::CutChild { .. } => return,
        };
        if let Some(answer) = answer.transpose() {
            self.answer(request, answer);
        }
    }

    /// Passes a word from the frontend to the owner of the flow.
    fn hear(&mut self, flow: FlowId, word: Word) {
        match flow {
            FlowId::Output(group) => self.outputs.hear(group, &word),
            FlowId::Input(rank) => {
                if let Some(Err(overrun)) = self.stdin.get(&rank).map(|input| input.hear(word)) {
                    self.up.refuse(&format!("{flow} overran its window: {overrun}"));
                }
            }
            FlowId::Messages(_) | FlowId::Part { .. } => {
                if let Word::Credit(bytes) = word {
                    self.up.channel(|hub| hub.earn(flow, bytes));
                }
            }
            FlowId::Items => self.rendezvous.hear_items(&word),
            FlowId::Link(link) => self.rendezvous.hear_link(link, word),
        }
    }

    fn answer(&self, request: Option<RequestId>, answer: Result<Answer, Failure>) {
        // Nobody waits for the answer to an order without a request.
        if let Some(request) = request {
            self.up.answer(request, answer);
        }
    }

    /// Runs work beside the loop. Its result comes back as an event.
    fn later(&self, work: impl Future<Output = Event> + 'static) {
        let events = self.events.clone();
        // The loop takes events until it leaves, and it does not leave while a start is under way.
        task::spawn_local(async move { drop(events.send(work.await)) });
    }

    /// The callback that answers an order outside the loop.
    fn answer_later(
        &self,
        request: Option<RequestId>,
    ) -> impl FnOnce(Result<Answer, Failure>) + Send + 'static {
        let events = self.events.clone();
        // An agent that has left no longer receives events.
        move |answer| drop(events.send(Event::Answered(request, answer)))
    }

    /// Stops ranks, and answers when they have stopped.
    ///
    /// A process takes pending signals in the order of their numbers. A later signal must not overtake the stop.
    fn stop_ranks(&mut self, request: Option<RequestId>, wanted: Option<&RankSet>) {
        if let Err(failure) = self.ranks.signal(wanted, Signal::STOP) {
            return self.answer(request, Err(failure));
        }
        let stopping = self.ranks.processes(wanted);
        self.later(async move {
            process::stopped(stopping).await;
            Event::Answered(request, Ok(Answer::Done))
        });
    }

    fn take_piece(&mut self, piece: crate::overlay::Piece) {
        let answered = match piece.consumer {
            Consumer::Session => return self.storage.take_piece(piece),
            Consumer::Channel => return self.up.channel(|hub| hub.take_piece(piece)),
            Consumer::Rendezvous => self.rendezvous.take_piece(piece),
            Consumer::Sink => self.bulk.take(&piece),
        };
        if let Some((request, answer)) = answered {
            self.answer(request, answer);
        }
    }

    fn open_session(
        &mut self,
        request: Option<RequestId>,
        session: SessionId,
        place: Where,
    ) -> Result<(), Failure> {
        self.refuse_while_ending()?;
        let (events, served) = (self.events.clone(), (self.view.subscribe(), self.up.clone()));
        self.storage.open_session(session, place, served, move |opened| {
            // An agent that has left no longer receives events.
            drop(events.send(Event::SessionOpened(request, session, opened)));
        });
        Ok(())
    }

    fn child_ended(&mut self, Exited { pid, status }: Exited) {
        // From here on the agent must not signal that pid: the kernel may give it to another process.
        if self.ranks.of_pid(pid).is_none() && self.daemons.of_pid(pid).is_none() {
            return;
        }
        self.reaped(pid);
        if let Some(daemon) = self.daemons.of_pid(pid) {
            self.up.channel(|hub| hub.ended(daemon));
        }
        let Some(mut streams) = self.streams.remove(&pid) else { return self.tell_end(pid, status) };
        if *streams.borrow() == 0 {
            return self.tell_end(pid, status);
        }
        self.last_output.retain(|streams| *streams.borrow() > 0);
        self.last_output.push(streams.clone());
        self.later(async move {
            // The output is complete, or a process that the child left behind holds the pipe open.
            drop(tokio::time::timeout(LAST_OUTPUT, streams.wait_for(|open| *open == 0)).await);
            Event::OutputDone(pid, status)
        });
    }

    fn reaped(&mut self, pid: i32) {
        self.daemons.reaped(pid);
        self.ranks.reaped(pid);
    }

    /// Reports to the frontend that a child has ended.
    fn tell_end(&mut self, pid: i32, status: ExitStatus) {
        if let Some(daemon) = self.daemons.of_pid(pid) {
            self.daemons.forget(daemon);
            self.outputs.forget_ended();
            self.up.notice(Notice::DaemonExited { daemon, status });
        } else if let Some(rank) = self.ranks.of_pid(pid) {
            self.rank_ended(rank, status);
        }
    }

    fn rank_ended(&mut self, rank: Rank, status: ExitStatus) {
        if self.ranks.exited(rank, status) {
            self.stdin.remove(&rank);
            self.up.notice(Notice::RankExited { rank, status });
            if let Some(mpi) = &mut self.mpi {
                mpi.ended(rank, status);
            }
        }
        if self.claim == Claim::Detached && self.ranks.all_over() {
            self.end_all(None, PATIENCE, GRACE);
        }
        self.leave_with_ranks();
    }

    /// Leaves after the node's last rank if a launcher waits for that.
    ///
    /// The launcher then ends what it has started here, this agent included, and waits only a moment for it.
    fn leave_with_ranks(&mut self) {
        if !self.collectors.is_empty() && self.ranks.all_over() {
            self.end_all(None, Duration::ZERO, HASTY_GRACE);
        }
    }

    /// Updates what daemons see.
    fn show(&self) {
        let (ranks, sessions, daemons) = (&self.ranks, self.storage.sessions(), &self.daemons);
        // Most events change nothing here, so the check copies nothing.
        self.view.send_if_modified(|view| {
            let ranks_changed = ranks.update(&mut view.ranks);
            let as_shown =
                view.sessions == *sessions && daemons.are(&view.daemons) && view.facts.size == self.size;
            if !as_shown {
                (view.sessions, view.daemons) = (sessions.clone(), daemons.view());
                (view.facts.size, view.facts.nodes) = (self.size, self.nodes);
            }
            ranks_changed || !as_shown
        });
    }
}
