//! Workload managers whose launchers' standard error gantry can parse.

use std::fmt;

use gantry_types::error::Failure;

use gantry_types::status::EndCause;

/// Parses the standard error of a workload manager's launchers.
pub trait LauncherOutput: Send + Sync + fmt::Debug {
    /// Explains why a launcher ended with `status` before its ranks were started. `stderr` is the end of its output.
    /// `None`: there is nothing to add.
    fn explain_end(&self, command: &[String], status: &str, stderr: &str) -> Option<Failure>;

    /// Whether the launcher failed because the nodes do not have gantry's agent. If so, the agent is sent.
    fn lacks_agent(&self, _stderr: &str) -> bool {
        false
    }

    /// Parses a line that says why ranks were ended. `None`: the line is about something else.
    fn read_cause(&self, _line: &str) -> Option<EndCause> {
        None
    }
}
