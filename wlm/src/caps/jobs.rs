//! Workload managers with jobs that processes can be inside of.

use std::fmt;

use crate::error::Result;
use crate::host::Host;
use crate::job::EndedApp;
use gantry_types::status::EndCause;

/// A workload manager with jobs that processes can be inside of.
pub trait Jobs: Send + Sync + fmt::Debug {
    /// Whether this process is inside a job. This is checked before everything else on the machine.
    fn is_inside(&self, host: &dyn Host) -> bool;

    /// Prefixes of variables that describe a process's own node. Ranks and daemons get those of their agent, and none
    /// of the tool's.
    fn node_variables(&self) -> &'static [&'static str];

    /// Asks why an app without a launcher of gantry has ended. Runs a program of the WLM, and blocks while it runs.
    /// `None`: the WLM did not end it.
    ///
    /// # Errors
    /// [`Error::NotYet`](crate::Error::NotYet) while the job is ending; else the WLM's own message.
    fn find_cause(&self, ended: &EndedApp, host: &dyn Host) -> Result<Option<EndCause>>;
}
