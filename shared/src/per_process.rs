//! Values that each process owns separately.
//!
//! A forked child has a copy of its parent's memory and none of its parent's threads. A lock that such a thread held
//! stays locked for ever, and both processes would share a connection. So every value carries the mark of the process
//! that made it. A child checks the mark first, leaves its parent's value alone, and makes its own.

#![expect(
    unsafe_code,
    reason = "values that are leaked on purpose, and reached by a pointer that no lock guards"
)]

use std::fmt;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A value per process: the first call makes it, and again in a forked child.
pub struct PerProcess<T: 'static> {
    current: AtomicPtr<Marked<T>>,
}

struct Marked<T> {
    process: u32,
    value: T,
}

impl<T: Send + Sync> PerProcess<T> {
    /// No process has a value yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { current: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// This process's value. Never blocks. If several threads make it at once, one value wins and the others are
    /// dropped.
    pub fn get_or_make(&self, make: impl Fn() -> T) -> &'static T {
        let own = std::process::id();
        let mut known = self.current.load(Ordering::Acquire);
        loop {
            // SAFETY: null, or leaked below and never freed.
            if let Some(marked) = unsafe { known.as_ref() }
                && marked.process == own
            {
                return &marked.value;
            }
            let fresh = Box::into_raw(Box::new(Marked { process: own, value: make() }));
            match self.current.compare_exchange(known, fresh, Ordering::AcqRel, Ordering::Acquire) {
                // SAFETY: made above, and from now on never freed.
                Ok(_) => return unsafe { &(*fresh).value },
                Err(now) => {
                    // SAFETY: made above, and not visible to other threads.
                    drop(unsafe { Box::from_raw(fresh) });
                    known = now;
                }
            }
        }
    }

    /// This process's value, initially the default.
    pub fn get(&self) -> &'static T
    where
        T: Default,
    {
        self.get_or_make(T::default)
    }
}

impl<T: Send + Sync> Default for PerProcess<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for PerProcess<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PerProcess").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::sync::{Arc, Mutex};

    use super::*;

    /// The number of forks. Without the mark, about every second child hangs.
    const FORKS: u32 = 300;

    /// Seconds after which a hanging child is killed.
    const PATIENCE: u32 = 20;

    #[test]
    fn a_value_is_made_once_and_is_everybodys_in_a_process() {
        static NUMBERS: PerProcess<Mutex<Vec<u32>>> = PerProcess::new();
        let threads: Vec<_> = (0..8)
            .map(|it| std::thread::spawn(move || NUMBERS.get().lock().expect("a lock").push(it)))
            .collect();
        threads.into_iter().for_each(|thread| thread.join().expect("a thread"));
        assert_eq!(NUMBERS.get().lock().expect("a lock").len(), 8);
    }

    #[test]
    fn a_child_takes_its_own_lock_while_threads_of_its_parent_hold_theirs() {
        static KEPT: PerProcess<Mutex<Vec<u32>>> = PerProcess::new();
        KEPT.get().lock().expect("a lock").push(1);
        let over = Arc::new(AtomicBool::new(false));
        let holders: Vec<_> = (0..4)
            .map(|_| {
                let over = Arc::clone(&over);
                std::thread::spawn(move || {
                    while !over.load(Ordering::Relaxed) {
                        let held = KEPT.get().lock().expect("a lock");
                        std::hint::black_box(std::fs::metadata("/proc/self").is_ok());
                        drop(held);
                    }
                })
            })
            .collect();
        let mut ended = Vec::new();
        for _ in 0..FORKS {
            // SAFETY: the child calls only functions that the C library supports after a fork, including memory
            // allocation.
            let child = unsafe { libc::fork() };
            assert!(child >= 0);
            if child == 0 {
                // SAFETY: takes any number; the signal ends this process.
                unsafe { libc::alarm(PATIENCE) };
                let is_fresh = KEPT.get().lock().is_ok_and(|kept| kept.is_empty());
                // SAFETY: takes any number.
                unsafe { libc::_exit(i32::from(!is_fresh)) };
            }
            let mut status = 0;
            // SAFETY: our own child, and a place for its status.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            ended.push(status);
            if status != 0 {
                break;
            }
        }
        over.store(true, Ordering::Relaxed);
        holders.into_iter().for_each(|thread| thread.join().expect("a thread"));
        assert!(ended.iter().all(|status| *status == 0), "child {}: {:?}", ended.len(), ended.last());
    }
}
