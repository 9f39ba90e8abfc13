//! Which frames of a thread have stood unchanged.
//!
//! A frame stands unchanged when its instruction, the registers that calls keep and its variables on the stack are as before, and those of all its callers
//! are. So a loop around a function that waits is told from one wait: whatever counts its turns has changed.

use std::collections::HashMap;

/// The states of all frames of a thread, outermost first. Each stands for all before it, too.
#[derive(Debug, Default)]
struct Chain {
    states: Vec<u64>,
    /// How many have been the same in all samples since this was asked.
    same: usize,
}

/// The frames of the first threads of some processes.
#[derive(Debug, Default)]
pub(crate) struct Steady(HashMap<i32, Chain>);

impl Steady {
    /// Takes a sample of a process: the state of each frame, innermost first.
    pub(crate) fn take(&mut self, pid: i32, frames: impl DoubleEndedIterator<Item = u64>) {
        let mut all = StateHash::default();
        let states: Vec<u64> = frames.rev().map(|state| all.add(state)).collect();
        let chain = self.0.entry(pid).or_insert_with(|| Chain { same: states.len(), ..Chain::default() });
        let same = chain.states.iter().zip(&states).take_while(|(before, now)| before == now).count();
        chain.same = chain.same.min(if chain.states.is_empty() { states.len() } else { same });
        chain.states = states;
    }

    /// A process whose stack could not be read.
    pub(crate) fn forget(&mut self, pid: i32) {
        self.0.remove(&pid);
    }

    /// How many frames of a process, outermost first, have stood since this was asked before. None: there is no sample.
    pub(crate) fn ask(&mut self, pid: i32) -> Option<usize> {
        let chain = self.0.get_mut(&pid)?;
        Some(std::mem::replace(&mut chain.same, chain.states.len()))
    }
}

/// A number that stands for numbers in their order.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StateHash(u64);

impl Default for StateHash {
    fn default() -> Self {
        Self(0x9e37_79b9_7f4a_7c15)
    }
}

impl StateHash {
    /// Adds one, and gives the number for all until now.
    pub(crate) fn add(&mut self, number: u64) -> u64 {
        let mixed = (self.0.rotate_left(29) ^ number).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        self.0 = mixed ^ (mixed >> 32);
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_stand_until_one_of_their_callers_has_changed() {
        let mut steady = Steady::default();
        assert_eq!(steady.ask(1), None);
        // Innermost first.
        steady.take(1, [30, 20, 10].into_iter());
        assert_eq!(steady.ask(1), Some(3));
        steady.take(1, [31, 20, 10].into_iter());
        steady.take(1, [30, 20, 10].into_iter());
        assert_eq!(steady.ask(1), Some(2));
        // One sample in between counts, though the last is as the first.
        steady.take(1, [30, 20, 11].into_iter());
        steady.take(1, [30, 20, 10].into_iter());
        assert_eq!(steady.ask(1), Some(0));
        // A function that is called meanwhile changes none of its callers.
        steady.take(1, [40, 30, 20, 10].into_iter());
        assert_eq!(steady.ask(1), Some(3));
        steady.forget(1);
        assert_eq!(steady.ask(1), None);
    }
}
