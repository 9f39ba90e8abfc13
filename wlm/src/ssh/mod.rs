//! Hosts reached by ssh: the user names them, agents are started over ssh and start the ranks.
//!
//! | module | what is there |
//! | --- | --- |
//! | `hosts`, `command` | lists and files of hosts, the options of a launch, which rank goes where; all pure |
//! | `detect`, `wanted` | when a launch is meant for ssh; jobs that are described by what they need |
//! | `script` | what is run on a host to have the agent there, and what it says; pure |
//! | `openssh` | the client's arguments, and what its words mean; pure |
//! | `connection` | a host that a command runs on, as a stream of bytes |
//! | `bring`, `fan_out` | one host's agent; all of them |
//! | `wlm` | [`Ssh`], which acts |

mod hosts;
mod command;
mod detect;
mod script;
mod wanted;
mod openssh;
mod connection;
mod bring;
mod fan_out;
mod wlm;

pub use wlm::Ssh;
