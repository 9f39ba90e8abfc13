//! Starting a batch of ranks, held or not, all of them or none.
//!
//! Each step is done for the whole batch before the next one: fork and seize all, open the gate, collect. So the ranks
//! load their programs at the same time. A tool's daemon starts alone and needs none of that ([`start_alone`]).

use std::path::PathBuf;

use super::batch::Batch;
use super::error::{HoldFailure, StartError};
use super::refusal::PtraceFacts;
use super::spawn::{self, Forked, Gate, ProcessSpec};
use super::trace::{self, HeldProof};
use super::{Pinned, procfs, sys};

/// Whether ranks are held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hold {
    /// Stopped before their first instruction.
    AtEntry,
    /// Not stopped.
    No,
}

/// A rank that was started. From here on the caller must wait for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StartedRank {
    /// Its pid and start time. The pid is the leader of the rank's own process group.
    pub(crate) process: Pinned,
    /// The program that runs. For a held rank it is the kernel's view (a script's interpreter); else it is the
    /// requested program.
    pub(crate) exe: PathBuf,
    /// Proof of the hold, for a held rank.
    pub(crate) proof: Option<HeldProof>,
}

/// Why a batch did not start. None of its processes is left.
#[derive(Debug, thiserror::Error)]
#[error("start rank {index} of the batch")]
pub(crate) struct StartFailure {
    /// Index in the batch's specs, from 0.
    pub(crate) index: usize,
    /// Why.
    #[source]
    pub(crate) error: StartError,
}

/// Starts all of `specs`, in their order. Blocks until every rank is held, or has executed its program.
///
/// `batch` must be new. The caller's thread becomes the parent: with `die_with_parent` the ranks end when this thread
/// ends.
///
/// # Errors
/// The first rank that failed, with the cause. Then no process of the batch is left.
pub(crate) fn start_ranks(
    specs: Vec<ProcessSpec>,
    hold: Hold,
    batch: &Batch,
) -> Result<Vec<StartedRank>, StartFailure> {
    let started = start_all(specs, hold, batch);
    if started.is_err() {
        batch.end();
    }
    started
}

/// Starts a process that is no rank, and returns its pid. It does not wait for other processes: it has executed its
/// program when this returns.
///
/// `batch` and the caller's thread have the same roles as in [`start_ranks`].
///
/// # Errors
/// As [`start_ranks`].
pub(crate) fn start_alone(spec: ProcessSpec, batch: &Batch) -> Result<i32, StartFailure> {
    let program = spawn::path(&spec.program);
    let given_up = || StartError::GivenUp { program };
    if batch.is_given_up() {
        return Err(StartFailure { index: 0, error: given_up() });
    }
    let started = match spawn::spawn(spec, batch) {
        Ok(pid) if batch.hand_over() => return Ok(pid),
        Ok(_) => Err(given_up()),
        Err(_) if batch.is_given_up() => Err(given_up()),
        failed => failed,
    };
    batch.end();
    started.map_err(|error| StartFailure { index: 0, error })
}

/// Kills and collects processes that were started here and that no caller has taken.
pub(crate) fn end_started(pids: Vec<i32>) {
    Batch::of(pids).end();
}

fn start_all(specs: Vec<ProcessSpec>, hold: Hold, batch: &Batch) -> Result<Vec<StartedRank>, StartFailure> {
    let at = |index| move |error| StartFailure { index, error };
    let gate = Gate::new().map_err(at(0))?;
    let mut forked = Vec::with_capacity(specs.len());
    for (index, spec) in specs.into_iter().enumerate() {
        let mut rank = Forked::fork(spec, &gate).map_err(at(index))?;
        if !batch.add(rank.pid) {
            return Err(at(index)(StartError::GivenUp { program: rank.program }));
        }
        if hold == Hold::AtEntry {
            seize(&mut rank, batch).map_err(at(index))?;
        }
        forked.push(rank);
    }
    gate.open(forked.len()).map_err(at(0))?;
    let started = match hold {
        Hold::AtEntry => collect_held(&mut forked, batch)?,
        Hold::No => collect_running(&mut forked, batch)?,
    };
    match forked.pop() {
        Some(rank) if !batch.hand_over() => {
            Err(at(forked.len())(StartError::GivenUp { program: rank.program }))
        }
        _ => Ok(started),
    }
}

fn collect_held(forked: &mut [Forked], batch: &Batch) -> Result<Vec<StartedRank>, StartFailure> {
    let mut places = Vec::with_capacity(forked.len());
    for (index, rank) in forked.iter_mut().enumerate() {
        let place = trace::run_to_exec(rank.pid, batch)
            .map_err(|failure| StartFailure { index, error: explain(failure, rank, batch) })?;
        places.push(place);
    }
    let mut started = Vec::with_capacity(forked.len());
    for (index, (rank, place)) in forked.iter_mut().zip(places).enumerate() {
        let proof = trace::prove_held(rank.pid, place, batch)
            .map_err(|failure| StartFailure { index, error: explain(failure, rank, batch) })?;
        // If the user may not read the program, its link cannot be read either.
        let exe = procfs::read_exe(rank.pid).unwrap_or_else(|_| rank.program.clone());
        let process = pin(rank).map_err(|error| StartFailure { index, error })?;
        started.push(StartedRank { process, exe, proof: Some(proof) });
    }
    Ok(started)
}

fn collect_running(forked: &mut [Forked], batch: &Batch) -> Result<Vec<StartedRank>, StartFailure> {
    let mut started = Vec::with_capacity(forked.len());
    for (index, rank) in forked.iter_mut().enumerate() {
        let ready = rank.wait_for_exec().and_then(|()| {
            let process = pin(rank)?;
            Ok(StartedRank { process, exe: rank.program.clone(), proof: None })
        });
        started.push(ready.map_err(|error| StartFailure { index, error: or_given_up(error, rank, batch) })?);
    }
    Ok(started)
}

fn seize(rank: &mut Forked, batch: &Batch) -> Result<(), StartError> {
    let Err(source) = sys::trace_seize(rank.pid) else { return Ok(()) };
    let facts = PtraceFacts::read(rank.pid);
    // The rank may have failed by itself: a dead child cannot be seized either. Only the child's end closes the pipe.
    batch.end_process(rank.pid);
    rank.wait_for_exec().map_err(|error| or_given_up(error, rank, batch))?;
    Err(explain(HoldFailure::of_seize(source, facts), rank, batch))
}

fn explain(source: HoldFailure, rank: &mut Forked, batch: &Batch) -> StartError {
    // The rank itself says best why it has ended.
    let told = if let HoldFailure::Ended(_) = source { rank.wait_for_exec().err() } else { None };
    let error = told.unwrap_or_else(|| StartError::Hold { program: rank.program.clone(), source });
    or_given_up(error, rank, batch)
}

/// After a cancel every failure is reported as the cancel.
fn or_given_up(error: StartError, rank: &Forked, batch: &Batch) -> StartError {
    if batch.is_given_up() { StartError::GivenUp { program: rank.program.clone() } } else { error }
}

fn pin(rank: &Forked) -> Result<Pinned, StartError> {
    Pinned::now(rank.pid).map_err(|source| StartError::Look { program: rank.program.clone(), source })
}
