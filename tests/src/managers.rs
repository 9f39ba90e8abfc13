//! A bed that has two managers at once: a real Slurm on its first nodes, a real PBS on the others.

use crate::pbs::{jobs, on_bed};
use crate::slurm::Cluster;
use crate::testbed::Config;
use crate::testbed::pbs::installation;

/// Runs a test on a bed of two nodes of Slurm's and two of PBS's, with sshd on all; at its end nothing may be left on any host, and no job of either. Counts a
/// skip where PBS is not installed.
///
/// # Panics
/// As `body` does; and when something is left.
#[track_caller]
pub fn on_slurm_and_pbs(body: impl FnOnce(&mut Cluster) + Send + 'static) {
    let queued = |cluster: &Cluster| cluster.said("squeue", ["--noheader"]) + &jobs(&cluster.bed);
    let config = installation().map(|it| Config::with_nodes(4).managed_by_pbs(it).but_the_first_by_slurm(2));
    on_bed(config, queued, body);
}
