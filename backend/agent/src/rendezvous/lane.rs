//! A lane at the end of who sends: what may go, what was sent and is not known to be taken, what is to go another way when its bridge breaks.

use std::collections::VecDeque;

use gantry_shared::wire::bridge::{BridgeNumber, LANE_WINDOW_BYTES, LaneNumber};
use gantry_shared::wire::runtime::Scope;
use gantry_types::runtime::Peer;

/// A frame needs no more credit than that, however large it is: who takes gives credit back only when there is some.
const MOST_NEEDED: i64 = LANE_WINDOW_BYTES as i64 / 2;

/// Whose messages go on a lane.
pub(super) type Recipient = (Scope, Peer);

/// A lane.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(super) number: LaneNumber,
    pub(super) bridge: BridgeNumber,
    /// Whom it is for.
    pub(super) to: Recipient,
    standing: Standing,
    /// Below zero after a large frame, and when last words went without.
    credit: i64,
    sent: u64,
    /// The last bytes that were sent.
    kept: VecDeque<u8>,
}

/// How a lane stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// The marker is on its way.
    Shut,
    Open,
    /// What has come of it is asked for.
    Broken,
    /// The last word was said.
    Ending,
}

impl Lane {
    pub(super) fn new(number: LaneNumber, bridge: BridgeNumber, to: Recipient) -> Self {
        Self { number, bridge, to, standing: Standing::Shut, credit: 0, sent: 0, kept: VecDeque::new() }
    }

    pub(super) fn is_shut(&self) -> bool {
        self.standing == Standing::Shut
    }

    /// The marker has come.
    pub(super) fn open(&mut self) {
        if self.standing == Standing::Shut {
            (self.standing, self.credit) = (Standing::Open, LANE_WINDOW_BYTES.into());
        }
    }

    /// Whether a frame of so many bytes may go now; last words need no credit.
    pub(super) fn takes(&self, bytes: usize, last_words: bool) -> bool {
        let needed = i64::try_from(bytes).unwrap_or(MOST_NEEDED).min(MOST_NEEDED);
        self.standing == Standing::Open && (last_words || self.credit >= needed)
    }

    /// A frame goes.
    pub(super) fn send(&mut self, frame: &[u8]) {
        self.credit -= i64::try_from(frame.len()).unwrap_or(MOST_NEEDED);
        self.sent += frame.len() as u64;
        self.kept.extend(frame);
    }

    /// The rank at the other end has taken so much more.
    pub(super) fn taken(&mut self, bytes: u32) {
        self.credit += i64::from(bytes);
        let count = usize::try_from(bytes).unwrap_or(usize::MAX).min(self.kept.len());
        self.kept.drain(..count);
    }

    /// The bridge has broken.
    pub(super) fn stop(&mut self) {
        self.standing = Standing::Broken;
    }

    /// Nothing more comes. True: that is to be said now.
    pub(super) fn end(&mut self) -> bool {
        let open = self.standing == Standing::Open;
        if open {
            self.standing = Standing::Ending;
        }
        open
    }

    /// What is to go another way when so much of all that was sent has come.
    pub(super) fn rest(self, come: u64) -> Vec<u8> {
        let first_kept = self.sent - self.kept.len() as u64;
        let known = usize::try_from(come.saturating_sub(first_kept)).unwrap_or(usize::MAX);
        self.kept.into_iter().skip(known).collect()
    }
}

#[cfg(test)]
mod tests {
    use gantry_shared::wire::runtime::Scope;
    use gantry_types::id::Rank;
    use gantry_types::runtime::Peer;

    use super::*;

    fn open() -> Lane {
        let mut lane = Lane::new(1, 2, (Scope::Job, Peer { subjob: 0, rank: Rank(0) }));
        assert!(!lane.takes(1, true), "before the marker has come");
        lane.open();
        lane
    }

    #[test]
    fn no_more_goes_than_there_is_credit_but_last_words() {
        let mut lane = open();
        let window = usize::try_from(LANE_WINDOW_BYTES).unwrap();
        lane.send(&vec![0; window - 100]);
        assert!(lane.takes(100, false) && !lane.takes(101, false) && lane.takes(101, true));
        lane.taken(1000);
        assert!(lane.takes(1100, false) && !lane.takes(1101, false));
        // What is larger than the window goes when half of it is free.
        lane.taken(LANE_WINDOW_BYTES / 2);
        assert!(lane.takes(4 * window, false));
        lane.send(&vec![0; 4 * window]);
        assert!(!lane.takes(1, false));
    }

    #[test]
    fn what_has_not_come_is_known_when_the_bridge_breaks() {
        let check = |taken: u32, come: u64, expected: &[u8]| {
            let mut lane = open();
            lane.send(b"one.");
            lane.send(b"two.");
            lane.send(b"six.");
            lane.taken(taken);
            lane.stop();
            assert!(!lane.takes(1, true) && !lane.end());
            assert_eq!(lane.rest(come), expected, "{taken} {come}");
        };
        check(0, 0, b"one.two.six.");
        check(0, 8, b"six.");
        check(4, 8, b"six.");
        check(4, 4, b"two.six.");
        check(12, 12, b"");
    }

    #[test]
    fn the_end_is_said_once() {
        let mut lane = open();
        assert!(lane.end() && !lane.end());
        assert!(!lane.takes(1, true));
    }
}
