//! The vocabulary of gantry's public libraries: both re-export it as `types`.
//!
//! Frontend and backend must agree on the meaning of a rank, a node, a status or an error, on the wire, too. So each
//! of these is one type, here.
//!
//! | module | content |
//! | --- | --- |
//! | [`id`] | numbers and names of apps, ranks, nodes, sessions, daemons, processes |
//! | [`rank_set`] | sets of ranks and of nodes, as `0-3,8` |
//! | [`host_set`], [`host_name`] | lists of hosts, as `n[1-3],n7`; the name of one |
//! | [`placement`] | which rank is on which host, and its process |
//! | [`status`], [`signal`] | how a process ended, and the state of a rank; signals |
//! | [`launch`] | hosts, hold method and agent of a launch |
//! | [`output`] | standard output and error, and the destination of a daemon's |
//! | [`error`] | a failure in a form for the wire: kind, message, hint |
//! | [`foreign`] | foreign text, which is printed escaped only |
//! | [`session_dirs`] | the directories of a session on a node |
//! | [`rendezvous`] | data that ranks exchange, and the names of rendezvous |
//! | [`runtime`] | processes of a co-allocated job, as messages address them |
//! | [`filter`] | filters that merge daemons' contributions |

pub mod id;
pub mod rank_set;
pub mod host_set;
pub mod host_name;
pub mod placement;
pub mod status;
pub mod signal;
pub mod error;
pub mod foreign;
pub mod launch;
pub mod output;
pub mod session_dirs;
pub mod rendezvous;
pub mod runtime;
pub mod filter;
