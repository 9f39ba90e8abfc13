//! Which frames of a thread are unchanged.
//!
//! A frame is unchanged if its instruction, its callee-saved registers and its variables on the stack are the same,
//! and all its callers are unchanged. This distinguishes a loop around a waiting function from one long wait: the
//! loop's counter has changed.

use std::collections::HashMap;

use crate::script::Variables;

/// What has not changed in all samples of a thread since the last call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Same {
    /// How many frames, outermost first.
    pub(crate) frames: usize,
    /// The variables of a script.
    pub(crate) variables: bool,
}

/// The last sample of a thread.
#[derive(Debug)]
struct Chain {
    /// The states of its frames, outermost first. Each state includes those before it.
    states: Vec<u64>,
    variables: Variables,
    same: Same,
}

/// The first thread's frames of each process.
#[derive(Debug, Default)]
pub(crate) struct Steady(HashMap<i32, Chain>);

impl Steady {
    /// Takes a sample of a process: the state of each frame, innermost first, and the variables of a script.
    pub(crate) fn take(
        &mut self,
        pid: i32,
        frames: impl DoubleEndedIterator<Item = u64>,
        variables: Variables,
    ) {
        let mut all = StateHash::default();
        let states: Vec<u64> = frames.rev().map(|state| all.add(state)).collect();
        let same = match self.0.get(&pid) {
            Some(before) => Same {
                frames: before.states.iter().zip(&states).take_while(|(before, now)| before == now).count(),
                variables: variables.are_those(before.variables),
            },
            None => Same { frames: states.len(), variables: variables != Variables::Unknown },
        };
        let before = self.0.get(&pid).map_or(same, |before| before.same);
        let same =
            Same { frames: same.frames.min(before.frames), variables: same.variables && before.variables };
        self.0.insert(pid, Chain { states, variables, same });
    }

    /// Drops a process whose stack could not be read.
    pub(crate) fn forget(&mut self, pid: i32) {
        self.0.remove(&pid);
    }

    /// What of a process is unchanged since the last call. None: there is no sample.
    pub(crate) fn ask(&mut self, pid: i32) -> Option<Same> {
        let chain = self.0.get_mut(&pid)?;
        let all = Same { frames: chain.states.len(), variables: chain.variables != Variables::Unknown };
        Some(std::mem::replace(&mut chain.same, all))
    }
}

/// A hash of a sequence of numbers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StateHash(u64);

impl Default for StateHash {
    fn default() -> Self {
        Self(0x9e37_79b9_7f4a_7c15)
    }
}

impl StateHash {
    /// Adds a number, and returns the hash of all so far.
    pub(crate) fn add(&mut self, number: u64) -> u64 {
        let mixed = (self.0.rotate_left(29) ^ number).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        self.0 = mixed ^ (mixed >> 32);
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(steady: &mut Steady, frames: usize, variables: bool) {
        assert_eq!(steady.ask(1), Some(Same { frames, variables }));
    }

    #[test]
    fn frames_stand_until_one_of_their_callers_has_changed() {
        let mut steady = Steady::default();
        assert_eq!(steady.ask(1), None);
        // Innermost first.
        steady.take(1, [30, 20, 10].into_iter(), Variables::Absent);
        check(&mut steady, 3, true);
        steady.take(1, [31, 20, 10].into_iter(), Variables::Absent);
        steady.take(1, [30, 20, 10].into_iter(), Variables::Absent);
        check(&mut steady, 2, true);
        // One different sample in between counts, even if the last equals the first.
        steady.take(1, [30, 20, 11].into_iter(), Variables::Absent);
        steady.take(1, [30, 20, 10].into_iter(), Variables::Absent);
        check(&mut steady, 0, true);
        // A new callee changes none of its callers.
        steady.take(1, [40, 30, 20, 10].into_iter(), Variables::Absent);
        check(&mut steady, 3, true);
        steady.forget(1);
        assert_eq!(steady.ask(1), None);
    }

    #[test]
    fn variables_of_a_script_stand_when_all_samples_have_the_same() {
        use Variables::{Known, Unknown};
        let mut steady = Steady::default();
        let take = |steady: &mut Steady, all: &[Variables]| {
            all.iter().for_each(|variables| steady.take(1, [10].into_iter(), *variables));
        };
        take(&mut steady, &[Unknown]);
        check(&mut steady, 1, false);
        take(&mut steady, &[Known(7), Known(7)]);
        check(&mut steady, 1, false);
        take(&mut steady, &[Known(7), Known(7)]);
        check(&mut steady, 1, true);
        take(&mut steady, &[Known(8), Known(7)]);
        check(&mut steady, 1, false);
        take(&mut steady, &[Known(7), Unknown]);
        check(&mut steady, 1, false);
    }
}
