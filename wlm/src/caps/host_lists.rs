//! Workload managers whose hosts the user names.

use std::ffi::OsString;
use std::fmt;
use std::path::Path;

use crate::error::Result;
use crate::host::Host;

/// A workload manager whose hosts the user names. It can go on without hosts that it could not reach:
/// [`AgentCommand::policy`](crate::AgentCommand::policy) says how many it needs.
pub trait HostLists: Send + Sync + fmt::Debug {
    /// The option among `args` that names hosts for this WLM. Such a launch goes to this WLM, whatever else is on the machine.
    fn find_host_option(&self, args: &[OsString]) -> Option<String>;

    /// Reads options that say how to reach hosts, for [`Wlm::adopt`](crate::Wlm::adopt) and [`Wlm::start_agents`](crate::Wlm::start_agents).
    /// No options: the defaults. Pure.
    ///
    /// # Errors
    /// Names an option that it does not have.
    fn read_reach_args(&self, args: &[OsString]) -> Result<Vec<String>>;

    /// Describes the transport to the hosts, for `gantry doctor`. `agent` is the agent's path on this machine. Starts nothing.
    ///
    /// # Errors
    /// The transport that the user chose is not installed.
    fn describe_transport(&self, agent: &Path, host: &dyn Host) -> Result<String>;
}
