//! A client of the task management interface of PBS (tm(3)), which is how processes of a job are started on its other hosts.
//!
//! A process of a job asks the mom of its own host, over TCP on loopback; that mom passes on what is for other hosts. All that a mom wants to know is
//! the job's cookie.
//!
//! | module | what is there |
//! | --- | --- |
//! | [`dis`], [`packet`] | numbers and strings as bytes; how messages are kept apart |
//! | [`request`], [`reply`], `id`, `code` | what is asked and answered, as types and as bytes |
//! | [`engine`] | one connection's requests and replies, without the connection |
//! | [`environment`] | what a process has to know of its job |
//! | `nodes` | which node is where |
//! | [`client`], `connection` | [`Client`], for programs with many things to do at a time; who writes and reads for it |
//! | [`blocking`] | [`Session`](blocking::Session), for programs that wait: the functions of C stand on it |
//!
//! Three habits of moms shape it. What they do not like they hang up on without a word, so everything is checked before it is sent. They read a
//! packet with one read and lose it when a part is still on its way, so packets are small, written at once and few. And about a mom
//! that has died nobody is told, so all but the wait for a task's end has a deadline.

pub mod blocking;
pub mod client;
mod code;
mod connection;
pub mod dis;
pub mod engine;
pub mod environment;
mod error;
mod id;
mod nodes;
pub mod packet;
pub mod reply;
pub mod request;

pub use client::{Client, Spawn, Task};
pub use code::Code;
pub use environment::Environment;
pub use error::{Loss, TmError};
pub use id::{EventId, NodeId, TaskId};
pub use nodes::{Node, Nodes};
pub use packet::Framing;
pub use request::{Caller, Command, Cookie, Verb};

#[cfg(test)]
mod recorded;
