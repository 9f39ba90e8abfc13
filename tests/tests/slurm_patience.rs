//! Apps held for longer than Slurm has patience with a launcher that does not answer: an srun whose ranks are held answers.

use std::time::Duration;

use gantry_tests::slurm::{Cluster, on_cluster};
use gantry_tests::testbed::Config;
use gantry_tests::{SOON, becomes_true, proc};
use nix::sys::signal::Signal;

/// Slurm looks at its limits every half minute.
const LIMIT: Duration = Duration::from_secs(100);

fn jobs(cluster: &Cluster) -> String {
    cluster.said("squeue", ["--me", "--noheader", "--states=RUNNING", "--format=%j"])
}

#[test]
fn apps_stay_held_while_slurm_ends_a_job_whose_srun_does_not_answer() {
    // The lowest limit there is, and little time to answer.
    let config = Config::with_nodes(2).slurm("InactiveLimit", "1").slurm("MessageTimeout", "5");
    on_cluster(config, |cluster| {
        let silent = cluster.run("srun", ["--job-name=silent", "-n1", "sleep", "800"], &[]);
        assert!(becomes_true(SOON, || cluster.find("sleep 800").len() == 1));
        let by = |method: &'static str, line: &'static str| {
            let name = format!("--job-name={method}");
            let method = format!("--hold-method={method}");
            cluster.held(&[&method, "--", &name, "-N2", "-n2", "/bin/echo", line])
        };
        let mut held = [by("exec", "one"), by("mpir", "two")];
        // Both processes of it, so that nobody is there to answer.
        let sruns = cluster.bed.login().user_processes();
        let sruns: Vec<i32> =
            sruns.iter().filter(|it| it.line.ends_with("sleep 800")).map(|it| it.pid).collect();
        sruns.iter().for_each(|pid| proc::send(*pid, Signal::SIGSTOP));
        let ended = becomes_true(LIMIT, || !jobs(cluster).contains("silent"));
        sruns.iter().for_each(|pid| proc::send(*pid, Signal::SIGKILL));
        assert!(ended, "Slurm ends what does not answer: {}", cluster.bed.last_log_lines());
        drop(silent);
        let running = jobs(cluster);
        assert!(running.contains("exec") && running.contains("mpir"), "{running}");
        cluster.assert_held("echo one", 2);
        cluster.assert_held("echo two", 2);
        for (run, app) in &mut held {
            cluster.ask(&["release", app]);
            assert_eq!(run.wait(SOON).code(), 0);
        }
        cluster.bed.wait_idle(2 * SOON).expect("idle");
    });
}
