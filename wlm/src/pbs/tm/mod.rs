//! A client of PBS's task management interface (tm(3)), which starts processes of a job on its other hosts.
//!
//! A process of a job sends requests to the mom of its own host, over TCP on loopback. That mom forwards requests for
//! other hosts. The job's cookie is the only credential.
//!
//! | module | what is there |
//! | --- | --- |
//! | [`dis`], [`packet`] | numbers and strings as bytes; the framing of messages |
//! | [`request`], [`reply`], `id`, `code` | requests and answers, as types and as bytes |
//! | [`engine`] | one connection's requests and replies, without the connection |
//! | [`environment`] | a process's data about its job |
//! | `nodes` | the hosts of nodes |
//! | [`client`], `connection` | [`Client`], for concurrent programs; its task for reading and writing |
//! | [`blocking`] | [`Session`](blocking::Session), for blocking programs: the C functions use it |
//!
//! Three properties of moms shape it. They disconnect without a message at invalid requests, so everything is checked
//! before it is sent. They read a packet with one read, and lose it if a part is still in transit, so packets are
//! small, written at once and few. And the death of a mom is not reported, so everything has a deadline except
//! waiting for a task's end.

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
