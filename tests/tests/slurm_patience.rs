//! Apps held longer than Slurm waits for a launcher that does not answer. The srun of held ranks still answers.

use std::time::{Duration, Instant};

use gantry_tests::slurm::{Cluster, on_cluster_for};
use gantry_tests::testbed::Config;
use gantry_tests::{SOON, becomes_true, proc};
use nix::sys::signal::Signal;

/// Slurm checks its limits every half minute.
const LIMIT: Duration = Duration::from_secs(100);

/// The shortest time for which apps are held. Manual runs can set it in seconds.
#[expect(clippy::disallowed_methods, reason = "a longer run is requested in the environment")]
fn asked_for() -> Duration {
    let seconds = std::env::var("GANTRY_HOLD_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(0))
}

fn jobs(cluster: &Cluster) -> String {
    cluster.said("squeue", ["--me", "--noheader", "--states=RUNNING", "--format=%j"])
}

#[test]
fn apps_stay_held_while_slurm_ends_a_job_whose_srun_does_not_answer() {
    // The lowest possible limit, and a short timeout for answers.
    let config = Config::with_nodes(2).slurm("InactiveLimit", "1").slurm("MessageTimeout", "5");
    on_cluster_for(LIMIT * 3 + asked_for(), config, |cluster| {
        let silent = cluster.run("srun", ["--job-name=silent", "-n1", "sleep", "800"], &[]);
        assert!(becomes_true(SOON, || cluster.find("sleep 800").len() == 1));
        let by = |method: &'static str, line: &'static str| {
            let name = format!("--job-name={method}");
            let method = format!("--hold-method={method}");
            cluster.held(&[&method, "--", &name, "-N2", "-n2", "/bin/echo", line])
        };
        let mut held = [by("exec", "one"), by("mpir", "two"), by("mpir-stop", "three")];
        let since = Instant::now();
        // Stops both processes of srun, so that neither can answer.
        let sruns = cluster.bed.login().user_processes();
        let sruns: Vec<i32> =
            sruns.iter().filter(|it| it.line.ends_with("sleep 800")).map(|it| it.pid).collect();
        sruns.iter().for_each(|pid| proc::send(*pid, Signal::SIGSTOP));
        let ended = becomes_true(LIMIT, || !jobs(cluster).contains("silent"));
        proc::send_those_left(sruns, Signal::SIGKILL);
        assert!(ended, "Slurm ends what does not answer: {}", cluster.bed.last_log_lines());
        drop(silent);
        let expected =
            |running: &str| ["exec", "mpir", "mpir-stop"].iter().all(|name| running.contains(name));
        let lost = becomes_true(asked_for().saturating_sub(since.elapsed()), || !expected(&jobs(cluster)));
        let running = jobs(cluster);
        assert!(!lost && expected(&running), "{running}");
        ["echo one", "echo two", "echo three"].iter().for_each(|line| cluster.assert_held(line, 2));
        for (run, app) in &mut held {
            cluster.ask(&["release", app]);
            assert_eq!(run.wait(SOON).code(), 0);
        }
        cluster.bed.wait_idle(2 * SOON).expect("idle");
    });
}
