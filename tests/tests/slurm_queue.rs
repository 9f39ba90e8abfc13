//! Launches that have to wait in the queue of a real Slurm: what they wait for is told, and that time is not the launch's.

use std::time::{Duration, Instant};

use gantry_tests::slurm::{Cluster, error_of, on_cluster};
use gantry_tests::testbed::Config;
use gantry_tests::{Run, SOON, becomes_true};

/// The timeout of launches that wait longer than that.
const TIMEOUT: Duration = Duration::from_secs(6);

/// Begins a launch whose job waits until `scontrol release`.
fn queued(cluster: &Cluster, options: &[&str]) -> Run {
    cluster.launch(&[options, &["--", "--hold", "-N2", "-n2", "/bin/echo", "here"]].concat())
}

fn jobs(cluster: &Cluster) -> String {
    cluster.said("squeue", ["--me", "--noheader", "--format=%j %T"])
}

#[test]
fn a_launch_in_the_queue_waits_longer_than_its_timeout() {
    on_cluster(Config::with_nodes(2), move |cluster| {
        let begun = Instant::now();
        let launch = |method| {
            let mut run = queued(cluster, &["--hold", "--hold-method", method, "--timeout", "6"]);
            let submitted = run.next_event("submitted", SOON);
            let job = submitted["job"].as_str().expect("a job").to_owned();
            assert_eq!(run.next_event("waiting", SOON)["job"], job.as_str());
            // The reason that Slurm gives follows srun's own words.
            let told = run.next_event("waiting", SOON)["message"].to_string();
            assert!(told.contains("PENDING (JobHeldUser)"), "{told}");
            (run, job)
        };
        let runs = ["exec", "mpir"].map(launch);
        assert_eq!(jobs(cluster), "echo PENDING\necho PENDING\n", "jobs have their program's name");
        assert!(becomes_true(2 * TIMEOUT, || begun.elapsed() > TIMEOUT + Duration::from_secs(1)));
        for (mut run, job) in runs {
            cluster.said("scontrol", ["release", &job]);
            let held = run.next_event("held", SOON);
            cluster.assert_held("/bin/echo here", 2);
            cluster.ask(&["release", held["app"].as_str().expect("an id")]);
            let done = run.wait(SOON);
            assert_eq!(done.code(), 0, "{done:?}");
        }
        cluster.bed.wait_idle(2 * SOON).expect("idle");
    });
}

#[test]
fn a_launch_that_is_too_long_in_the_queue_is_cancelled() {
    on_cluster(Config::with_nodes(2), |cluster| {
        for method in ["exec", "mpir"] {
            let done =
                queued(cluster, &["--hold", "--hold-method", method, "--queue-timeout", "1"]).wait(SOON);
            let error = error_of(&done);
            assert_eq!(error["kind"], "timed-out", "{error}");
            assert!(error.to_string().contains("waiting in the queue"), "{error}");
            assert!(becomes_true(SOON, || jobs(cluster).is_empty()), "{}", jobs(cluster));
        }
    });
}
