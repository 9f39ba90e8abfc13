//! `gantry-mpir`, which has the symbols of MPIR, and the command that does its work: over a socket pair, on one machine.
//!
//! The table comes in pieces, as a million ranks do not fit into one frame.

use serde::{Deserialize, Serialize};

/// So many ranks are in one message at most: with the longest paths and names they fit into a frame.
pub const RANKS_AT_ONCE: usize = 128;

/// What the command tells the starter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToStarter {
    /// The next ranks, in the order of their numbers.
    Ranks(Vec<Process>),
    /// Those were all ranks of the app with that id.
    Complete(String),
    /// The app has failed, for this reason.
    Aborted(String),
}

/// What the starter tells the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromStarter {
    /// The debugger has let the starter go on: the ranks may run.
    Release,
    /// The starter was sent the signal of that number.
    Signal(i32),
}

/// A rank, as MPIR tells it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its host.
    pub host: String,
    /// Its program.
    pub exe: String,
    /// Its process there; 0 where it is not known.
    pub pid: i32,
}

#[cfg(test)]
mod tests {
    use super::super::frame;
    use super::*;

    #[test]
    fn the_longest_piece_of_a_table_fits_into_a_frame() {
        let process = Process { host: "h".repeat(255), exe: "/".repeat(4096), pid: i32::MAX };
        let piece = ToStarter::Ranks(vec![process; RANKS_AT_ONCE]);
        let body = frame::encode_body(&piece).unwrap();
        assert_eq!(frame::decode::<ToStarter>(&body).unwrap(), piece);
    }
}
