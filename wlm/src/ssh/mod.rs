//! Hosts reached by ssh: the user names them, agents are started over ssh and start the ranks.
//!
//! | module | what is there |
//! | --- | --- |
//! | `hosts`, `command` | lists and files of hosts, the options of a launch, which rank goes where; all pure |
//! | `wanted` | jobs that are described by what they need |
//! | `script` | what is run on a host to have the agent there, and what it says; pure |
//! | `call`, `client` | what a client of ssh is told; which one it is |
//! | `openssh` | the OpenSSH client's arguments, and what its words mean; pure |
//! | `libssh2` | no module: the program `gantry-ssh`, another client with the same words |
//! | `connection` | a host that a command runs on, as a stream of bytes |
//! | `bring`, `fan_out` | one host's agent; all of them |
//! | `attach` | launchers that run on a host already |
//! | `remote` | a command on a host, for WLMs that have none of their own for that |
//! | `wlm` | `Ssh`, which acts |

mod hosts;
mod command;
mod script;
mod call;
mod wanted;
mod openssh;
mod client;
mod connection;
mod bring;
mod fan_out;
mod agent_file;
mod attach;
pub(crate) mod remote;
mod wlm;

pub use call::Call;
pub use openssh::{TAKEOVER, build_args as build_openssh_args};
pub(crate) use wlm::Ssh;
