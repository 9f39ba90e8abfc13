//! What the tool and its guard say to each other, as frames on a socket pair. The socket's end without a word is the message that matters most.

use std::ffi::OsString;

use gantry_shared::error::Failure;
use gantry_shared::id::Pid;
use gantry_shared::status::ExitStatus;
use gantry_shared::wire::message::Blob;
use serde::{Deserialize, Serialize};

/// Number by which the tool knows a process that it had the guard start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProcessId(pub u32);

/// From the tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToGuard {
    /// Start an agent.
    StartAgent(StartAgent),
    /// Remove this socket when the tool is gone: a killed tool cannot do it itself.
    RemoveSocket(OsString),
    /// From now on the tool's end means nothing: what runs goes on.
    Detach,
}

/// An agent to start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartAgent {
    /// Its number.
    pub id: ProcessId,
    /// The executable.
    pub program: OsString,
    /// What it reads on its standard input. Holds the app's secret.
    pub ticket: Blob,
    /// Where it was told to keep session storage, if anywhere: swept after it should it be killed.
    pub stage_base: Option<OsString>,
}

/// To the tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromGuard {
    /// The guard runs.
    Hello {
        /// Its version, which must be the library's.
        release: String,
        /// Its pid.
        pid: Pid,
    },
    /// The process runs.
    Started {
        /// Which.
        id: ProcessId,
        /// Its pid.
        pid: Pid,
    },
    /// The process could not be started.
    NotStarted {
        /// Which.
        id: ProcessId,
        /// Why.
        failure: Failure,
    },
    /// The process ended.
    Exited {
        /// Which.
        id: ProcessId,
        /// How.
        status: ExitStatus,
        /// The last that it wrote on standard error.
        last_words: String,
    },
}
