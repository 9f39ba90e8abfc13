//! Hosts reached by ssh. The user names them. Agents are started over ssh and start the ranks.
//!
//! | module | what is there |
//! | --- | --- |
//! | `hosts`, `command` | lists and files of hosts, the options of a launch, the ranks of each host; all pure |
//! | `wanted` | jobs described by their requirements |
//! | `script` | the script that starts the agent on a host, and its messages; pure |
//! | `call`, `client` | the call of an ssh client; the choice of the client |
//! | `openssh` | the OpenSSH client's arguments and messages; pure |
//! | `libssh2` | no module: the program `gantry-ssh`, another client with the same messages |
//! | `connection` | a host with a running command, as a stream of bytes |
//! | `bring`, `fan_out` | one host's agent; all of them |
//! | `attach` | running launchers on a host |
//! | `remote` | a command on a host, for WLMs without a command of their own |
//! | `wlm` | `Ssh`, the implementation |

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
