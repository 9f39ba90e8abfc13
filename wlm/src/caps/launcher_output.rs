//! Workload managers that understand what their launchers write on standard error.

use std::fmt;

use gantry_types::error::Failure;

use gantry_types::status::EndCause;

/// Reads what the launchers of a workload manager write on standard error.
pub trait LauncherOutput: Send + Sync + fmt::Debug {
    /// Explains the end of a launcher that ended with `status` before its ranks were there. `stderr` is the last that it wrote. None: there is
    /// nothing to add.
    fn explain_end(&self, command: &[String], status: &str, stderr: &str) -> Option<Failure>;

    /// Whether the launcher could not start ranks because their nodes do not have gantry's agent. The agent is then sent.
    fn lacks_agent(&self, _stderr: &str) -> bool {
        false
    }

    /// Reads a line that says why ranks were ended. None: the line is about something else.
    fn read_cause(&self, _line: &str) -> Option<EndCause> {
        None
    }
}
