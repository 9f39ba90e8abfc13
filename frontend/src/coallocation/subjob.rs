//! The task of one subjob, which is an app of one workload manager. The app is held before its first instruction or
//! waits at its call of the barrier. The task releases it or ends it as ordered, and cleans up.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use gantry_shared::wire::mpi::MpiEnd;
use gantry_types::id::Rank;
use gantry_types::launch::{JobType, Wanted};
use gantry_wlm::host::Machine;
use gantry_wlm::{Host, find_described};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use super::contact::Contacts;
use super::exchange::{Arrival, Member};
use super::info::JobEvent;
use super::mpi_failure::MpiFailure;
use super::output::{Destination, OutputFiles, SubjobOutput};
use super::request::{BarrierPoint, CommsType, Subrequest};
use super::state::{News, StartType, SubjobId};
use super::world::{self, Seat};
use crate::app::{App, AppHandle, refuse_foreign};
use crate::clock::{Clock, QueueTime};
use crate::config::{Config, Frontend};
use crate::error::{Error, Result};
use crate::event::{Ending, Event, Exit};
use crate::request::{Input, LaunchRequest};
use crate::staging::{Resolver, ResolverConfig, symbols};

/// How long an app may take to clean up after its end: its daemons' grace period and a margin.
const CLEAN_UP: Duration = Duration::from_secs(30);

/// How long the cause of a part's MPI failure may take to be reported by another part. MPI libraries abort as soon as
/// they lose the connection to a dead rank.
const CAUSE_TIME: Duration = Duration::from_millis(300);

/// A subjob that is ready to launch: everything that can be checked without its manager has been checked.
#[derive(Debug)]
pub(super) struct Planned {
    pub(super) label: Option<String>,
    pub(super) start: StartType,
    pub(super) comms: CommsType,
    barrier: BarrierPoint,
    /// Its ranks are part of the job's MPI world.
    pub(super) joins_world: bool,
    pub(super) wlm: &'static str,
    frontend: Frontend,
    request: LaunchRequest,
    output: Destination,
    queue: QueueTime,
}

impl Planned {
    /// Plans `subrequest`.
    ///
    /// # Errors
    /// The manager does not exist or cannot honour an attribute; a file cannot be written to.
    pub(super) fn new(
        subrequest: Subrequest,
        contacts: &Contacts,
        config: &Config,
        output: &Arc<SubjobOutput>,
        queue: QueueTime,
    ) -> Result<Self> {
        let contact = contacts.resolve(&subrequest.contact)?;
        let joins_world = check_world(&subrequest)?;
        // The manager does not know about a world of the job's own.
        let job_type = match subrequest.wanted.job_type {
            JobType::Mpi if !joins_world => JobType::Multiple,
            job_type => job_type,
        };
        let wanted = Wanted { place: contact.place, job_type, ..subrequest.wanted };
        let args = find_described(contact.wlm, wanted.program.as_ref())?(&wanted)?;
        let folder = subrequest.directory.clone().unwrap_or_default();
        let inside = |path: &Path| folder.join(path);
        let barrier = match joins_world {
            true => BarrierPoint::Exec,
            false => subrequest.barrier.unwrap_or_else(|| find_barrier(&wanted.program, &folder)),
        };
        if joins_world {
            refuse_foreign(&wanted.program, &folder)?;
        }
        let held = subrequest.start != StartType::NoBarrier && barrier == BarrierPoint::Exec;
        let mut request = LaunchRequest::new(args).hold(held);
        if joins_world {
            request = request.join_world();
        }
        for (name, value) in subrequest.environment {
            request = request.env(name, value);
        }
        if let Some(path) = &subrequest.stdin {
            request = request.stdin(Input::File(inside(path)));
        }
        if let Some(directory) = &subrequest.directory {
            request = request.cwd(directory);
        }
        let [stdout, stderr] = [subrequest.stdout, subrequest.stderr].map(|path| path.map(|it| inside(&it)));
        let output = Destination::new(stdout, stderr, output)?;
        let config = Config { wlm: Some(contact.wlm.name().to_owned()), ..config.clone() };
        let wlm = contact.wlm.name();
        Ok(Self {
            label: subrequest.label,
            start: subrequest.start,
            comms: subrequest.comms,
            barrier,
            joins_world,
            wlm,
            frontend: Frontend::new(config),
            request,
            output,
            queue,
        })
    }
}

impl Planned {
    /// Makes MPI libraries use the transport that hosts of different managers have in common, unless the user has
    /// chosen one.
    pub(super) fn use_common_transport(&mut self) {
        for (name, value) in world::TRANSPORT {
            if !self.has_variable(name) {
                self.request.env.push((name.into(), value.into()));
            }
        }
    }

    /// Whether the user has chosen a transport.
    pub(super) fn has_transport(&self) -> bool {
        world::TRANSPORT.iter().any(|(name, _)| self.has_variable(name))
    }

    fn has_variable(&self, name: &str) -> bool {
        Machine.env(name).is_some() || self.request.env.iter().any(|(known, _)| known == name)
    }
}

/// Whether the ranks are to be part of the job's MPI world.
fn check_world(subrequest: &Subrequest) -> Result<bool> {
    if subrequest.wanted.job_type != JobType::Mpi || subrequest.comms == CommsType::Independent {
        return Ok(false);
    }
    let hint = || Some("subjobCommsType=independent makes the part an MPI world of its own".to_owned());
    if subrequest.start == StartType::NoBarrier {
        let message = "jobType=mpi needs a barrier, at which the ranks of all parts get their numbers; subjobStartType=no-barrier has none";
        return Err(Error::Invalid { message: message.to_owned(), hint: hint() });
    }
    if subrequest.barrier == Some(BarrierPoint::Runtime) {
        let message = "jobType=mpi holds ranks before their first instruction; barrierPoint=runtime lets them run before";
        return Err(Error::Invalid { message: message.to_owned(), hint: hint() });
    }
    Ok(true)
}

/// An order to a subjob.
#[derive(Debug)]
pub(super) enum Tell {
    /// Release the processes, as part of this MPI world.
    Release(Option<Box<Seat>>),
    /// End, in any state.
    End,
    /// Detach.
    Detach {
        /// How long that may take.
        until: Instant,
        /// Receives the result.
        done: mpsc::UnboundedSender<Result<()>>,
    },
}

/// A report of a subjob.
pub(super) enum Told {
    /// Its app exists.
    App(AppHandle),
    /// Its state has changed.
    News(News),
    /// Its processes have been released, and every node has received the release.
    LetGo,
    /// Its processes have ended.
    Exit(Exit),
    /// Why it failed.
    Why(Error),
    /// Its MPI world has failed.
    MpiFailed(MpiFailure),
    /// Something that users of the job should know. The function builds the event from the subjob's label.
    Event(Box<dyn FnOnce(String) -> JobEvent + Send>),
    /// Its ranks cannot be part of the job's MPI world.
    NoWorld(String),
}

/// Reports of all subjobs of a job.
pub(super) type Reports = mpsc::UnboundedSender<(SubjobId, Told)>;

/// The inputs of a subjob's task.
pub(super) struct Inputs {
    /// Orders of its job.
    pub(super) orders: mpsc::UnboundedReceiver<Tell>,
    /// Its place in the job.
    pub(super) member: Member,
    /// Reports about its processes that call the barrier.
    pub(super) arrivals: mpsc::UnboundedReceiver<Arrival>,
    /// The files that its job has opened.
    pub(super) files: OutputFiles,
}

/// Runs a subjob to its end. The last report is [`News::Ended`]; the subjob is cleaned up then.
pub(super) async fn run(
    id: SubjobId,
    planned: Planned,
    deadline: Instant,
    mut inputs: Inputs,
    reports: Reports,
) {
    // If the job was dropped, nothing receives reports. Then the orders end, and so does this task.
    let report = |told| drop(reports.send((id, told)));
    let point = match planned.start {
        StartType::NoBarrier => None,
        StartType::StrictBarrier | StartType::LooseBarrier => Some(planned.barrier),
    };
    let (member, files) = (inputs.member.clone(), inputs.files.clone());
    let launched = tokio::select! {
        launched = launch(planned, member, files, deadline) => Some(launched),
        () = told_to_end(&mut inputs.orders) => None,
    };
    match launched {
        // A launch that is dropped halfway cleans up by itself.
        None => {}
        Some(Err(error)) => report(Told::Why(error)),
        Some(Ok(app)) => {
            report(Told::App((*app).clone()));
            report(Told::News(News::Active));
            if point != Some(BarrierPoint::Runtime) {
                report(Told::News(News::CheckedIn));
            }
            match attend(app, point, &mut inputs, &report).await {
                Ok(Leaving::Over) => {}
                Ok(Leaving::GoesOn) => inputs.member.leave(),
                Err(error) => report(Told::Why(error)),
            }
        }
    }
    inputs.member.close();
    report(Told::News(News::Ended));
}

async fn launch(planned: Planned, member: Member, files: OutputFiles, deadline: Instant) -> Result<App> {
    let Planned { frontend, request, output, queue, .. } = planned;
    let begun = Instant::now();
    let opening = tokio::task::spawn_blocking(move || output.open(&files));
    let late = |_| Error::TimedOut {
        phase: "opening the files for a subjob's output",
        after: begun.elapsed(),
        missing: Vec::new(),
    };
    let output = timeout_at(deadline, opening).await.map_err(late)???;
    let clock = Clock::until(deadline, queue);
    frontend.launch_until(request.output(output).member(member), None, &clock).await
}

/// Returns when the subjob is to end, or when its job is gone.
async fn told_to_end(orders: &mut mpsc::UnboundedReceiver<Tell>) {
    while !matches!(orders.recv().await, Some(Tell::End) | None) {}
}

/// Why a subjob's task ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leaving {
    /// The subjob is cleaned up.
    Over,
    /// The app was detached.
    GoesOn,
}

/// Carries out orders until the app is over or has to end.
async fn attend(
    app: App,
    point: Option<BarrierPoint>,
    inputs: &mut Inputs,
    report: &impl Fn(Told),
) -> Result<Leaving> {
    let mut released = point.is_none();
    // Without a world of the job, the app's own rules are enough.
    let mut in_world = false;
    let mut events = app.events();
    let mut has_events = true;
    let outcome = loop {
        tokio::select! {
            // Take a rank's end before the app's: then the rank, and why the subjob failed, are known.
            biased;
            arrival = inputs.arrivals.recv() => match arrival {
                Some(Arrival::CheckedIn) => report(Told::News(News::CheckedIn)),
                Some(Arrival::Passed) if point == Some(BarrierPoint::Runtime) => report(Told::LetGo),
                Some(Arrival::EndedBefore(rank)) if point == Some(BarrierPoint::Runtime) && !released => {
                    break Err(end_early(&app, rank, report).await);
                }
                Some(Arrival::MpiFailed(failure)) if in_world => {
                    // It may be a consequence of a rank's death in another part, whose report is on its way.
                    if failure.end != MpiEnd::Killed {
                        tokio::time::sleep(CAUSE_TIME).await;
                    }
                    report(Told::MpiFailed(failure));
                }
                Some(_) => {}
                // The app is over, or about to be.
                None => break app.wait().await.map(|exit| tell_exit(exit, in_world, report)),
            },
            event = events.next(), if has_events => match event {
                Some(event) => tell_event(event, report),
                None => has_events = false,
            },
            exit = app.wait() => {
                let exit = exit?;
                if in_world && exit.code != 0 {
                    tell_cause(&mut inputs.arrivals, report).await;
                }
                tell_exit(exit, in_world, report);
                break Ok(());
            }
            order = inputs.orders.recv() => match order {
                Some(Tell::Release(seat)) if !released => {
                    released = true;
                    if let Some(seat) = seat {
                        in_world = true;
                        let taken = tokio::select! {
                            taken = seat.take(&app, Instant::now() + CLEAN_UP) => taken,
                            exit = app.wait() => exit.and_then(|exit| Err(end_held(exit, report))),
                            () = told_to_end(&mut inputs.orders) => break Ok(()),
                        };
                        if let Err(error) = taken {
                            report(Told::NoWorld(error.to_string()));
                            break Err(error);
                        }
                    }
                    if point == Some(BarrierPoint::Exec) {
                        if let Err(error) = app.release(CLEAN_UP).await {
                            break Err(error);
                        }
                        report(Told::LetGo);
                    }
                }
                Some(Tell::Release(_)) => {}
                Some(Tell::Detach { until, done }) => {
                    // The caller may have stopped waiting.
                    drop(done.send(app.detach(until.saturating_duration_since(Instant::now())).await));
                    return Ok(Leaving::GoesOn);
                }
                Some(Tell::End) | None => break Ok(()),
            }
        }
    };
    // Remaining ranks end with the app.
    let closed = app.close(CLEAN_UP).await;
    // The last output is written by now.
    while let Ok(Some(event)) = tokio::time::timeout(Duration::ZERO, events.next()).await {
        tell_event(event, report);
    }
    closed.and(outcome).map(|()| Leaving::Over)
}

/// Reports an event that users of the job should know.
fn tell_event(event: Event, report: &impl Fn(Told)) {
    match event {
        Event::MpiNote { message, .. } => {
            report(Told::Event(Box::new(|label| JobEvent::MpiNote { label, message })));
        }
        Event::OutputLost { stream, message, .. } => {
            report(Told::Event(Box::new(move |label| JobEvent::OutputLost { label, stream, message })));
        }
        _ => {}
    }
}

/// Reports why the MPI world has failed, if an agent says so within [`CAUSE_TIME`]. An agent reports a rank's end at
/// once, and its meaning for the world only after it has read the rank's last messages.
async fn tell_cause(arrivals: &mut mpsc::UnboundedReceiver<Arrival>, report: &impl Fn(Told)) {
    let failure = async {
        loop {
            match arrivals.recv().await {
                Some(Arrival::MpiFailed(failure)) => return Some(failure),
                Some(_) => {}
                None => return None,
            }
        }
    };
    if let Ok(Some(failure)) = tokio::time::timeout(CAUSE_TIME, failure).await {
        report(Told::MpiFailed(failure));
    }
}

/// Reports how the ranks have ended. If it is unknown how some ended, their MPI world has failed.
fn tell_exit(exit: Exit, in_world: bool, report: &impl Fn(Told)) {
    let is_unknown = exit.ranks.iter().any(|rank| rank.status == Ending::default());
    if in_world && is_unknown && exit.code != 0 {
        report(Told::MpiFailed(world::lost(exit.code)));
    }
    report(Told::Exit(exit));
}

/// The ranks ended while they were held.
fn end_held(exit: Exit, report: &impl Fn(Told)) -> Error {
    let reason = format!("they ended while they were held, with code {}", exit.code);
    report(Told::Exit(exit));
    Error::Lost { what: vec!["ranks of the MPI world".to_owned()], reason }
}

/// A rank ended before the barrier was released: the subjob can never be complete.
async fn end_early(app: &App, rank: Rank, report: &impl Fn(Told)) -> Error {
    if let Ok(exit) = app.kill(CLEAN_UP).await {
        report(Told::Exit(exit));
    }
    let reason = "it ended before the release".to_owned();
    Error::Lost { what: vec![format!("rank {rank}")], reason }
}

/// The library that has the barrier, and the call itself: the library has other functions for ranks too.
const RUNTIME_LIBRARY: &[u8] = b"libcommontools_be.so";
const BARRIER: &[u8] = b"gantry_be_barrier";

/// Where a program waits if the request does not say. If the program or one of its libraries imports the barrier from
/// its library, it waits at that call. A program that is not on this machine, or cannot be read, is held before its
/// first instruction.
fn find_barrier(program: &OsStr, folder: &Path) -> BarrierPoint {
    let resolver = Resolver::new(ResolverConfig::of_process());
    let path = folder.join(resolver.find_program(Path::new(program)));
    let Ok(closure) = resolver.closure(&path) else { return BarrierPoint::Exec };
    let is_ours = |name: &OsString| name.as_bytes().starts_with(RUNTIME_LIBRARY);
    let needs_ours = closure.needed.iter().any(|it| is_ours(&it.name))
        || closure.missing.iter().any(|it| is_ours(&it.name));
    let others = closure.needed.iter().filter(|it| !it.is_glibc).map(|it| it.file.as_path());
    let calls = |file: &Path| symbols::takes(file, BARRIER).unwrap_or(false);
    match needs_ours && std::iter::once(path.as_path()).chain(others).any(calls) {
        true => BarrierPoint::Runtime,
        false => BarrierPoint::Exec,
    }
}
