//! Beds with two workload managers: a real Slurm on their first nodes, a real PBS or a real Flux on the others.

use crate::flux::jobs as jobs_of_flux;
use crate::pbs::{jobs, on_bed};
use crate::slurm::Cluster;
use crate::testbed::{Config, flux, pbs};

/// Runs a test on a bed with two nodes of Slurm and two of PBS, and sshd on all. At its end no host may have remains,
/// and neither WLM a job. Counts a skip if PBS is not installed.
///
/// # Panics
/// As `body` does; or there are remains.
#[track_caller]
pub fn on_slurm_and_pbs(body: impl FnOnce(&mut Cluster) + Send + 'static) {
    let queued = |cluster: &Cluster| cluster.said("squeue", ["--noheader"]) + &jobs(&cluster.bed);
    let config = pbs::installation();
    let config = config.map(|it| Config::with_nodes(4).managed_by_pbs(it).but_the_first_by_slurm(2));
    on_bed(config, queued, body);
}

/// As [`on_slurm_and_pbs`], with Flux in the place of PBS.
///
/// # Panics
/// As there.
#[track_caller]
pub fn on_slurm_and_flux(body: impl FnOnce(&mut Cluster) + Send + 'static) {
    let queued = |cluster: &Cluster| cluster.said("squeue", ["--noheader"]) + &jobs_of_flux(cluster);
    on_bed(flux::installation().map(|it| Config::with_nodes(2).and_by_flux(it, 2)), queued, body);
}
