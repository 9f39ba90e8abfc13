//! Windows: how many unacknowledged bytes a peer may send.
//!
//! A receiver counts the arriving bytes with [`Receiver`] and closes the link of a peer that overruns it. It returns room
//! in portions, not for each message ([`Owed`]). A sender counts its unacknowledged bytes with [`Outstanding`], so that
//! a peer cannot acknowledge more than it was sent.

/// The most unacknowledged bytes of messages to one daemon, or of unrequested messages from it.
pub const CHANNEL_WINDOW_BYTES: u32 = 256 * 1024;

/// The cost of every message besides its bytes, so that many small ones are bounded too.
pub const OVERHEAD_BYTES: u32 = 64;

/// The cost of a message of that many bytes, counted against a window.
#[must_use]
pub fn cost_of(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX - OVERHEAD_BYTES).saturating_add(OVERHEAD_BYTES)
}

/// A peer sent more than it had room for, or acknowledged more than it was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{bytes} bytes where {room} were left")]
pub struct Overrun {
    /// The bytes that it sent or acknowledged.
    pub bytes: u64,
    /// The bytes that it was allowed.
    pub room: u64,
}

/// The receiver's count of what a peer may still send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receiver {
    room: u64,
}

impl Receiver {
    /// A peer that may send that many bytes.
    #[must_use]
    pub fn new(window: u32) -> Self {
        Self { room: window.into() }
    }

    /// Counts bytes that have arrived.
    ///
    /// # Errors
    /// There was no room for them. The room stays as it is.
    pub fn take(&mut self, bytes: u32) -> Result<(), Overrun> {
        let bytes = u64::from(bytes);
        self.room = self.room.checked_sub(bytes).ok_or(Overrun { bytes, room: self.room })?;
        Ok(())
    }

    /// How much the peer may send.
    #[must_use]
    pub fn room(&self) -> u64 {
        self.room
    }

    /// Gives the peer room for more bytes.
    pub fn grant(&mut self, bytes: u32) {
        self.room = self.room.saturating_add(bytes.into());
    }
}

/// Bytes that were sent to a peer and that it has not acknowledged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outstanding {
    bytes: u64,
}

impl Outstanding {
    /// All is acknowledged.
    pub const NONE: Self = Self { bytes: 0 };

    /// Counts bytes that are sent.
    pub fn send(&mut self, bytes: u32) {
        self.bytes = self.bytes.saturating_add(bytes.into());
    }

    /// Counts bytes that the peer acknowledges.
    ///
    /// # Errors
    /// It was not sent that much.
    pub fn give_back(&mut self, bytes: u32) -> Result<(), Overrun> {
        let bytes = u64::from(bytes);
        self.bytes = self.bytes.checked_sub(bytes).ok_or(Overrun { bytes, room: self.bytes })?;
        Ok(())
    }
}

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

    use super::*;

    #[test]
    fn a_peer_sends_its_window_and_no_byte_more() {
        let mut window = Receiver::new(100);
        assert_eq!(window.take(60), Ok(()));
        assert_eq!(window.take(41), Err(Overrun { bytes: 41, room: 40 }));
        assert_eq!(window.take(40), Ok(()));
        assert!(window.take(1).is_err());
        window.grant(5);
        assert_eq!((window.take(5), window.take(1).is_err()), (Ok(()), true));
    }

    #[test]
    fn a_peer_gives_back_what_it_was_sent_and_no_byte_more() {
        let mut sent = Outstanding::default();
        assert!(sent.give_back(1).is_err());
        sent.send(10);
        assert_eq!(sent.give_back(7), Ok(()));
        assert_eq!(sent.give_back(4), Err(Overrun { bytes: 4, room: 3 }));
        assert_eq!(sent.give_back(3), Ok(()));
    }

    #[test]
    fn what_bytes_cost_never_overflows_and_is_never_nothing() {
        assert_eq!((cost_of(0), cost_of(100)), (64, 164));
        assert_eq!(cost_of(usize::MAX), u32::MAX);
    }

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

        #[test]
        fn no_order_of_grants_and_bytes_lets_more_through_than_was_granted(
            steps in proptest::collection::vec((any::<bool>(), any::<u32>()), 0..100),
        ) {
            let (mut window, mut granted, mut taken) = (Receiver::new(1000), 1000_u64, 0_u64);
            for (grant, bytes) in steps {
                if grant {
                    window.grant(bytes);
                    granted += u64::from(bytes);
                } else if window.take(bytes).is_ok() {
                    taken += u64::from(bytes);
                } else {
                    prop_assert!(taken + u64::from(bytes) > granted);
                }
                prop_assert!(taken <= granted);
            }
        }
    }
}
