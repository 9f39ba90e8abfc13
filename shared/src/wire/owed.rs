//! Room that a receiver returns to a sender in portions, not for each message.

/// Room of a window that a receiver has freed and not returned yet.
///
/// A portion is a quarter of the window. So a sender whose messages are taken never waits for room, and small messages
/// share one answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owed {
    bytes: u32,
    portion: u32,
}

impl Owed {
    /// A window of that many bytes of which nothing is owed yet.
    #[must_use]
    pub const fn of(window: u32) -> Self {
        Self { bytes: 0, portion: window / 4 }
    }

    /// Counts bytes that were taken. Returns the credit to send now, if any.
    #[must_use]
    pub fn take(&mut self, bytes: u32) -> Option<u32> {
        self.bytes = self.bytes.saturating_add(bytes);
        (self.bytes >= self.portion && self.bytes > 0).then(|| std::mem::take(&mut self.bytes))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::window::Receiver;
    use super::*;

    #[test]
    fn room_comes_back_in_quarters() {
        let mut owed = Owed::of(400);
        assert_eq!((owed.take(99), owed.take(1), owed.take(7)), (None, Some(100), None));
    }

    proptest! {
        /// A sender that uses its room, in messages of at most a quarter, is never stuck while all is taken, and never
        /// overruns.
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
