//! The output of ranks and daemons: which of the two streams, and where it goes.

use std::ffi::OsString;

use serde::{Deserialize, Serialize};

/// Standard output or standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Where a daemon's standard output and error go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum DaemonOutput {
    /// To the tool, as an event or a stream.
    Forward,
    /// To two files in this directory of the node: `gantry-APP-dDAEMON-HOST.out` and `.err`. Where another user has taken
    /// that name, there are random characters before the ending.
    Log(OsString),
    /// Nowhere.
    Drop,
}
