//! Launches that wait in the queue of a real Slurm. gantry reports the reason, and the time in the queue does not
//! count towards the launch timeout.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use gantry_tests::slurm::{Cluster, error_of, on_cluster};
use gantry_tests::submit::write_script;
use gantry_tests::testbed::{Config, program};
use gantry_tests::{Run, SOON, becomes_true, binaries, proc, target_dir};
use nix::sys::signal::Signal;

/// The launch timeout, which is shorter than the time in the queue.
const TIMEOUT: Duration = Duration::from_secs(6);

/// Starts a launch whose job waits until `scontrol release`.
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
            // Slurm's reason comes after srun's own message.
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

/// srun gives its job back when it gets SIGTERM.
#[test]
fn a_launcher_need_not_wait_for_a_slow_cancellation() {
    on_cluster(Config::with_nodes(2), |cluster| {
        let folder = target_dir().join("test-programs").join(format!("scancel-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).expect("permissions");
        let scancel = folder.join("scancel");
        write_script(&scancel, "mkfifo \"$0.gate\"; read -r _ <\"$0.gate\"; exec /usr/bin/scancel \"$@\"");
        let path = format!("{}:/usr/bin:/bin", folder.display());
        let launch = ["launch", "--json", "--wlm=slurm", "--", "--hold", "-N2", "-n2", "/bin/echo"];
        let mut run = cluster.run(&binaries().gantry, launch, &[("PATH", &path)]);
        run.next_event("waiting", SOON);
        proc::send(program(run.pid()).expect("the tool"), Signal::SIGKILL);
        run.exited(SOON);
        proc::wait_file(&scancel.with_extension("gate"), SOON);
        assert!(becomes_true(SOON, || jobs(cluster).is_empty()), "{}", jobs(cluster));
        fs::write(scancel.with_extension("gate"), "\n").expect("a reader");
    });
}

#[test]
fn a_job_in_the_queue_is_known_without_a_word_of_srun() {
    on_cluster(Config::with_nodes(2), |cluster| {
        let mut run =
            cluster.launch(&["--hold", "--timeout", "6", "--", "--quiet", "--hold", "-n1", "/bin/echo"]);
        let begun = Instant::now();
        let waiting = run.next_event("waiting", SOON);
        assert!(waiting["message"].to_string().contains("PENDING (JobHeldUser)"), "{waiting}");
        let ended = becomes_true(SOON, || begun.elapsed() > TIMEOUT + Duration::from_secs(1));
        assert!(ended && program(run.pid()).is_some(), "{:?}", run.wait(SOON));
        cluster.said("scontrol", ["release", waiting["job"].as_str().expect("a job")]);
        let held = run.next_event("held", SOON);
        cluster.ask(&["release", held["app"].as_str().expect("an id")]);
        assert_eq!(run.wait(SOON).code(), 0);
        cluster.bed.wait_idle(2 * SOON).expect("idle");
    });
}

/// srun reports this after a minute, and with `--quiet` never.
#[test]
fn a_step_that_has_no_room_in_its_job_is_known_to_wait_without_a_word_of_srun() {
    on_cluster(Config::with_nodes(2), |cluster| {
        let gantry = binaries().gantry.display().to_string();
        let there = "until squeue --me --steps --noheader --format=%i | grep -q '\\.0$'; do sleep 0.2; done";
        let script = format!("srun --quiet -n1 sleep 1004 & {there}; exec \"$@\"");
        let launch = [
            &gantry,
            "launch",
            "--json",
            "--hold",
            "--timeout",
            "10",
            "--cwd",
            "/",
            "--",
            "--quiet",
            "-n1",
            "/bin/echo",
        ];
        let job = ["--quiet", "-N1", "-n1", "/bin/sh", "-c", &script, "sh"];
        let mut run = cluster.run("salloc", job.iter().chain(&launch), &[]);
        let waiting = run.next_event("waiting", SOON);
        assert!(waiting["message"].to_string().contains("no room for the step"), "{waiting}");
        let begun = Instant::now();
        let ended = becomes_true(SOON, || begun.elapsed() > Duration::from_secs(11));
        assert!(ended && program(run.pid()).is_some(), "{:?}", run.wait(SOON));
        let job = waiting["job"].as_str().expect("a job");
        cluster.said("scancel", [&format!("{job}.0")]);
        let held = run.next_event("held", SOON);
        cluster.ask(&["release", held["app"].as_str().expect("an id")]);
        assert_eq!(run.wait(SOON).code(), 0);
        cluster.bed.wait_idle(2 * SOON).expect("idle");
    });
}
