//! Holds ranks that a launcher has started. They are not our children.
//!
//! Each of them waits in our shim until it may execute its program. The agent seizes it before that, as it seizes its
//! own rank at the gate. It stops for the agent in the same place. Two things differ. The kernel does not report the
//! stop of a process that is neither our child nor our tracee: the agent polls for it. And the process's parent, the
//! launcher's helper on this node, collects its end.

use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::batch::Batch;
use super::cancel::given_up;
use super::error::{HoldFailure, StartError};
use super::hold::StartFailure;
use super::pauses::Pauses;
use super::procfs::Width;
use super::refusal::PtraceFacts;
use super::trace::{self, ExecPlace, HeldProof};
use super::{procfs, sys};

/// Time limit for a process with a pending SIGSTOP to stop.
const STOPS_WITHIN: Duration = Duration::from_secs(5);

/// Seizes all of `pids`, which wait in our shim. Call it on the thread that will hold them.
///
/// # Errors
/// The first that may not be traced. If the first rank already shows that ptrace is forbidden, all of them wait on. In
/// all other cases all of them are ended.
pub(super) fn seize_all(pids: &[i32], batch: &Batch) -> Result<(), StartFailure> {
    let seized = pids.iter().enumerate().try_for_each(|(index, &pid)| {
        if !batch.add(pid) {
            return Err(StartFailure { index, error: StartError::GivenUp { program: waiting(pid) } });
        }
        sys::trace_seize(pid).map_err(|source| StartFailure { index, error: refused(pid, source) })
    });
    match &seized {
        Err(StartFailure { index: 0, error }) if error.is_refused() => drop(batch.hand_over()),
        Err(_) => batch.end(),
        Ok(()) => {}
    }
    seized
}

/// Brings all of `pids` to their first instruction. They must be seized and told to go on. Blocks until they are there.
///
/// # Errors
/// The first that did not get there; all of them are ended then.
pub(super) fn hold_all(pids: &[i32], batch: &Batch) -> Result<Vec<HeldProof>, StartFailure> {
    hold_each(pids, batch).map_err(|failure| {
        let is_cancelled = batch.is_given_up();
        batch.end();
        if is_cancelled { given_up() } else { failure }
    })
}

fn hold_each(pids: &[i32], batch: &Batch) -> Result<Vec<HeldProof>, StartFailure> {
    let at = |index: usize, pid: i32| move |failure| StartFailure { index, error: explain(failure, pid) };
    let run = |(index, &pid)| trace::run_to_exec(pid, batch).map_err(at(index, pid));
    let places = pids.iter().enumerate().map(run).collect::<Result<Vec<_>, _>>()?;
    let prove = |((index, &pid), place)| prove_stopped(pid, place).map_err(at(index, pid));
    let proofs = pids.iter().enumerate().zip(places).map(prove).collect::<Result<_, _>>()?;
    if batch.hand_over() { Ok(proofs) } else { Err(given_up()) }
}

/// Waits until `pid` has stopped.
///
/// It is on its way from the kernel to its first instruction, with SIGSTOP pending. It needs only its turn on a
/// processor.
pub(super) fn prove_stopped(pid: i32, place: ExecPlace) -> Result<HeldProof, HoldFailure> {
    let mut pauses = Pauses::until(Instant::now() + STOPS_WITHIN);
    loop {
        match trace::look_held(pid, place) {
            Err(HoldFailure::NotStopped { .. }) if pauses.pause() => {}
            looked => return looked,
        }
    }
}

/// Checks that a process which another tracer brought to its first instruction is stopped and not traced.
///
/// # Errors
/// It is not, or it is gone.
pub(crate) fn prove_held(pid: i32) -> Result<HeldProof, StartError> {
    // Where the counter cannot be read, the stop alone is the proof.
    let counter = procfs::read_syscall_pc(pid).ok().flatten().unwrap_or(0);
    prove_stopped(pid, (counter, None)).map_err(|failure| explain(failure, pid))
}

/// Checks whether a process was left at its first instruction, stopped and not traced, before any request for it.
/// `None`: it was not.
///
/// If it stands there while its launcher still traces it, this waits a moment: the launcher is about to detach.
pub(crate) fn look_for_hold(pid: i32) -> Option<HeldProof> {
    let counter = procfs::read_syscall_pc(pid).ok().flatten()?;
    let entry = [Width::Bits64, Width::Bits32]
        .into_iter()
        .find_map(|width| trace::entry(pid, width).ok().flatten())?;
    if counter != entry {
        return None;
    }
    prove_stopped(pid, (counter, Some(entry))).ok()
}

/// As [`prove_held`], for a process that may still be running when SIGSTOP reaches it. Its counter is known once it
/// stops.
///
/// # Errors
/// As [`prove_held`].
pub(crate) fn prove_stopping(pid: i32) -> Result<HeldProof, StartError> {
    let mut pauses = Pauses::until(Instant::now() + STOPS_WITHIN);
    loop {
        match prove_held(pid) {
            Err(StartError::Hold { source: HoldFailure::NotAtEntry { .. }, .. }) if pauses.pause() => {}
            proven => return proven,
        }
    }
}

pub(super) fn refused(pid: i32, source: io::Error) -> StartError {
    explain(HoldFailure::of_seize(source, PtraceFacts::read(pid)), pid)
}

pub(super) fn explain(source: HoldFailure, pid: i32) -> StartError {
    StartError::Hold { program: waiting(pid), source }
}

/// The program of a process, or its pid as text if that cannot be read.
pub(super) fn waiting(pid: i32) -> PathBuf {
    procfs::read_exe(pid).unwrap_or_else(|_| PathBuf::from(format!("process {pid}")))
}
