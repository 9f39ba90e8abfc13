//! The base of the test suites: a private world for each test, the leak check at its end, timeouts everywhere.
//!
//! A test starts processes through a [`World`] and follows them through a [`Run`]. At the end of the world the leak
//! check fails with a list of all remains. No test sleeps to synchronise: it waits for events, with a timeout.
//!
//! ```no_run
//! use std::time::Duration;
//! use gantry_tests::{World, within};
//!
//! within(Duration::from_secs(30), || {
//!     let world = World::new();
//!     let mut run = world.gantry(["launch", "--hold", "--json", "--", "-n", "4", "/bin/true"]);
//!     let held = run.next_event("held", Duration::from_secs(10));
//!     assert_eq!(held["ranks"].as_array().map(Vec::len), Some(4));
//!     drop(run);      // kills the tool
//!     world.finish(); // and nothing may be left
//! });
//! ```
#![expect(
    clippy::disallowed_methods,
    reason = "a test is the user: it starts foreign programs, reads the environment and, in one function, polls"
)]

pub mod bare;
mod binaries;
pub mod capi;
pub mod co_allocated;
pub mod documents;
pub mod driven;
mod executable;
pub mod fault;
pub mod fault_run;
pub mod fds;
pub mod flux;
pub mod hostile_frontend;
pub mod hung;
pub mod launchers;
mod leak;
pub mod loader;
pub mod managers;
pub mod mpi;
mod lookout;
pub mod measured;
mod other_root;
pub mod outside;
pub mod pbs;
mod places;
mod preparing;
pub mod proc;
pub mod programs;
pub mod pythons;
pub mod rendezvous;
mod run;
pub mod schedule;
mod site;
mod site_beds;
mod site_others;
mod site_output;
mod skip;
pub mod slurm;
pub mod ssh;
pub mod states;
pub mod submit;
mod sys;
mod terminal;
pub mod testbed;
pub mod watched;
mod within;
pub mod wheels;
mod world;

pub use binaries::{Binaries, binaries, target_dir};
pub use executable::{copy_program, write_executable};
pub use leak::Leaks;
pub use other_root::OtherRoot;
pub use proc::{SOON, becomes_true, eventually};
pub use run::{Finished, Run};
pub use site::{
    Site, daemon_pids, on_every_wlm, on_every_wlm_but, on_processes, on_this_machine, path_on, pids,
};
pub use site_beds::is_on_beds;
pub use site_others::Others;
pub use site_output::pids_of_first_node;
pub use skip::{record_skip, tool};
pub use sys::{ClosedStdio, Lease, fork_idle, ignore_children};
pub use terminal::{Terminal, Vt};
pub use within::within;
pub use world::{World, in_a_world};

/// The programs in the documents compile.
#[cfg(doctest)]
#[doc = include_str!("../../docs/src/tools/rust.md")]
#[doc = include_str!("../../docs/src/tools/channel.md")]
#[doc = include_str!("../../docs/src/internals/porting.md")]
#[derive(Debug)]
pub struct Documents;
