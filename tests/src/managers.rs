//! A bed that has two managers at once: a real Slurm on its first nodes, a real PBS on the others.

use crate::pbs::jobs;
use crate::slurm::Cluster;
use crate::testbed::pbs::installation;
use crate::testbed::{Config, shared, usable};
use crate::{SOON, World, becomes_true, record_skip, within};
use std::time::Duration;

/// For a whole test, a new bed included.
const LIMIT: Duration = Duration::from_secs(300);

/// Runs a test on a bed of two nodes of Slurm's and two of PBS's, with sshd on all; at its end nothing may be left on any host, and no job of either. Counts a
/// skip where PBS is not installed.
///
/// # Panics
/// As `body` does; and when something is left.
#[track_caller]
pub fn on_slurm_and_pbs(body: impl FnOnce(&mut Cluster) + Send + 'static) {
    let config = installation().map(|it| Config::with_nodes(4).managed_by_pbs(it).but_the_first_by_slurm(2));
    let config = match config.and_then(|config| usable(&config).map(|()| config)) {
        Ok(config) => config,
        Err(why) => return record_skip(&why),
    };
    within(LIMIT, move || {
        let bed = shared(&config);
        bed.wait_idle(2 * SOON).expect("idle nodes");
        let mut cluster = Cluster { world: World::new(), bed, variables: Vec::new() };
        body(&mut cluster);
        let queued = || cluster.said("squeue", ["--noheader"]) + &jobs(&cluster.bed);
        let ended = becomes_true(2 * SOON, || queued().is_empty());
        assert!(ended, "jobs are left: {}", queued());
        let Cluster { world, bed, .. } = cluster;
        world.finish();
        bed.assert_nothing_left(SOON);
    });
}
