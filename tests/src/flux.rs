//! The command line under test on a bed where Flux is, as the bed's ordinary user. The instance belongs to that user
//! only where flux-security is not installed.

use serde_json::Value;

use crate::pbs::on_bed;
use crate::slurm::Cluster;
use crate::testbed::Config;
use crate::testbed::flux::installation;

/// Runs a test on a bed of so many nodes that a real Flux manages; at its end nothing may be left on any host, and no job. Counts a skip where Flux is not installed.
///
/// # Panics
/// As `body` does; and when something is left.
#[track_caller]
pub fn on_flux(nodes: u16, body: impl FnOnce(&mut Cluster) + Send + 'static) {
    let config = installation().map(|installed| Config::with_nodes(0).and_by_flux(installed, nodes));
    on_bed(config, jobs, body);
}

/// The jobs that have not ended, as Flux lists them: a line for each.
#[must_use]
pub fn jobs(cluster: &Cluster) -> String {
    cluster.said("flux", ["job", "list"])
}

/// Stops or starts the queue, as the instance's owner.
///
/// # Panics
/// When Flux refuses that.
#[track_caller]
pub fn set_queue(cluster: &Cluster, verb: &str) {
    let mut command = cluster.bed.login().root_command("timeout").expect("the login node");
    let status = command.args(["40", "flux", "queue", verb, "--quiet"]).status().expect("flux queue");
    assert!(status.success(), "flux queue {verb}: {status}");
}

/// The name and the state of each of these jobs.
#[must_use]
pub fn states(cluster: &Cluster) -> String {
    cluster.said("flux", ["jobs", "--no-header", "--format={name} {state}"])
}

/// What gantry says of its only app: the job, and the host and pid of each rank.
///
/// # Panics
/// When there is none.
#[must_use]
#[track_caller]
pub fn app_of(cluster: &Cluster) -> (String, Vec<String>) {
    let said = cluster.ask(&["ps", "--json"]).stdout.concat();
    let apps: Value = serde_json::from_str(&said).expect("JSON");
    let ranks = apps[0]["ranks"].as_array().expect("ranks").iter();
    let places = ranks.map(|rank| format!("{}:{}", rank["host"].as_str().unwrap_or_default(), rank["pid"]));
    (apps[0]["job"].as_str().expect("a job").to_owned(), places.collect())
}

/// What Flux says of its last job.
///
/// # Panics
/// When there is none.
#[must_use]
#[track_caller]
pub fn last_job(cluster: &Cluster) -> String {
    let said = cluster.said("flux", ["job", "last"]);
    let job = said.trim();
    assert!(job.starts_with(['f', 'ƒ']), "no job: {said}");
    job.to_owned()
}
