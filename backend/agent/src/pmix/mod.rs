//! A server of PMIx: it makes ranks of Open MPI one MPI world.
//!
//! PMIx has no protocol of its own that others could speak: both sides are its library, and versions differ. So gantry
//! loads the library that the program's own MPI uses, or the node's. It is never linked with it. The library starts
//! threads and keeps state for the whole process. So it runs in a process of its own, `gantry-agent pmix serve`, which
//! the agent starts for its ranks. If that process crashes, the world ends with a reason, and the agent goes on.
//!
//! | module | contents |
//! | --- | --- |
//! | `message` | the messages between the agent and that process, over a socket pair |
//! | `start` | the agent's side: starts the process, and keeps its directory |
//! | `serve` | the process itself |
//! | `facts` | what the library is told about the job; pure |
//! | `sys` | the library's functions and structures |
//!
//! The library answers its ranks itself. It asks the agent for what concerns other nodes, and tells how ranks come and
//! go. The agent treats these like messages of PMI ([`pmi`](crate::pmi)).

mod message;
mod facts;
mod sys;
mod serve;
mod start;

pub(crate) use self::message::{FromServer, build_answer, take_message};
pub(crate) use self::serve::serve;
pub(crate) use self::start::{Job, Started, build_variables, is_foreign, start};
