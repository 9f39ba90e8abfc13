//! Shared code of all tables' functions.

use std::time::Duration;

use gantry_shared_capi::{Fault, deadline, enter};

use crate::process::process;

/// Attaches and returns an id, for a function of a table.
pub(super) fn register(name: &str, target: impl FnOnce() -> Result<String, Fault>) -> i64 {
    enter(name, 0, || process().attach(target()?, false, deadline::of_launches()))
}

/// As [`register`], but first waits until the target is ready: at most `seconds`, or the timeout of launches if that is
/// 0.
pub(super) fn register_when_there(
    name: &str,
    seconds: u32,
    target: impl FnOnce() -> Result<String, Fault>,
) -> i64 {
    enter(name, 0, || {
        let deadline = match seconds {
            0 => deadline::of_launches(),
            seconds => Duration::from_secs(seconds.into()),
        };
        process().attach(target()?, true, deadline)
    })
}
