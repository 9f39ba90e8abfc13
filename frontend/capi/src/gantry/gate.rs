//! Until when functions of C's may be called: a filter's context is C's to free once its session has ended.

use std::cell::Cell;
use std::sync::{Condvar, Mutex, PoisonError};

use gantry_shared_capi::Fault;

use crate::table::lock;

thread_local! {
    /// This thread is in a function of C's that has passed a gate.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Counts the calls that run, and lets no more in once it is closed.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    standing: Mutex<Standing>,
    left: Condvar,
}

#[derive(Debug, Default)]
struct Standing {
    running: usize,
    closed: bool,
}

impl Gate {
    /// Makes a call, unless the gate is closed.
    pub(crate) fn pass<T>(&self, call: impl FnOnce() -> T) -> Option<T> {
        {
            let mut standing = lock(&self.standing);
            if standing.closed {
                return None;
            }
            standing.running += 1;
        }
        let _inside = Inside { gate: self, before: INSIDE.replace(true) };
        Some(call())
    }

    /// No call is made any more when this returns. Waits for those that run.
    pub(crate) fn close(&self) {
        let mut standing = lock(&self.standing);
        standing.closed = true;
        while standing.running > 0 {
            standing = self.left.wait(standing).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Fails inside of a filter's call, because the requested operation would wait for the end of that call.
    pub(crate) fn refuse_inside() -> Result<(), Fault> {
        match INSIDE.get() {
            true => Err(Fault::invalid("a filter cannot end sessions or applications: it is waited for")),
            false => Ok(()),
        }
    }
}

/// A call that runs.
struct Inside<'a> {
    gate: &'a Gate,
    before: bool,
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        INSIDE.set(self.before);
        lock(&self.gate.standing).running -= 1;
        self.gate.left.notify_all();
    }
}
