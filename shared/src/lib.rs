//! Code that gantry's own parts share: messages, secrets, and handling of files on a node. This crate is private to
//! gantry.
//!
//! The vocabulary of the public libraries is in `gantry-types`. Nothing in this crate starts a process or knows a
//! workload manager.
//! The modules stand in reading order.

pub mod signals;
pub mod deadline;
pub mod per_process;
pub mod storage;
pub mod ptrace;
pub mod environ;
pub mod mark;
pub mod elf;
pub mod build_id;
pub mod file_state;
pub mod trust;
pub mod search;
pub mod glob;
pub mod secret;
pub mod rendezvous;
pub mod cti;
pub mod foreign_mpi;
pub mod wire;
