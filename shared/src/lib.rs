//! The vocabulary that gantry's frontend and backend share.
//!
//! Both sides must mean the same thing by a rank, a node, a status or an error, on the wire too, so each
//! such thing is one type, here. Nothing in this crate starts a process or knows a workload manager.
//! The modules stand in reading order.

pub mod id;
pub mod rank_set;
pub mod host_set;
pub mod host_name;
pub mod placement;
pub mod status;
pub mod signal;
pub mod storage;
pub mod mark;
pub mod elf;
pub mod build_id;
pub mod file_state;
pub mod trust;
pub mod search;
pub mod error;
pub mod foreign;
pub mod filter;
pub mod secret;
pub mod rendezvous;
pub mod cti;
pub mod wire;
