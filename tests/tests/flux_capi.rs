//! The C library on a real Flux: its table, a job that is launched held, a job that runs already, and what tools rely on
//! on every node.

use std::ffi::{OsStr, OsString};

use gantry_tests::capi::{prefix, program};
use gantry_tests::flux::{last_job, on_flux};
use gantry_tests::slurm::Cluster;
use gantry_tests::{SOON, eventually, testbed};

/// Runs a test of a C suite on the login node.
#[track_caller]
fn run(cluster: &Cluster, suite: &str, test: &str, args: &[OsString]) {
    let words = [OsStr::new(test).to_owned()].into_iter().chain(args.iter().cloned());
    let variables = [("CTI_INSTALL_DIR", prefix().to_str().expect("a path"))];
    let done = cluster.run(program(suite, "fe", &[]), words, &variables).wait(3 * SOON);
    assert_eq!(done.code(), 0, "{}\n{}", done.stdout.join("\n"), done.stderr.join("\n"));
    assert!(done.stdout.iter().any(|line| *line == format!("ok {test}")), "{done:?}");
}

/// The daemon that looks at its ranks.
fn view() -> OsString {
    program("view", "be", &[]).into_os_string()
}

#[test]
fn a_job_is_launched_held_served_and_released() {
    on_flux(2, |cluster| run(cluster, "flux", "launches", &[view()]));
}

#[test]
fn input_output_variables_and_directory_are_as_requested() {
    on_flux(1, |cluster| run(cluster, "flux", "surrounds", &[]));
}

#[test]
fn a_job_that_runs_already_is_attached_to_by_the_table_of_flux() {
    on_flux(2, |cluster| {
        let mut launcher = cluster.run("flux", ["run", "-N2", "-n4", "/bin/sleep", "1003"], &[]);
        eventually(SOON, "ranks", || cluster.find("/bin/sleep 1003").len() == 4);
        let pid = testbed::program(launcher.pid()).expect("flux run");
        let number = cluster.bed.login().user_processes();
        let number = number.iter().find(|process| process.pid == pid).expect("flux run").number;
        let before = format!("{:?}", cluster.find("/bin/sleep 1003"));
        let job = last_job(cluster);
        run(cluster, "flux", "attaches", &[view(), job.clone().into(), number.to_string().into()]);
        assert_eq!(format!("{:?}", cluster.find("/bin/sleep 1003")), before, "left as found");
        cluster.said("flux", ["cancel", &job]);
        launcher.exited(SOON);
    });
}

/// Runs a test of the suite `everywhere.c` with two ranks on each of these nodes.
fn run_everywhere(test: &'static str, nodes: u16) {
    on_flux(nodes, move |cluster| {
        let args = [nodes.to_string(), format!("-N{nodes}"), format!("-n{}", 2 * nodes)];
        run(cluster, "everywhere", test, &args.map(OsString::from));
    });
}

#[test]
fn directories_of_a_session_are_where_the_tool_says_on_every_node() {
    run_everywhere("paths", 4);
}

#[test]
fn a_killed_app_takes_along_its_ranks_children() {
    run_everywhere("children", 2);
}

#[test]
fn a_preloaded_library_is_in_every_rank() {
    run_everywhere("preload", 2);
}

#[test]
fn a_stop_comes_before_the_signal_that_is_sent_next() {
    run_everywhere("stops", 2);
}
