//! Assembles a large part of a channel operation. Its consumer opens the window of the rest when its turn comes.

use super::channel::{MemberSet, PART_WINDOW_BYTES};
use super::flow::Inflow;
use super::window::Overrun;

/// A part that is not complete yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assembly {
    of: MemberSet,
    total: u64,
    bytes: Vec<u8>,
    /// None before its turn.
    window: Option<Inflow>,
    /// Bytes that have arrived since the last credit.
    fresh: usize,
}

impl Assembly {
    /// A part of `total` bytes whose first chunk arrived without a request.
    #[must_use]
    pub fn begin(of: MemberSet, total: u64, bytes: Vec<u8>) -> Self {
        Self { of, total, bytes, window: None, fresh: 0 }
    }

    /// The members whose contributions it has.
    #[must_use]
    pub fn members(&self) -> &MemberSet {
        &self.of
    }

    /// Takes the next bytes. Returns whether the part is complete.
    ///
    /// # Errors
    /// There was no credit for them, or the part is not that long. They are not taken.
    pub fn take(&mut self, bytes: &[u8]) -> Result<bool, Overrun> {
        let (left, more) = (self.total - self.bytes.len() as u64, bytes.len() as u64);
        let room = self.window.as_ref().map_or(0, Inflow::room).min(left);
        if more > room {
            return Err(Overrun { bytes: more, room });
        }
        if let Some(window) = &mut self.window {
            window.arrive(bytes.len())?;
        }
        self.bytes.extend_from_slice(bytes);
        self.fresh += bytes.len();
        Ok(more == left)
    }

    /// The credit to send now, if any.
    #[must_use]
    pub fn ask(&mut self) -> Option<u32> {
        let Some(window) = &mut self.window else {
            self.window = Some(Inflow::new(PART_WINDOW_BYTES));
            return Some(PART_WINDOW_BYTES);
        };
        if window.room() >= self.total - self.bytes.len() as u64 {
            return None;
        }
        window.take(std::mem::take(&mut self.fresh))
    }

    /// The part as far as it has arrived, and the members whose it is.
    #[must_use]
    pub fn finish(self) -> (MemberSet, Vec<u8>) {
        (self.of, self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_was_not_asked_for_is_not_taken() {
        let mut part = Assembly::begin(MemberSet::default(), 20, vec![0; 5]);
        assert_eq!(part.take(&[1]), Err(Overrun { bytes: 1, room: 0 }));
        assert_eq!(part.ask(), Some(PART_WINDOW_BYTES));
        assert_eq!(part.take(&[1; 16]), Err(Overrun { bytes: 16, room: 15 }), "it is no longer than it says");
        assert_eq!((part.take(&[1; 14]), part.take(&[2])), (Ok(false), Ok(true)));
        assert_eq!(part.finish().1, [&[0; 5][..], &[1; 14], &[2]].concat());
    }

    proptest! {
        /// A sender that sends what is requested, in pieces of any size, completes the part. Never more than a window
        /// is in flight.
        #[test]
        fn every_part_comes_whole(total in 1_u64..3_000_000, first in 1_usize..65_536, pieces in proptest::collection::vec(1_usize..65_536, 1..20)) {
            let first = first.min(usize::try_from(total).unwrap());
            let mut part = Assembly::begin(MemberSet::default(), total, vec![0; first]);
            let (mut sent, mut room, mut sizes) = (first as u64, 0_u64, pieces.iter().cycle());
            while sent < total {
                room += part.ask().map_or(0, u64::from);
                prop_assert!(room > 0, "stuck at {sent} of {total}");
                prop_assert!(room <= u64::from(PART_WINDOW_BYTES));
                let piece = (*sizes.next().unwrap() as u64).min(room).min(total - sent);
                (sent, room) = (sent + piece, room - piece);
                prop_assert_eq!(part.take(&vec![1; usize::try_from(piece).unwrap()]), Ok(sent == total));
            }
            prop_assert_eq!(part.finish().1.len() as u64, total);
        }
    }
}
