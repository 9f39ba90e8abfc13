//! The protocol between `gantry-mpir`, which has the symbols of MPIR, and the command that does its work. It uses a
//! socket pair on one machine.
//!
//! The table is sent in pieces, as a million ranks do not fit into one frame.

use serde::{Deserialize, Serialize};

/// The most ranks in one message. With the longest paths and names they fit into a frame.
pub const RANKS_AT_ONCE: usize = 128;

/// A message of the command to the starter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToStarter {
    /// The next ranks, in the order of their numbers.
    Ranks(Vec<Process>),
    /// All ranks of the app with that id were sent.
    Complete(String),
    /// The app has failed, for this reason.
    Aborted(String),
}

/// A message of the starter to the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromStarter {
    /// The debugger has continued the starter: the ranks may run.
    Release,
    /// The starter received the signal of that number.
    Signal(i32),
}

/// A rank in MPIR's terms.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its host.
    pub host: String,
    /// Its program.
    pub exe: String,
    /// Its pid there; 0 if unknown.
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
