//! Waiting until a rendezvous is complete, and why it never will be.

use std::time::Duration;

use gantry_shared::deadline::bounded;
use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};

use crate::error::{Error, Result};

const WAITING: &str = "waiting for a rendezvous";

/// Repeats `look` until it returns something.
pub(super) async fn until(
    mut changes: watch::Receiver<u64>,
    timeout: Duration,
    mut look: impl FnMut() -> Result<Option<Vec<u8>>>,
) -> Result<Vec<u8>> {
    let end = Instant::now() + bounded(timeout);
    loop {
        changes.mark_unchanged();
        if let Some(data) = look()? {
            return Ok(data);
        }
        match timeout_at(end, changes.changed()).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return Err(Error::Gone { what: "the rendezvous".to_owned() }),
            Err(_) => return Err(Error::TimedOut { phase: WAITING, after: timeout, missing: Vec::new() }),
        }
    }
}

/// Waits for `done`. None: before that, there was no change for the time `stall`.
pub(super) async fn while_moving<F: Future>(
    done: F,
    mut moves: watch::Receiver<()>,
    stall: Duration,
) -> Option<F::Output> {
    tokio::pin!(done);
    loop {
        tokio::select! {
            biased;
            done = &mut done => return Some(done),
            moved = timeout(stall, moves.changed()) => moved.ok()?.ok()?,
        }
    }
}
