//! Credit for bulk data on one link. The reader of a link must never wait for the consumer of its bulk data.
//! Otherwise orders and answers behind that data would wait, too. So a chunk is sent only if the peer has a place for
//! it, and the peer returns places as chunks are consumed. Credit is local to the two ends of a link.
//!
//! A peer that holds chunks and returns no places is slow, waits for a slow peer, or is stalled. In the first two
//! cases it sends heartbeats: credits of zero places, [`BEATS`] of them per stall time. So a peer that is silent for
//! the stall time is stalled *itself*, and no peer above it is blamed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use self::gate::{Debt, Gate};
use super::error::{LinkError, Phase};

mod gate;
mod sync;

/// Chunks that may be in flight on one link: 2 MiB. An order waits behind that much at most. A link of 10 Gbit/s
/// carries it in 1.7 ms, far longer than a round trip between nodes.
pub const WINDOW_CHUNKS: u32 = 8;

/// A peer that holds chunks and sends neither credit nor heartbeat for this long is stalled.
pub const STALL_TIME: Duration = Duration::from_secs(30);

/// Heartbeats of a waiting peer per stall time.
pub const BEATS: u32 = 6;

/// The credit of one link in both directions. The tasks of the link share it.
#[derive(Debug)]
pub struct Credit {
    stall: Duration,
    gate: Gate,
    times: Mutex<Times>,
}

#[derive(Debug)]
struct Times {
    /// When the peer last sent credit, or when the first chunk was sent to it after it held none.
    heard: Instant,
    /// When places were last returned, or when the first chunk arrived after none was held.
    given: Instant,
}

impl Credit {
    pub(super) fn new(stall: Duration) -> Arc<Self> {
        let now = Instant::now();
        let times = Mutex::new(Times { heard: now, given: now });
        Arc::new(Self { stall, gate: Gate::new(WINDOW_CHUNKS), times })
    }

    fn times(&self) -> MutexGuard<'_, Times> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The peer has returned places.
    ///
    /// # Errors
    /// [`LinkError::Malformed`]: it returned more than it had taken.
    pub fn earn(&self, places: u32) -> Result<(), LinkError> {
        self.times().heard = Instant::now();
        let what = "it gives back more places for bulk data than it had filled";
        self.gate.earn(places).map_err(|_| LinkError::Malformed { phase: Phase::Open, what })
    }

    /// A chunk has arrived. Dropping the result returns its place.
    ///
    /// # Errors
    /// [`LinkError::Malformed`]: there was no place for it.
    pub fn arrive(self: &Arc<Self>) -> Result<Held, LinkError> {
        if self.gate.debt().held == 0 {
            self.times().given = Instant::now();
        }
        let what = "it sends bulk data without credit";
        self.gate.arrive().map_err(|_| LinkError::Malformed { phase: Phase::Open, what })?;
        Ok(Held { credit: Arc::clone(self) })
    }

    /// A chunk was queued.
    pub(super) fn expect(&self) {
        self.gate.expect();
    }

    /// Whether a chunk may be sent.
    pub(super) fn is_any(&self) -> bool {
        self.gate.is_any()
    }

    /// Waits until a chunk may be sent. For the writer only.
    pub(super) async fn any(&self) {
        self.gate.any().await;
    }

    /// A chunk is sent.
    pub(super) fn spend(&self) {
        if self.gate.spend() {
            self.times().heard = Instant::now();
        }
    }

    /// Whether there are places to return.
    pub(super) fn is_due(&self) -> bool {
        self.gate.debt().due > 0
    }

    /// How many places to return, or 0 for a heartbeat. Waits until either is due. For the writer only.
    pub(super) async fn due(&self) -> u32 {
        loop {
            let Debt { due, held } = self.gate.debt();
            let beat = (held > 0).then(|| self.times().given + self.stall / BEATS);
            if due > 0 || beat.is_some_and(|beat| beat <= Instant::now()) {
                self.times().given = Instant::now();
                return self.gate.settle().due;
            }
            match beat {
                None => self.gate.debt_changed().await,
                Some(beat) => tokio::select! {
                    () = self.gate.debt_changed() => {}
                    () = sleep_until(beat) => {}
                },
            }
        }
    }

    /// Waits until the peer has held chunks for the stall time without a sign. Never ends while it holds none.
    pub(super) async fn silence(&self) {
        let (mut since, mut naps) = (self.quiet_since(), 0);
        while naps < BEATS {
            nap(self.stall).await;
            let now = self.quiet_since();
            naps = if now.is_some() && now == since { naps + 1 } else { 0 };
            since = now;
        }
    }

    fn quiet_since(&self) -> Option<Instant> {
        (!self.gate.is_taken()).then(|| self.times().heard)
    }

    /// Waits until the peer has consumed all chunks queued so far.
    pub(super) async fn all_taken(&self) {
        self.gate.all_taken().await;
    }
}

/// Waits for the stall time, with most of a pause of this whole process left out (a tool in a debugger, a suspended
/// job). After such a pause the peer first gets the chance to be heard.
pub async fn stall(time: Duration) {
    for _ in 0..BEATS {
        nap(time).await;
    }
}

async fn nap(stall: Duration) {
    sleep(stall / BEATS).await;
}

/// The place of a received chunk. Dropping this returns it.
#[derive(Debug)]
pub struct Held {
    credit: Arc<Credit>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.credit.gate.consume();
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    const STALL: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_only_waits_says_so_in_time() {
        let credit = Credit::new(STALL);
        let idle = timeout(10 * STALL, credit.due()).await;
        assert!(idle.is_err(), "a peer that holds nothing sends no heartbeat");
        let held = credit.arrive().unwrap();
        let begun = Instant::now();
        for beat in 1..5 {
            assert_eq!(credit.due().await, 0);
            assert_eq!(begun.elapsed(), STALL / BEATS * beat);
        }
        drop(held);
        assert_eq!(timeout(Duration::ZERO, credit.due()).await, Ok(1));
        assert!(timeout(10 * STALL, credit.due()).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn silence_is_counted_from_the_first_unanswered_chunk() {
        let credit = Credit::new(STALL);
        assert!(timeout(10 * STALL, credit.silence()).await.is_err(), "nothing is owed");
        let begun = Instant::now();
        credit.spend();
        for _ in 0..10 {
            assert!(timeout(STALL / 2, credit.silence()).await.is_err());
            credit.earn(0).unwrap();
        }
        credit.silence().await;
        assert_eq!(begun.elapsed(), STALL * 6);
        credit.earn(1).unwrap();
        assert!(timeout(10 * STALL, credit.silence()).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn neither_side_can_take_more_than_there_is() {
        let credit = Credit::new(STALL);
        assert!(credit.earn(1).is_err() && credit.earn(u32::MAX).is_err());
        let held: Vec<_> = (0..WINDOW_CHUNKS).map(|_| credit.arrive().unwrap()).collect();
        assert!(credit.arrive().is_err());
        drop(held);
        assert!(credit.arrive().is_err(), "the peer does not know of the places yet");
        assert_eq!(credit.due().await, WINDOW_CHUNKS);
        credit.arrive().unwrap();
        (0..WINDOW_CHUNKS).for_each(|_| credit.spend());
        assert!(timeout(STALL, credit.any()).await.is_err());
        credit.earn(1).unwrap();
        credit.any().await;
    }
}
