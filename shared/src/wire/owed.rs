//! Room that is given back to a sender: not for each message, but in portions.

use super::window::cost_of;

/// What a receiver has taken of a window and has not told the sender yet.
///
/// A portion is a quarter of the window. So a sender whose messages are taken never waits for room, and small messages share one answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owed {
    bytes: u32,
    portion: u32,
}

impl Owed {
    /// Nothing is owed yet of a window of that many bytes.
    #[must_use]
    pub const fn of(window: u32) -> Self {
        Self { bytes: 0, portion: window / 4 }
    }

    /// A message was taken; counted by [`cost_of`]. Gives what the sender is to be told now, if anything.
    #[must_use]
    pub fn take_message(&mut self, bytes: usize) -> Option<u32> {
        self.take(cost_of(bytes))
    }

    /// So many bytes were taken. Gives what the sender is to be told now, if anything.
    #[must_use]
    pub fn take(&mut self, bytes: u32) -> Option<u32> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes < self.portion { None } else { self.rest() }
    }

    /// All that is owed, where the sender may have room for nothing else, or nothing more is taken.
    #[must_use]
    pub fn rest(&mut self) -> Option<u32> {
        Some(std::mem::take(&mut self.bytes)).filter(|bytes| *bytes > 0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::window::{OVERHEAD_BYTES, Receiver};
    use super::*;

    #[test]
    fn room_comes_back_in_quarters_and_the_rest_when_asked_for() {
        let mut owed = Owed::of(400);
        assert_eq!((owed.take(99), owed.take(1), owed.take(7)), (None, Some(100), None));
        assert_eq!((owed.rest(), owed.rest()), (Some(7), None));
        assert_eq!(Owed::of(4 * OVERHEAD_BYTES).take_message(0), Some(OVERHEAD_BYTES));
    }

    proptest! {
        /// Whoever sends what it has room for, in messages of a quarter at most, is never stuck while all is taken, and never overruns.
        #[test]
        fn a_sender_is_never_stuck(window in 4_u32..10_000, sizes in proptest::collection::vec(1_u32..10_000, 1..200)) {
            let (mut receiver, mut owed, mut room) = (Receiver::new(window), Owed::of(window), window);
            for size in sizes {
                let size = size.min((window / 4).max(1));
                prop_assert!(size <= room, "{size} bytes have no room in {room} of {window}");
                room -= size;
                prop_assert!(receiver.take(size).is_ok());
                if let Some(back) = owed.take(size) {
                    receiver.grant(back);
                    room += back;
                }
                prop_assert!(room <= window);
            }
        }
    }
}
