//! The state of a co-allocated job, and its legal transitions. [`State::ask`] handles requests, [`State::take`] handles
//! events. Both are synchronous, know no processes, and return what to do.
//!
//! ```text
//!            checks in              release                 ends
//! pending ------------> checked in ---------> released ---------------> done
//!    |  '--> active ----^   |                    ^
//!    |         |            | ends               | no-barrier: as soon as it runs
//!    '---------'------------'-----> failed
//! ```
//!
//! Source: the semantics of DUROC 0.8's control library.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

/// Number of a subjob in its job. Numbers are never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubjobId(pub u32);

/// How a subjob takes part in the barrier at the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum StartType {
    /// It takes part, and the job is killed if it ends before the barrier is released.
    #[default]
    StrictBarrier,
    /// It takes part. If it ends before the release, the others continue without it.
    LooseBarrier,
    /// It runs as soon as it can, independent of the others.
    NoBarrier,
}

/// The state of a subjob.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SubjobState {
    /// It has been requested from its manager.
    Pending,
    /// All or some of its processes exist, and are not at the barrier.
    Active,
    /// All its processes wait at the barrier.
    CheckedIn,
    /// Its processes run.
    Released,
    /// It was released and has ended.
    Done,
    /// It ended, or never started, without having been released.
    Failed,
}

impl SubjobState {
    /// Whether its state is final.
    #[must_use]
    pub fn is_over(self) -> bool {
        matches!(self, Self::Done | Self::Failed)
    }
}

impl fmt::Display for SubjobState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pending => "pending",
            Self::Active => "active",
            Self::CheckedIn => "checked in",
            Self::Released => "released",
            Self::Done => "done",
            Self::Failed => "failed",
        })
    }
}

/// The state of the whole job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// The release was not requested yet: subjobs may be added and deleted.
    Open,
    /// It will be released when all have checked in.
    Releasing,
    /// It was released.
    Released,
    /// It is being killed: it was cancelled, or a strict subjob failed.
    Ending,
    /// All its subjobs are over.
    Over,
}

impl fmt::Display for JobState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Open => "open",
            Self::Releasing => "releasing",
            Self::Released => "released",
            Self::Ending => "ending",
            Self::Over => "over",
        })
    }
}

/// A request of the job's owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wish {
    /// Add a subjob, with a new number.
    Add(SubjobId, StartType),
    /// Delete one.
    Delete(SubjobId),
    /// Release: with `wait`, when all have checked in. Without it now, and a job that is not ready is cancelled.
    Release { wait: bool },
    /// Cancel the job.
    Cancel,
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The job's state allows no more additions, deletions or releases.
    TooLate(JobState),
    /// There is no such subjob, or it was deleted.
    Unknown,
}

/// An event of a subjob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum News {
    /// Some of its processes exist.
    Active,
    /// All its processes wait. Without a barrier: all its processes run.
    CheckedIn,
    /// It has ended, or could not be started.
    Ended,
}

/// What the caller has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    /// Request it from its manager.
    Start(SubjobId),
    /// Release its processes.
    Release(SubjobId),
    /// End it, in any state. [`News::Ended`] will report the end.
    End(SubjobId),
    /// Report the new state of the subjob.
    Tell(SubjobId, SubjobState),
    /// Report the new state of the job.
    TellJob(JobState),
}

#[derive(Debug)]
struct Subjob {
    start: StartType,
    state: SubjobState,
    /// It was deleted: its events are ignored.
    deleted: bool,
    /// It was told to end.
    ending: bool,
}

/// A job and its subjobs.
#[derive(Debug)]
pub(super) struct State {
    job: JobState,
    subjobs: BTreeMap<SubjobId, Subjob>,
}

impl State {
    /// A job without subjobs.
    pub(super) fn new() -> Self {
        Self { job: JobState::Open, subjobs: BTreeMap::new() }
    }

    pub(super) fn job(&self) -> JobState {
        self.job
    }

    /// The states of all subjobs that were not deleted, in their order.
    #[cfg(test)]
    pub(super) fn subjobs(&self) -> impl Iterator<Item = (SubjobId, SubjobState)> {
        self.subjobs.iter().filter(|(_, subjob)| !subjob.deleted).map(|(id, subjob)| (*id, subjob.state))
    }

    /// Whether all subjobs are over, including deleted ones.
    pub(super) fn is_over(&self) -> bool {
        self.job == JobState::Over
    }

    #[must_use = "what is to be done"]
    pub(super) fn ask(&mut self, wish: Wish) -> Result<Vec<Act>, Refusal> {
        let mut acts = Vec::new();
        match wish {
            Wish::Add(id, start) => {
                self.check_open()?;
                let subjob = Subjob { start, state: SubjobState::Pending, deleted: false, ending: false };
                self.subjobs.insert(id, subjob);
                acts.extend([Act::Start(id), Act::Tell(id, SubjobState::Pending)]);
            }
            Wish::Delete(id) => {
                self.check_open()?;
                let subjob = self.subjobs.get_mut(&id).filter(|subjob| !subjob.deleted);
                let subjob = subjob.ok_or(Refusal::Unknown)?;
                subjob.deleted = true;
                end(id, subjob, &mut acts);
            }
            Wish::Release { wait } => {
                self.check_open()?;
                self.job = JobState::Releasing;
                if wait || self.is_ready() {
                    self.release_if_ready(&mut acts);
                } else {
                    self.kill(&mut acts);
                }
            }
            Wish::Cancel => {
                if !matches!(self.job, JobState::Ending | JobState::Over) {
                    self.kill(&mut acts);
                }
            }
        }
        self.check_over(&mut acts);
        Ok(acts)
    }

    /// Ends some of its subjobs, independent of the others.
    #[must_use = "what is to be done"]
    pub(super) fn end_some(&mut self, ids: &[SubjobId]) -> Vec<Act> {
        let mut acts = Vec::new();
        for (id, subjob) in self.subjobs.iter_mut().filter(|(id, _)| ids.contains(id)) {
            end(*id, subjob, &mut acts);
        }
        acts
    }

    #[must_use = "what is to be done"]
    pub(super) fn take(&mut self, id: SubjobId, news: News) -> Vec<Act> {
        let mut acts = Vec::new();
        let Some(subjob) = self.subjobs.get_mut(&id).filter(|subjob| !subjob.state.is_over()) else {
            return acts;
        };
        if news != News::Ended && subjob.ending {
            // It started after it was told to end: its manager could not cancel it in time.
            subjob.ending = false;
            end(id, subjob, &mut acts);
            return acts;
        }
        let state = match (news, subjob.state) {
            (News::Active, SubjobState::Pending) => SubjobState::Active,
            (News::CheckedIn, SubjobState::Pending | SubjobState::Active) => match subjob.start {
                StartType::NoBarrier => SubjobState::Released,
                StartType::StrictBarrier | StartType::LooseBarrier => SubjobState::CheckedIn,
            },
            (News::Ended, SubjobState::Released) => SubjobState::Done,
            (News::Ended, _) => SubjobState::Failed,
            _ => return acts,
        };
        subjob.state = state;
        let strict = subjob.start == StartType::StrictBarrier;
        if !subjob.deleted {
            acts.push(Act::Tell(id, state));
            let before_barrier = matches!(self.job, JobState::Open | JobState::Releasing);
            if state == SubjobState::Failed && strict && before_barrier {
                self.kill(&mut acts);
            }
        }
        self.release_if_ready(&mut acts);
        self.check_over(&mut acts);
        acts
    }

    fn check_open(&self) -> Result<(), Refusal> {
        if self.job == JobState::Open { Ok(()) } else { Err(Refusal::TooLate(self.job)) }
    }

    /// Whether all subjobs that take part in the barrier, and can still reach it, wait there.
    fn is_ready(&self) -> bool {
        let awaited = |subjob: &&Subjob| {
            !subjob.deleted && subjob.start != StartType::NoBarrier && !subjob.state.is_over()
        };
        self.subjobs.values().filter(awaited).all(|subjob| subjob.state == SubjobState::CheckedIn)
    }

    fn release_if_ready(&mut self, acts: &mut Vec<Act>) {
        if self.job != JobState::Releasing || !self.is_ready() {
            return;
        }
        self.job = JobState::Released;
        acts.push(Act::TellJob(self.job));
        for (id, subjob) in &mut self.subjobs {
            if subjob.state == SubjobState::CheckedIn && !subjob.deleted {
                subjob.state = SubjobState::Released;
                acts.extend([Act::Release(*id), Act::Tell(*id, subjob.state)]);
            }
        }
    }

    fn kill(&mut self, acts: &mut Vec<Act>) {
        self.job = JobState::Ending;
        acts.push(Act::TellJob(self.job));
        for (id, subjob) in &mut self.subjobs {
            end(*id, subjob, acts);
        }
    }

    /// Ends the job if all its subjobs are over. An open job without subjobs may still get some.
    fn check_over(&mut self, acts: &mut Vec<Act>) {
        let asked = matches!(self.job, JobState::Releasing | JobState::Released | JobState::Ending);
        if asked && self.subjobs.values().all(|subjob| subjob.state.is_over()) {
            self.job = JobState::Over;
            acts.push(Act::TellJob(self.job));
        }
    }
}

/// Ends a subjob once.
fn end(id: SubjobId, subjob: &mut Subjob, acts: &mut Vec<Act>) {
    if !subjob.ending && !subjob.state.is_over() {
        subjob.ending = true;
        acts.push(Act::End(id));
    }
}

#[cfg(test)]
#[path = "state/tests.rs"]
mod tests;
