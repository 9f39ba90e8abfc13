//! Which frames of a thread are unchanged.
//!
//! A frame is unchanged if its instruction, its callee-saved registers and its variables on the stack are the same,
//! and all its callers are unchanged. This distinguishes a loop around a waiting function from one long wait: the
//! loop's counter has changed.

use std::collections::HashMap;

/// The states of a thread's frames, outermost first. Each state includes those before it.
#[derive(Debug, Default)]
struct Chain {
    states: Vec<u64>,
    /// How many frames were the same in all samples since the last call.
    same: usize,
}

/// The first thread's frames of each process.
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

    /// Drops a process whose stack could not be read.
    pub(crate) fn forget(&mut self, pid: i32) {
        self.0.remove(&pid);
    }

    /// How many frames of a process, outermost first, are unchanged since the last call. None: there is no sample.
    pub(crate) fn ask(&mut self, pid: i32) -> Option<usize> {
        let chain = self.0.get_mut(&pid)?;
        Some(std::mem::replace(&mut chain.same, chain.states.len()))
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
        // One different sample in between counts, even if the last equals the first.
        steady.take(1, [30, 20, 11].into_iter());
        steady.take(1, [30, 20, 10].into_iter());
        assert_eq!(steady.ask(1), Some(0));
        // A new callee changes none of its callers.
        steady.take(1, [40, 30, 20, 10].into_iter());
        assert_eq!(steady.ask(1), Some(3));
        steady.forget(1);
        assert_eq!(steady.ask(1), None);
    }
}
