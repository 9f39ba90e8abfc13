//! The ranks of this node: the agent starts and holds or adopts them, signals and releases them, and sees them end.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use gantry_shared::rendezvous::handle::{Subjob, VARIABLES, build_variables};
use gantry_shared::storage;
use gantry_shared::wire::message::{AdoptRanks, HeldProof, Program, RankReport, StartRanks};
use gantry_types::error::{Failure, Kind};
use gantry_types::id::{AppId, NodeId, Pid, Rank};
use gantry_types::launch::Bind;
use gantry_types::placement::LocalRank;
use gantry_types::rank_set::RankSet;
use gantry_types::signal::Signal;
use gantry_types::status::{ExitStatus, RankEvent, RankState};

use crate::daemons::program::find_in_path;
use crate::failure;
use crate::pmi;
use crate::pmix;
use crate::process::adopted::{Adopted, adopt};
use crate::process::error::StartError;
use crate::process::hold::{StartFailure, StartedRank};
use crate::process::renumber::change_variables;
use crate::process::signal::{self, HeldRank};
use crate::process::spawn::ProcessSpec;
use crate::process::strays::Marker;
use crate::process::{self, Pinned, SERVED, cores};

/// The agent's ends of the pipes of a process that is about to start.
#[derive(Debug, Default)]
pub(crate) struct OurEnds {
    pub(crate) stdin: Option<OwnedFd>,
    pub(crate) output: Option<(OwnedFd, OwnedFd)>,
    pub(crate) served: Option<OwnedFd>,
}

/// A rank that runs or has ended.
#[derive(Debug)]
struct Known {
    process: Pinned,
    exe: OsString,
    state: RankState,
    adopted: Option<std::rc::Rc<Adopted>>,
    /// Whether another process may have its pid already.
    reaped: bool,
}

impl Known {
    fn to_release(&self) -> HeldRank {
        HeldRank { process: self.process, own: self.adopted.is_none() && !self.reaped }
    }
}

/// The ranks of this node.
#[derive(Debug, Default)]
pub(crate) struct Ranks {
    known: BTreeMap<Rank, Known>,
    /// Ranks by pid. A rank that has been reaped stays in here.
    of_pid: HashMap<i32, Rank>,
}

impl Ranks {
    /// Takes over ranks that the agent has started.
    pub(crate) fn started(
        &mut self,
        ranks: &[Rank],
        started: Vec<StartedRank>,
    ) -> Result<Vec<RankReport>, Failure> {
        let mut reports = Vec::with_capacity(started.len());
        for (rank, it) in ranks.iter().copied().zip(started) {
            let held = it.proof.map(|proof| HeldProof { pc: proof.counter, state: proof.state });
            let event = if held.is_some() { RankEvent::Held } else { RankEvent::Started };
            let state = RankState::Starting.next(event).unwrap_or(RankState::Running);
            let exe = it.exe.into_os_string();
            reports.push(RankReport { rank, pid: to_pid(it.process.pid)?, exe: exe.clone(), held });
            self.insert(rank, Known { process: it.process, exe, state, adopted: None, reaped: false });
        }
        Ok(reports)
    }

    /// Adopts processes that run already: all of `wanted` or none.
    pub(crate) fn adopt(&mut self, wanted: &[(Rank, Pid)]) -> Result<Vec<RankReport>, Failure> {
        let mut adopted = Vec::with_capacity(wanted.len());
        for (rank, pid) in wanted {
            adopted.push((*rank, *pid, adopt(pid.get())?));
        }
        let mut reports = Vec::with_capacity(adopted.len());
        for (rank, pid, it) in adopted {
            let exe = it.exe.clone().into_os_string();
            reports.push(RankReport { rank, pid, exe: exe.clone(), held: None });
            let known = Known {
                process: it.process,
                exe,
                state: RankState::Running,
                adopted: Some(std::rc::Rc::new(it)),
                reaped: false,
            };
            self.insert(rank, known);
        }
        Ok(reports)
    }

    /// Takes over ranks that already run. They count as held if all of them are stopped at their first instruction.
    ///
    /// If a program named `wrapper` stands in a rank's place, the wrapper's first child is the rank.
    pub(crate) fn found(
        &mut self,
        wanted: &[(Rank, Pid)],
        wrapper: Option<&str>,
    ) -> Result<Vec<RankReport>, Failure> {
        let inner;
        let wanted = match wrapper {
            None => wanted,
            Some(wrapper) => {
                inner = look_behind(wrapper, wanted)?;
                inner.as_slice()
            }
        };
        let mut reports = self.adopt(wanted)?;
        let proofs: Option<Vec<_>> =
            wanted.iter().map(|(_, pid)| process::look_for_hold(pid.get())).collect();
        for (report, proof) in reports.iter_mut().zip(proofs.unwrap_or_default()) {
            self.mark_held(report, &proof);
        }
        Ok(reports)
    }

    /// Takes over ranks that a launcher has started and that are held.
    pub(crate) fn entered(
        &mut self,
        wanted: &[(Rank, Pid)],
        proofs: &[process::HeldProof],
    ) -> Result<Vec<RankReport>, Failure> {
        let mut reports = self.adopt(wanted)?;
        for (report, proof) in reports.iter_mut().zip(proofs) {
            self.mark_held(report, proof);
        }
        Ok(reports)
    }

    fn mark_held(&mut self, report: &mut RankReport, proof: &process::HeldProof) {
        report.held = Some(HeldProof { pc: proof.counter, state: proof.state });
        if let Some(known) = self.known.get_mut(&report.rank) {
            known.state = RankState::Starting.next(RankEvent::Held).unwrap_or(RankState::Running);
        }
    }

    /// Takes over ranks that wait for their launcher, and stops them at once: all of `wanted` or none.
    pub(crate) fn found_waiting(&mut self, wanted: &[(Rank, Pid)]) -> Result<Vec<RankReport>, Failure> {
        let mut reports = self.adopt(wanted)?;
        self.signal(None, Signal::STOP)?;
        for report in &mut reports {
            let proof = process::prove_stopping(report.pid.get()).map_err(|e| to_failure(&e))?;
            self.mark_held(report, &proof);
        }
        Ok(reports)
    }

    /// Takes over ranks that are held according to their launcher: all of `wanted` or none.
    pub(crate) fn found_held(&mut self, wanted: &[(Rank, Pid)]) -> Result<Vec<RankReport>, Failure> {
        let prove = |(_, pid): &(Rank, Pid)| process::prove_held(pid.get()).map_err(|e| to_failure(&e));
        let proofs = wanted.iter().map(prove).collect::<Result<Vec<_>, Failure>>()?;
        self.entered(wanted, &proofs)
    }

    /// Gives held ranks their numbers in an MPI world of that size, in which the app's rank 0 is `first`.
    pub(crate) fn renumber(&self, first: Rank, size: u32) -> Result<(), Failure> {
        for (rank, known) in self.living(None) {
            if known.state != RankState::Held {
                let why = format!("tell rank {rank} its number in the MPI world: it is not held any more");
                return Err(Failure::new(Kind::Invalid, why)
                    .with_hint("leave held ranks to gantry until the release"));
            }
            let number = first.0.saturating_add(rank.0);
            let changed = change_variables(known.process.pid, &pmi::build_numbers(number, size));
            changed.map_err(|error| {
                failure::from_io(format_args!("tell rank {rank} its number in the MPI world"), &error)
            })?;
        }
        Ok(())
    }

    /// Ranks that have ended, and how.
    pub(crate) fn ended(&self) -> impl Iterator<Item = (Rank, ExitStatus)> {
        self.known.iter().filter_map(|(rank, known)| Some((*rank, known.state.exit_status()?)))
    }

    /// All ranks.
    pub(crate) fn all(&self) -> Vec<Rank> {
        self.known.keys().copied().collect()
    }

    /// The pids of ranks that have not ended.
    pub(crate) fn pids(&self) -> Vec<(Rank, i32)> {
        self.living(None).map(|(rank, known)| (*rank, known.process.pid)).collect()
    }

    /// Adopted ranks, to wait for.
    pub(crate) fn adopted(&self) -> impl Iterator<Item = (Rank, std::rc::Rc<Adopted>)> {
        self.known.iter().filter_map(|(rank, known)| Some((*rank, known.adopted.clone()?)))
    }

    /// The rank with this pid, as long as it has not ended.
    pub(crate) fn of_pid(&self, pid: i32) -> Option<Rank> {
        let rank = self.of_pid.get(&pid)?;
        self.known.get(rank).is_some_and(|known| !known.state.is_over()).then_some(*rank)
    }

    /// A rank's process has been reaped. Its pid is free, and the report of its end follows.
    pub(crate) fn reaped(&mut self, pid: i32) {
        if let Some(known) = self.of_pid.get(&pid).and_then(|rank| self.known.get_mut(rank)) {
            known.reaped = true;
        }
    }

    fn insert(&mut self, rank: Rank, known: Known) {
        self.of_pid.insert(known.process.pid, rank);
        self.known.insert(rank, known);
    }

    /// A rank has ended. False: the agent knew already.
    pub(crate) fn exited(&mut self, rank: Rank, status: ExitStatus) -> bool {
        let Some(known) = self.known.get_mut(&rank) else { return false };
        match known.state.next(RankEvent::Exited(status)) {
            Ok(next) if next != known.state => {
                known.state = next;
                true
            }
            Ok(_) | Err(_) => false,
        }
    }

    /// Releases held ranks, as [`signal::release`] does. False: none, because one of them is traced.
    pub(crate) fn release(&mut self, unless_traced: bool) -> Result<bool, Failure> {
        let mut first_error = None;
        let mut held: Vec<_> =
            self.known.iter_mut().filter(|(_, known)| known.state == RankState::Held).collect();
        let ranks: Vec<_> = held.iter().map(|(_, known)| known.to_release()).collect();
        let Some(released) = signal::release(&ranks, unless_traced) else { return Ok(false) };
        for ((rank, known), released) in held.iter_mut().zip(released) {
            match released {
                Ok(_) => {
                    if let Ok(next) = known.state.next(RankEvent::Released) {
                        known.state = next;
                    }
                }
                Err(error) => {
                    first_error.get_or_insert(failure::from_io(format_args!("release rank {rank}"), &error));
                }
            }
        }
        first_error.map_or(Ok(true), Err)
    }

    /// Signals `wanted`, or all. A rank that the agent has started gets it with its process group, others alone.
    pub(crate) fn signal(&self, wanted: Option<&RankSet>, what: Signal) -> Result<(), Failure> {
        self.send(self.living(wanted), what)
    }

    /// Kills those of `wanted`, or of all, that the agent has started. Returns the adopted ones.
    ///
    /// The caller ends those with all their descendants, which are not below the agent.
    pub(crate) fn kill(&self, wanted: Option<&RankSet>) -> (Result<(), Failure>, Vec<Pinned>) {
        let (adopted, own): (Vec<_>, Vec<_>) =
            self.living(wanted).partition(|(_, known)| known.adopted.is_some());
        let killed = self.send(own.into_iter(), Signal::KILL);
        (killed, adopted.into_iter().map(|(_, known)| known.process).collect())
    }

    /// Ranks that have a process.
    fn living(&self, wanted: Option<&RankSet>) -> impl Iterator<Item = (&Rank, &Known)> {
        let is_meant = move |rank: &Rank| wanted.is_none_or(|wanted| wanted.contains(*rank));
        self.known
            .iter()
            .filter(move |(rank, known)| !known.reaped && !known.state.is_over() && is_meant(rank))
    }

    fn send<'a>(
        &self,
        ranks: impl Iterator<Item = (&'a Rank, &'a Known)>,
        what: Signal,
    ) -> Result<(), Failure> {
        let mut first_error = None;
        for (rank, known) in ranks {
            if known.state == RankState::Held && what != Signal::KILL && what != Signal::PROBE {
                return Err(Failure::new(
                    Kind::Invalid,
                    format!("rank {rank} is held and cannot take {what}"),
                )
                .with_hint("release it first, or send SIGKILL"));
            }
            let sent = match &known.adopted {
                Some(adopted) => adopted.signal(what.number()),
                // The leader is not reaped until the rank is over, so no other process group has its id.
                None => signal::kill_group(known.process.pid, what.number()),
            };
            if let Err(error) = sent {
                first_error
                    .get_or_insert(failure::from_io(format_args!("send {what} to rank {rank}"), &error));
            }
        }
        first_error.map_or(Ok(()), Err)
    }

    /// The processes of `wanted`, or of all, that have not ended.
    pub(crate) fn processes(&self, wanted: Option<&RankSet>) -> Vec<Pinned> {
        let is_wanted = |rank| wanted.is_none_or(|wanted| wanted.contains(rank));
        let there = self.known.iter().filter(|(rank, known)| !known.state.is_over() && is_wanted(**rank));
        there.map(|(_, known)| known.process).collect()
    }

    /// Waits until all adopted ranks have ended.
    pub(crate) async fn all_ended(&self) {
        for (_, adopted) in self.adopted() {
            adopted.ended().await;
        }
    }

    /// Whether all ranks have ended.
    pub(crate) fn all_over(&self) -> bool {
        self.known.values().all(|known| known.state.is_over())
    }

    /// Updates the ranks that daemons see. False: nothing has changed.
    ///
    /// A rank's end changes one state and copies nothing: all of a node's ranks may end at once.
    pub(crate) fn update(&self, view: &mut Vec<LocalRank>) -> bool {
        let is_same = |((rank, known), shown): ((&Rank, &Known), &LocalRank)| {
            (*rank, known.process.pid) == (shown.rank, shown.pid.get()) && known.exe == shown.exe
        };
        if self.known.len() != view.len() || !self.known.iter().zip(view.iter()).all(is_same) {
            *view = self.known.iter().filter_map(|(rank, known)| known.show(*rank)).collect();
            return true;
        }
        let mut changed = false;
        for (known, shown) in self.known.values().zip(view) {
            changed |= known.state != shown.state;
            shown.state = known.state;
        }
        changed
    }
}

impl Known {
    fn show(&self, rank: Rank) -> Option<LocalRank> {
        let pid = Pid::new(self.process.pid)?;
        Some(LocalRank { rank, pid, exe: self.exe.clone(), state: self.state })
    }
}

/// What the ranks of a node learn about their place.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place<'a> {
    /// The app.
    pub(crate) app: AppId,
    /// The node.
    pub(crate) node: NodeId,
    /// The agent's socket for ranks. Empty: there is none.
    pub(crate) service: &'a str,
    /// The app's place in a multijob.
    pub(crate) subjob: Option<Subjob>,
    /// Marks the ranks, so that the agent finds the processes that they start.
    pub(crate) marker: Option<&'a Marker>,
}

/// The ranks of this node in an order, with the specification of each process.
pub(crate) fn build_specs(
    order: &StartRanks,
    ranks: &[Rank],
    place: &Place<'_>,
    nofile: Option<(u64, u64)>,
) -> Result<Vec<(ProcessSpec, OurEnds)>, Failure> {
    let mut cores = match order.bind {
        Bind::None => Vec::new(),
        Bind::Core => cores::choose(ranks.len())?,
    }
    .into_iter();
    let mut specs = Vec::with_capacity(ranks.len());
    let mut last: Option<(&RankSet, Prepared)> = None;
    for (local, rank) in ranks.iter().enumerate() {
        let of_rank = order.programs.iter().find(|(set, _)| set.contains(*rank));
        let (set, program) =
            of_rank.ok_or_else(|| Failure::new(Kind::Protocol, format!("rank {rank} is to run nothing")))?;
        let Prepared { path, argv, cwd, env } = match last.take() {
            Some((of, prepared)) if std::ptr::eq(of, set) => &last.insert((of, prepared)).1,
            _ => &last.insert((set, Prepared::new(program, order.pmix.is_some())?)).1,
        };
        let mut ours = vec![
            (storage::GANTRY_APP, place.app.to_string()),
            (storage::GANTRY_RANK, rank.to_string()),
            (storage::GANTRY_SIZE, order.size.to_string()),
            (storage::GANTRY_LOCAL_RANK, local.to_string()),
            (storage::GANTRY_NODE, place.node.to_string()),
        ];
        let variables = || env.iter().map(|(name, value)| (name.as_os_str(), value.as_os_str()));
        ours.extend(place.marker.map(|marker| marker.build(variables())));
        if !place.service.is_empty() {
            ours.extend(build_variables(place.service, place.subjob));
        }
        let (numbers, here) = ((*rank, order.size), (local, ranks.len()));
        let (stdio, mut ends) = open_stdio(order.stdin == Some(*rank), order.output)?;
        let served = if order.pmix.is_some() {
            ours.extend(pmix::build_variables(numbers, here));
            None
        } else {
            ours.extend(pmi::build_variables(SERVED, numbers, here, order.joins));
            let (served, ours_of_it) =
                pmi::open_socket().map_err(|e| failure::from_io("make a socket for a rank", &e))?;
            ends.served = Some(ours_of_it);
            Some(served)
        };
        let [stdin, stdout, stderr] = stdio;
        let spec = ProcessSpec {
            program: path.clone(),
            argv: argv.clone(),
            env: build_env(env, &ours)?,
            cwd: cwd.clone(),
            stdin,
            stdout,
            stderr,
            served,
            die_with_parent: true,
            nofile,
            cores: cores.next(),
        };
        specs.push((spec, ends));
    }
    Ok(specs)
}

/// A program, prepared for starting processes.
struct Prepared {
    path: CString,
    argv: Vec<CString>,
    cwd: Option<CString>,
    env: Vec<(OsString, OsString)>,
}

impl Prepared {
    /// `pmix`: its server is one of PMIx, so that variables of another one must go.
    fn new(program: &Program, pmix: bool) -> Result<Self, Failure> {
        let path = resolve_program(program)?;
        let mut argv = vec![to_c(&program.program)?];
        for arg in &program.args {
            argv.push(to_c(arg)?);
        }
        let mut env = program.env.clone();
        let foreign = VARIABLES.iter().chain(&pmi::FOREIGN);
        env.retain(|(name, _)| !foreign.clone().any(|variable| name == OsStr::new(variable)));
        env.retain(|(name, _)| !pmix || !pmix::is_foreign(name.as_bytes()));
        let cwd = program.cwd.as_deref().map(to_c).transpose()?;
        Ok(Self { path: to_c(path.as_os_str())?, argv, cwd, env })
    }
}

/// Three descriptors for a process, and the agent's ends of the pipes among them.
pub(crate) fn open_stdio(feed: bool, forward: bool) -> Result<([OwnedFd; 3], OurEnds), Failure> {
    let failed = |error: io::Error| failure::from_io("make pipes for a process", &error);
    let null = || File::options().read(true).write(true).open("/dev/null").map(OwnedFd::from);
    let mut ends = OurEnds::default();
    let stdin = if feed {
        let (theirs, ours) = io::pipe().map_err(failed)?;
        ends.stdin = Some(ours.into());
        theirs.into()
    } else {
        null().map_err(failed)?
    };
    if !forward {
        let stdout = if feed { null() } else { stdin.try_clone() }.map_err(failed)?;
        let stderr = stdout.try_clone().map_err(failed)?;
        return Ok(([stdin, stdout, stderr], ends));
    }
    let (our_out, stdout) = io::pipe().map_err(failed)?;
    let (our_err, stderr) = io::pipe().map_err(failed)?;
    ends.output = Some((our_out.into(), our_err.into()));
    Ok(([stdin, stdout.into(), stderr.into()], ends))
}

/// `NAME=value` strings. `ours` override the variables of the order.
pub(crate) fn build_env(
    env: &[(OsString, OsString)],
    ours: &[(&str, String)],
) -> Result<Vec<CString>, Failure> {
    let mut strings = Vec::with_capacity(env.len() + ours.len());
    let given = env.iter().filter(|(name, _)| !ours.iter().any(|(ours, _)| name == OsStr::new(ours)));
    let given = given.map(|(name, value)| (name.as_os_str(), value.as_os_str()));
    for (name, value) in given.chain(ours.iter().map(|(name, value)| (OsStr::new(*name), OsStr::new(value))))
    {
        // With room for the NUL: otherwise the conversion would copy every string once more.
        let mut bytes = Vec::with_capacity(name.len() + value.len() + 2);
        [name.as_bytes(), b"=", value.as_bytes()].into_iter().for_each(|part| bytes.extend_from_slice(part));
        // The message omits the value, which may be a secret.
        let invalid = || {
            Failure::new(
                Kind::Invalid,
                format!("{name:?} is not a valid name or value of an environment variable"),
            )
        };
        if name.is_empty() || name.as_bytes().contains(&b'=') {
            return Err(invalid());
        }
        strings.push(CString::new(bytes).map_err(|_| invalid())?);
    }
    Ok(strings)
}

/// A program's path. A name without a slash is looked up in the order's PATH.
///
/// A path with a slash stays as it is. A relative one counts from the ranks' directory.
fn resolve_program(program: &Program) -> Result<PathBuf, Failure> {
    let name = &program.program;
    if name.as_bytes().contains(&b'/') {
        return Ok(PathBuf::from(name));
    }
    let search =
        program.env.iter().rev().find(|(name, _)| name == "PATH").map(|(_, value)| value.as_os_str());
    find_in_path(name, search.unwrap_or_default())
}

pub(crate) fn to_c(text: &OsStr) -> Result<CString, Failure> {
    CString::new(text.as_bytes()).map_err(|_| Failure::new(Kind::Invalid, format!("{text:?} has a NUL")))
}

pub(crate) fn to_pid(pid: i32) -> Result<Pid, Failure> {
    Pid::new(pid).ok_or_else(|| Failure::new(Kind::Protocol, format!("a process with pid {pid}")))
}

/// The ranks, each wrapper replaced by its first child.
fn look_behind(wrapper: &str, wanted: &[(Rank, Pid)]) -> Result<Vec<(Rank, Pid)>, Failure> {
    let parents = process::procfs::read_parents().map_err(|e| failure::from_io("list processes", &e))?;
    let behind = |(rank, pid): &(Rank, Pid)| {
        let raw = pid.get();
        let exe = process::procfs::read_exe(raw).unwrap_or_default();
        let words = process::procfs::read_words(raw).unwrap_or_default();
        if !process::follow::is_called(wrapper, &exe, &words) {
            return (*rank, *pid);
        }
        let age = |child: i32| process::procfs::read_stat(child).map_or(u64::MAX, |stat| stat.start_time);
        let children = parents.iter().filter(|(_, parent)| *parent == raw).map(|(child, _)| *child);
        let first = children.min_by_key(|child| (age(*child), *child));
        (*rank, first.and_then(Pid::new).unwrap_or(*pid))
    };
    Ok(wanted.iter().map(behind).collect())
}

/// A failed start, in words for users.
impl From<StartFailure> for Failure {
    fn from(failure: StartFailure) -> Self {
        to_failure(&failure.error)
    }
}

/// Why one process did not start, in words for users.
pub(crate) fn to_failure(error: &StartError) -> Failure {
    Failure::new(error.kind(), with_causes(error)).with_hint_of(error.hint())
}

/// An error and its causes, in one line.
pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

/// The ranks of one node in an adoption.
pub(crate) fn adoption_of(order: &AdoptRanks, node: usize) -> &[(Rank, Pid)] {
    order.layout.get(node).map_or(&[], Vec::as_slice)
}
