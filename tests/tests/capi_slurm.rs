//! The C library on a real Slurm: hold, hosts, session, manifest, daemon, release, and attaching to a running step.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use gantry_tests::capi::{prefix, program};
use gantry_tests::slurm::on_cluster;
use gantry_tests::testbed::{self, Config};
use gantry_tests::{SOON, becomes_true, proc};
use nix::sys::signal::Signal;

/// Runs a test of the suite `slurm.c` on the login node.
fn run(test: &'static str, args: &'static [&'static str]) {
    run_on(Config::with_nodes(2), test, args);
}

/// Like [`run`], on a testbed with this configuration.
fn run_on(config: Config, test: &'static str, args: &'static [&'static str]) {
    on_cluster(config, move |cluster| {
        let suite = program("slurm", "fe", &[]);
        let view = program("view", "be", &[]);
        let step = match test {
            "attaches" => Some(cluster.run("srun", ["-N2", "--ntasks-per-node=2", "sleep", "1000"], &[])),
            _ => None,
        };
        let job = step.as_ref().map(|_| {
            let there = becomes_true(SOON, || cluster.find("sleep 1000").len() == 4);
            assert!(there, "{}", cluster.bed.last_log_lines());
            let job = cluster.said("squeue", ["--me", "--noheader", "--format=%i"]);
            job.lines().next().expect("a job").trim().to_owned()
        });
        let words = [OsStr::new(test), view.as_os_str()].into_iter().map(OsStr::to_owned);
        let words = words.chain(job.iter().map(Into::into)).chain(args.iter().map(Into::into));
        let install = prefix().to_str().expect("a path");
        let done = cluster.run(&suite, words, &[("CTI_INSTALL_DIR", install)]).wait(SOON * 3);
        assert_eq!(done.code(), 0, "{}\n{}", done.stdout.join("\n"), done.stderr.join("\n"));
        assert!(done.stdout.iter().any(|line| *line == format!("ok {test}")), "{done:?}");
        if let (Some(mut step), Some(job)) = (step, job) {
            assert_eq!(cluster.find("sleep 1000").len(), 4, "the step is as it was found");
            cluster.said("scancel", [job.as_str()]);
            step.exited(SOON);
        }
    });
}

#[test]
fn a_step_is_launched_held_served_and_released() {
    run("launches", &[]);
}

#[test]
fn a_step_on_nodes_that_do_not_have_gantry_is_launched_held_served_and_released() {
    run_on(Config::with_nodes(2).without_gantry(), "launches", &[]);
}

#[test]
fn a_step_that_runs_already_is_attached_to_by_the_table_of_slurm() {
    run("attaches", &[]);
}

/// A directory for one test that every host can access.
fn shared_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir_in(gantry_tests::target_dir()).expect("a folder");
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).expect("permissions");
    folder
}

#[test]
fn a_batch_script_is_submitted_and_its_first_step_held() {
    let folder = shared_folder();
    run_in("submits", folder.path().to_str().expect("a path").to_owned());
}

#[test]
fn wrappers_of_srun_and_of_ranks_are_distinguished_from_them() {
    let folder = shared_folder();
    run_in("wraps", folder.path().to_str().expect("a path").to_owned());
}

#[test]
fn input_output_variables_and_directory_are_as_requested() {
    run("surrounds", &[]);
}

#[test]
fn a_launch_waits_in_the_queue_longer_than_its_deadline_and_has_a_limit_of_its_own_there() {
    on_cluster(Config::with_nodes(2), |cluster| {
        let mut blocker = cluster.run("srun", ["-N2", "sleep", "1003"], &[]);
        assert!(becomes_true(SOON, || cluster.find("sleep 1003").len() == 2));
        let job = cluster.said("squeue", ["--me", "--noheader", "--format=%A"]);
        let queued = |count| {
            let listed = || cluster.said("squeue", ["--me", "--noheader", "--states=PENDING", "--format=%A"]);
            becomes_true(SOON, || listed().lines().count() == count)
        };
        let install = prefix().to_str().expect("a path");
        let variables = [("CTI_INSTALL_DIR", install)];
        let mut tool = cluster.run(program("slurm", "fe", &[]), ["queues", "-", job.trim()], &variables);
        assert_eq!(tool.next_line(SOON), "again");
        let begun = Instant::now();
        assert!(queued(1), "{}", cluster.said("squeue", ["--me"]));
        // Longer than the timeout that the tool has set.
        let ended = becomes_true(Duration::from_secs(10), || begun.elapsed() > Duration::from_secs(9));
        assert!(ended && testbed::program(tool.pid()).is_some(), "{:?}", tool.wait(SOON));
        cluster.said("scancel", [job.trim()]);
        let done = tool.wait(2 * SOON);
        assert_eq!(done.code(), 0, "{}\n{}", done.stdout.join("\n"), done.stderr.join("\n"));
        blocker.exited(SOON);
        cluster.bed.wait_idle(2 * SOON).expect("idle");
    });
}

#[test]
fn signals_reach_a_step_that_is_registered_again_and_again() {
    run("signals", &[]);
}

#[test]
fn two_programs_every_kind_of_file_two_daemons_and_eight_threads() {
    let folder = shared_folder();
    run_in("stages", folder.path().to_str().expect("a path").to_owned());
}

#[test]
fn a_killed_c_tool_leaves_nothing_on_nodes() {
    on_cluster(Config::with_nodes(2), |cluster| {
        let install = prefix().to_str().expect("a path");
        let suite = program("app", "fe", &[]);
        let mut tool = cluster.run(suite, ["is_killed"], &[("CTI_INSTALL_DIR", install)]);
        tool.next_line(SOON * 2);
        proc::send(testbed::program(tool.pid()).expect("the tool"), Signal::SIGKILL);
        tool.exited(SOON);
        cluster.bed.wait_idle(2 * SOON).expect("idle");
    });
}

/// Like [`run`], with a directory as an argument.
fn run_in(test: &'static str, folder: String) {
    on_cluster(Config::with_nodes(2), move |cluster| {
        let suite = program("slurm", "fe", &[]);
        let view = program("view", "be", &[]);
        let words = [OsStr::new(test), view.as_os_str(), folder.as_ref()];
        let install = prefix().to_str().expect("a path");
        let done = cluster.run(&suite, words, &[("CTI_INSTALL_DIR", install)]).wait(SOON * 3);
        cluster.said("scancel", ["--me"]);
        assert_eq!(done.code(), 0, "{}\n{}", done.stdout.join("\n"), done.stderr.join("\n"));
        cluster.bed.wait_idle(2 * SOON).expect("idle");
    });
}

/// Runs a test of the suite `channel.c` on the login node, with daemons and ranks on the nodes.
fn speak(test: &'static str) {
    on_cluster(Config::with_nodes(4), move |cluster| {
        let (peer, meets) = (program("peer", "be", &["-pthread"]), program("meets", "be", &[]));
        let path = |path: &'static std::path::Path| path.to_str().expect("a path");
        let install = path(prefix());
        let (peer, meets) = (peer.display().to_string(), meets.display().to_string());
        let variables = [("CTI_INSTALL_DIR", install), ("PEER", peer.as_str()), ("MEETS", meets.as_str())];
        let done = cluster.run(program("channel", "fe", &[]), [test], &variables).wait(SOON * 3);
        assert_eq!(done.code(), 0, "{}\n{}", done.stdout.join("\n"), done.stderr.join("\n"));
    });
}

#[test]
fn a_tool_in_c_speaks_with_daemons_of_other_hosts() {
    speak("speaks");
}

#[test]
fn applications_of_a_multijob_in_c_find_each_other_on_other_hosts() {
    speak("puts_applications_together");
}
