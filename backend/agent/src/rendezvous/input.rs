//! What comes for a rank's link.

use gantry_shared::wire::bridge::LaneNumber;
use gantry_shared::wire::rendezvous::LinkWord;

use super::lane::Lane;

/// What comes for a link.
#[derive(Debug)]
pub(crate) enum Input {
    /// From the frontend.
    Word(LinkWord),
    /// There is a lane for some of what the rank says.
    Lane(Lane),
    /// The lane may be used.
    Go(LaneNumber),
    /// The rank at the lane's other end has taken something.
    Taken {
        /// Which lane.
        lane: LaneNumber,
        /// How many bytes.
        bytes: u32,
    },
    /// All that was said on a lane has come, or nobody is there for whom it is.
    Ended(LaneNumber),
    /// The lane's bridge has broken: wait until it is known what has come.
    Broken(LaneNumber),
    /// That is known now.
    Resume {
        /// Which lane.
        lane: LaneNumber,
        /// How many bytes of it have come.
        come: u64,
    },
    /// A rank says something to this one.
    Frames {
        /// On which lane.
        lane: LaneNumber,
        /// Whole frames.
        bytes: Vec<u8>,
    },
}
