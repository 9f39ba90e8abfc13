//! Pauses in a wait for a change that only `/proc` shows.

use std::time::{Duration, Instant};

/// The pauses while another process gets its turn on a processor. Each is twice the one before.
///
/// `yield_now` is no pause: Linux may choose this thread again at once, which then keeps the processor from the process.
pub(super) struct Pauses {
    next: Duration,
    until: Instant,
}

impl Pauses {
    const FIRST: Duration = Duration::from_micros(20);
    const LONGEST: Duration = Duration::from_millis(1);

    pub(super) fn until(until: Instant) -> Self {
        Self { next: Self::FIRST, until }
    }

    /// Makes the next pause. False: the time is over.
    #[expect(
        clippy::disallowed_methods,
        reason = "the kernel reports stops to the parent and the tracer alone"
    )]
    pub(super) fn pause(&mut self) -> bool {
        let has_time = Instant::now() < self.until;
        if has_time {
            std::thread::sleep(self.next);
            self.next = (2 * self.next).min(Self::LONGEST);
        }
        has_time
    }
}
