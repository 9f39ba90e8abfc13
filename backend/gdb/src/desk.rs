//! All gdbs of a node. The daemon shares them with the threads that read gdb's output.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gantry_shared::deadline::bounded;
use gantry_types::id::Rank;

use crate::gdb::Gdb;

/// The gdbs, by their ranks.
pub(crate) type Gdbs = BTreeMap<Rank, Gdb>;

/// Shared access to the gdbs.
#[derive(Debug, Default)]
pub(crate) struct Desk {
    gdbs: Mutex<Gdbs>,
    changed: Condvar,
}

impl Desk {
    fn lock(&self) -> MutexGuard<'_, Gdbs> {
        self.gdbs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads or changes the gdbs.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Gdbs) -> T) -> T {
        let changed = change(&mut self.lock());
        self.changed.notify_all();
        changed
    }

    /// Reads or changes one gdb, if it exists.
    pub(crate) fn change_one(&self, rank: Rank, change: impl FnOnce(&mut Gdb)) {
        self.change(|gdbs| gdbs.get_mut(&rank).map(change).unwrap_or_default());
    }

    /// Waits until a condition holds. False: timed out.
    pub(crate) fn wait(&self, patience: Duration, mut is_so: impl FnMut(&mut Gdbs) -> bool) -> bool {
        let until = Instant::now() + bounded(patience);
        let mut gdbs = self.lock();
        loop {
            if is_so(&mut gdbs) {
                return true;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            gdbs = self.changed.wait_timeout(gdbs, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Whether a rank's gdb has ended.
pub(crate) fn is_over(gdbs: &Gdbs, rank: Rank) -> bool {
    gdbs.get(&rank).is_none_or(|gdb| gdb.dialogue.has_ended())
}
