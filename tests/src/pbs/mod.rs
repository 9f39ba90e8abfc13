//! The task management of PBS under test. One suite ([`cases`]) runs as the script of a job, with any mom: a
//! [stand-in](mom), which runs everywhere, or the real one on a [bed](crate::testbed).

pub mod cases;
mod cluster;
mod job;
pub mod mom;
mod stand_in;
pub mod task;

pub(crate) use cluster::on_bed;
pub use cluster::{STARTS, Script, ask_there, jobs, on_pbs, on_pbs_together, on_pbs_with, said_by};
pub use job::{said, submit};
pub use stand_in::{Job, StandIn};
