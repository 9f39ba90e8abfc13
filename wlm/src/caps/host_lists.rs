//! Workload managers whose hosts the user names.

use std::ffi::OsString;
use std::fmt;
use std::path::Path;

use crate::error::Result;
use crate::host::Host;

/// A workload manager whose hosts the user names. A launch can continue without unreachable hosts:
/// [`AgentCommand::policy`](crate::AgentCommand::policy) says how many it needs.
pub trait HostLists: Send + Sync + fmt::Debug {
    /// Finds the option among `args` that names hosts for this WLM. With such an option the launch uses this WLM,
    /// whatever else the machine has.
    fn find_host_option(&self, args: &[OsString]) -> Option<String>;

    /// Parses options that say how to reach hosts, for [`Wlm::adopt`](crate::Wlm::adopt) and
    /// [`Wlm::start_agents`](crate::Wlm::start_agents). Without options it returns the defaults. Pure.
    ///
    /// # Errors
    /// Names an unknown option.
    fn read_reach_args(&self, args: &[OsString]) -> Result<Vec<String>>;

    /// Describes the transport to the hosts, for `gantry doctor`. `agent` is the agent's path on this machine. Starts
    /// nothing.
    ///
    /// # Errors
    /// The transport that the user chose is not installed.
    fn describe_transport(&self, agent: &Path, host: &dyn Host) -> Result<String>;
}
