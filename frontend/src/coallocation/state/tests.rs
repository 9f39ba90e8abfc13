use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

const A: SubjobId = SubjobId(0);
const B: SubjobId = SubjobId(1);

fn job_of(starts: &[StartType]) -> State {
    let mut state = State::new();
    for (n, start) in starts.iter().enumerate() {
        let id = SubjobId(u32::try_from(n).unwrap());
        assert_eq!(
            state.ask(Wish::Add(id, *start)),
            Ok(vec![Act::Start(id), Act::Tell(id, SubjobState::Pending)])
        );
    }
    state
}

use StartType::{LooseBarrier, NoBarrier, StrictBarrier};
use SubjobState::{CheckedIn, Done, Failed, Released};

#[test]
fn a_release_waits_for_the_last_one() {
    let mut state = job_of(&[StrictBarrier, LooseBarrier]);
    assert_eq!(state.take(A, News::CheckedIn), [Act::Tell(A, CheckedIn)]);
    assert_eq!(state.ask(Wish::Release { wait: true }), Ok(vec![]));
    let acts = state.take(B, News::CheckedIn);
    let [first, rest @ ..] = acts.as_slice() else { panic!("nothing was done") };
    assert_eq!(*first, Act::Tell(B, CheckedIn));
    let released = [
        Act::TellJob(JobState::Released),
        Act::Release(A),
        Act::Tell(A, Released),
        Act::Release(B),
        Act::Tell(B, Released),
    ];
    assert_eq!(rest, released);
    assert_eq!(state.ask(Wish::Add(SubjobId(2), StrictBarrier)), Err(Refusal::TooLate(JobState::Released)));
    assert_eq!(state.ask(Wish::Delete(A)), Err(Refusal::TooLate(JobState::Released)));
    assert_eq!(state.take(A, News::Ended), [Act::Tell(A, Done)]);
    assert_eq!(state.take(B, News::Ended), [Act::Tell(B, Done), Act::TellJob(JobState::Over)]);
    assert_eq!(state.ask(Wish::Cancel), Ok(vec![]));
}

#[test]
fn a_release_that_does_not_wait_cancels_a_job_that_is_not_ready() {
    let mut state = job_of(&[StrictBarrier, StrictBarrier]);
    assert_eq!(state.take(A, News::CheckedIn), [Act::Tell(A, CheckedIn)]);
    let acts = state.ask(Wish::Release { wait: false });
    assert_eq!(acts, Ok(vec![Act::TellJob(JobState::Ending), Act::End(A), Act::End(B)]));
}

#[test]
fn what_fails_before_the_barrier_takes_the_job_along_only_if_it_is_strict() {
    let mut state = job_of(&[StrictBarrier, StrictBarrier]);
    assert_eq!(
        state.take(A, News::Ended),
        [Act::Tell(A, Failed), Act::TellJob(JobState::Ending), Act::End(B)]
    );

    let mut state = job_of(&[LooseBarrier, StrictBarrier]);
    assert_eq!(state.take(A, News::Ended), [Act::Tell(A, Failed)]);
    assert_eq!(state.take(B, News::CheckedIn), [Act::Tell(B, CheckedIn)]);
    let acts = state.ask(Wish::Release { wait: false }).unwrap();
    assert_eq!(acts, [Act::TellJob(JobState::Released), Act::Release(B), Act::Tell(B, Released)]);

    let mut state = job_of(&[NoBarrier, StrictBarrier]);
    assert_eq!(state.take(A, News::CheckedIn), [Act::Tell(A, Released)]);
    assert_eq!(state.take(A, News::Ended), [Act::Tell(A, Done)]);
    assert_eq!(state.job(), JobState::Open);
}

#[test]
fn what_comes_up_too_late_is_told_to_go_again() {
    let mut state = job_of(&[StrictBarrier]);
    assert_eq!(state.ask(Wish::Delete(A)), Ok(vec![Act::End(A)]));
    assert_eq!(state.ask(Wish::Delete(A)), Err(Refusal::Unknown));
    assert_eq!(state.take(A, News::CheckedIn), [Act::End(A)]);
    assert_eq!(state.ask(Wish::Release { wait: true }), Ok(vec![Act::TellJob(JobState::Released)]));
    assert_eq!(state.take(A, News::Ended), [Act::TellJob(JobState::Over)]);
}

/// What may happen to a job, in any order. Numbers are taken modulo the number of subjobs.
#[derive(Debug, Clone, Copy)]
enum Move {
    Add(u8),
    Delete(u8),
    Release(bool),
    Cancel,
    CheckIn(u8),
    Activate(u8),
    End(u8),
}

fn any_move() -> impl Strategy<Value = Move> {
    prop_oneof![
        4 => any::<u8>().prop_map(Move::Add),
        1 => any::<u8>().prop_map(Move::Delete),
        1 => any::<bool>().prop_map(Move::Release),
        1 => Just(Move::Cancel),
        6 => any::<u8>().prop_map(Move::CheckIn),
        2 => any::<u8>().prop_map(Move::Activate),
        3 => any::<u8>().prop_map(Move::End),
    ]
}

/// A simple model: sets of subjobs per event. Every question is computed from them anew.
#[derive(Debug, Default)]
struct Model {
    strict: BTreeSet<u32>,
    free: BTreeSet<u32>,
    added: u32,
    deleted: BTreeSet<u32>,
    came: BTreeSet<u32>,
    active: BTreeSet<u32>,
    ended: BTreeSet<u32>,
    let_go: BTreeSet<u32>,
    release_asked: bool,
    released: bool,
    killed: bool,
}

impl Model {
    fn asked_to_end(&self, id: u32) -> bool {
        self.killed || self.deleted.contains(&id)
    }

    fn do_move(&mut self, step: Move) {
        let closed = self.release_asked || self.killed;
        let pick = |n: u8| (self.added > 0).then(|| u32::from(n) % self.added.max(1));
        match step {
            Move::Add(kind) if !closed => {
                match kind % 3 {
                    0 => drop(self.strict.insert(self.added)),
                    1 => drop(self.free.insert(self.added)),
                    _ => {}
                }
                self.added += 1;
            }
            Move::Delete(n) if !closed => drop(pick(n).map(|id| self.deleted.insert(id))),
            Move::Release(wait) if !closed => {
                if wait || self.all_wait() {
                    self.release_asked = true;
                } else {
                    self.killed = true;
                }
            }
            Move::Cancel => self.killed = self.killed || !self.is_over(),
            Move::CheckIn(n) | Move::Activate(n) => {
                if let Some(id) = pick(n).filter(|id| !self.ended.contains(id) && !self.asked_to_end(*id)) {
                    self.active.insert(id);
                    if matches!(step, Move::CheckIn(_)) && self.came.insert(id) && self.free.contains(&id) {
                        self.let_go.insert(id);
                    }
                }
            }
            Move::End(n) => {
                if let Some(id) = pick(n).filter(|id| !self.ended.contains(id)) {
                    self.ended.insert(id);
                    let fatal = self.strict.contains(&id) && !self.deleted.contains(&id) && !self.released;
                    self.killed |= fatal;
                }
            }
            _ => {}
        }
        if self.release_asked && !self.killed && !self.released && self.all_wait() {
            self.released = true;
            let waiting = self.awaited().filter(|id| self.came.contains(id)).collect::<Vec<_>>();
            self.let_go.extend(waiting);
        }
    }

    fn awaited(&self) -> impl Iterator<Item = u32> {
        let gone = |id: &u32| self.free.contains(id) || self.deleted.contains(id) || self.ended.contains(id);
        (0..self.added).filter(move |id| !gone(id))
    }

    fn all_wait(&self) -> bool {
        self.awaited().all(|id| self.came.contains(&id))
    }

    fn is_over(&self) -> bool {
        (self.release_asked || self.killed) && self.ended.len() == self.added as usize
    }

    fn job(&self) -> JobState {
        match self {
            model if model.is_over() => JobState::Over,
            Self { killed: true, .. } => JobState::Ending,
            Self { released: true, .. } => JobState::Released,
            Self { release_asked: true, .. } => JobState::Releasing,
            _ => JobState::Open,
        }
    }

    fn subjobs(&self) -> Vec<(SubjobId, SubjobState)> {
        let state = |id: &u32| match (self.ended.contains(id), self.let_go.contains(id)) {
            (true, true) => SubjobState::Done,
            (true, false) => SubjobState::Failed,
            (false, true) => SubjobState::Released,
            (false, false) if self.came.contains(id) => SubjobState::CheckedIn,
            (false, false) if self.active.contains(id) => SubjobState::Active,
            (false, false) => SubjobState::Pending,
        };
        (0..self.added).filter(|id| !self.deleted.contains(id)).map(|id| (SubjobId(id), state(&id))).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn any_schedule_goes_as_the_obvious_model_says(schedule in prop::collection::vec(any_move(), 0..60)) {
        let (mut state, mut model) = (State::new(), Model::default());
        let (mut told_to_end, mut let_go) = (BTreeSet::new(), BTreeSet::new());
        for step in schedule {
            let pick = |n: u8| SubjobId(u32::from(n) % model.added.max(1));
            let acts = match step {
                Move::Add(kind) => {
                    let start = [StrictBarrier, NoBarrier, LooseBarrier][usize::from(kind % 3)];
                    state.ask(Wish::Add(SubjobId(model.added), start)).unwrap_or_default()
                }
                Move::Delete(n) => state.ask(Wish::Delete(pick(n))).unwrap_or_default(),
                Move::Release(wait) => state.ask(Wish::Release { wait }).unwrap_or_default(),
                Move::Cancel => state.ask(Wish::Cancel).unwrap_or_default(),
                Move::CheckIn(n) => state.take(pick(n), News::CheckedIn),
                Move::Activate(n) => state.take(pick(n), News::Active),
                Move::End(n) => state.take(pick(n), News::Ended),
            };
            for act in acts {
                match act {
                    Act::End(SubjobId(id)) => drop(told_to_end.insert(id)),
                    Act::Release(SubjobId(id)) => prop_assert!(let_go.insert(id), "{} was released twice", id),
                    Act::Start(_) | Act::Tell(..) | Act::TellJob(_) => {}
                }
            }
            model.do_move(step);
            prop_assert_eq!(state.job(), model.job(), "after {:?}", step);
            prop_assert_eq!(state.subjobs().collect::<Vec<_>>(), model.subjobs(), "after {:?}", step);
        }
        let barred: BTreeSet<u32> = model.let_go.difference(&model.free).copied().collect();
        prop_assert_eq!(let_go, barred);
        // Every subjob that had to end, and did not by itself, was told to.
        for id in (0..model.added).filter(|id| model.asked_to_end(*id) && !model.ended.contains(id)) {
            prop_assert!(told_to_end.contains(&id), "{} was not told to end", id);
        }
    }
}
