//! Flux's capabilities besides launching and attaching.

use gantry_types::error::Failure;
use gantry_types::status::EndCause;

use super::cause::{find_cause, parse_cause};
use super::detect::URI;
use super::words::parse_failure;
use crate::caps::jobs::Jobs;
use crate::caps::launcher_output::LauncherOutput;
use crate::error::Result;
use crate::host::Host;
use crate::job::EndedApp;

/// The variable in which a process finds its job.
pub(crate) const JOB_VARIABLES: &[&str] = &["FLUX_JOB_ID"];

/// The capabilities of Flux: job names, causes of ends, batch scripts, and the output of `flux run`.
#[derive(Debug)]
pub(super) struct FluxJobs;

impl Jobs for FluxJobs {
    /// A process under Flux, at any depth, has its instance's address.
    fn is_inside(&self, host: &dyn Host) -> bool {
        host.env(URI).is_some()
    }

    /// The address of an instance is that of the local node's broker.
    fn node_variables(&self) -> &'static [&'static str] {
        &[URI, "FLUX_JOB_", "FLUX_KVS_NAMESPACE"]
    }

    fn find_cause(&self, ended: &EndedApp, host: &dyn Host) -> Result<Option<EndCause>> {
        find_cause(ended, host)
    }
}

impl LauncherOutput for FluxJobs {
    fn explain_end(&self, command: &[String], status: &str, stderr: &str) -> Option<Failure> {
        Some(parse_failure(command, status, stderr))
    }

    fn read_cause(&self, line: &str) -> Option<EndCause> {
        parse_cause(line)
    }
}
