//! The ranks' children under a real Slurm end with the app: children in the background, in other sessions, without
//! parents. They must not make anything hang or block a node.

use gantry_tests::slurm::{Cluster, on_cluster};
use gantry_tests::testbed::config::Proctrack;
use gantry_tests::testbed::{Config, Process, program};
use gantry_tests::{Run, SOON, binaries, eventually, proc, programs};
use nix::sys::signal::Signal;

const RANKS: [&str; 4] = ["--", "-N2", "-n4", "--ntasks-per-node=2"];
/// Four ranks, each with five children.
const ALL: usize = 4 * 6;

/// Slurm finds a step's leftovers by their parents, or by its cgroup.
fn beds() -> [Config; 2] {
    let cgroup = Config { proctrack: Proctrack::Cgroup, ..Config::with_nodes(2) };
    [Config::with_nodes(2), cgroup]
}

/// The launched program, which starts children.
fn strays() -> String {
    programs::get("strays").display().to_string()
}

/// All its processes on the nodes.
fn found(cluster: &Cluster) -> Vec<Process> {
    cluster.find(&strays()).into_iter().map(|(_, process)| process).collect()
}

/// Waits until this many processes run.
#[track_caller]
fn started(cluster: &Cluster, count: usize) {
    eventually(SOON, "ranks have started others", || found(cluster).len() == count);
}

/// Launches and waits until all processes run. Returns the run and the app's id.
fn launch(cluster: &Cluster) -> (Run, String) {
    let program = strays();
    let mut run = cluster.launch(&[&RANKS[..], &[&program]].concat());
    let app = run.next_event("started", SOON)["app"].as_str().expect("an id").to_owned();
    started(cluster, ALL);
    (run, app)
}

/// Runs an app that `end` ends. Nothing may be left of it.
fn nothing_stays(end: impl Fn(&Cluster, &str, &mut Run) + Clone + Send + 'static) {
    for bed in beds() {
        let end = end.clone();
        on_cluster(bed, move |cluster| {
            let (mut run, app) = launch(cluster);
            end(cluster, &app, &mut run);
            run.exited(SOON);
            drop(run);
            cluster.ask(&["ps", "--json"]);
            cluster.bed.assert_nothing_left(SOON);
            eventually(SOON, "no job is left", || cluster.said("squeue", ["--noheader"]).is_empty());
        });
    }
}

#[test]
fn a_kill_takes_all_that_ranks_have_started_and_does_not_hang() {
    nothing_stays(|cluster, app, run| {
        cluster.ask(&["kill", app, "-s", "KILL"]);
        assert_eq!(run.wait(SOON).code(), 137);
    });
}

#[test]
fn a_killed_tool_takes_all_that_ranks_have_started() {
    nothing_stays(|_, _, run| proc::send(program(run.pid()).expect("the tool"), Signal::SIGKILL));
}

#[test]
fn a_killed_launcher_takes_all_that_ranks_have_started() {
    nothing_stays(|cluster, _, _| {
        let processes = cluster.bed.login().user_processes();
        let srun = processes.iter().find(|process| process.line.contains("/srun -N2"));
        proc::send(srun.unwrap_or_else(|| panic!("no srun in {processes:?}")).pid, Signal::SIGKILL);
    });
}

#[test]
fn a_cancelled_job_takes_all_that_ranks_have_started() {
    nothing_stays(|cluster, _, _| {
        let jobs = cluster.said("squeue", ["--noheader", "--format=%A"]);
        cluster.said("scancel", [jobs.trim()]);
    });
}

/// Signals other than SIGKILL go to ranks only, so their children still exist when the last rank ends.
#[test]
fn background_children_of_ranks_end_with_the_last_rank_and_the_code_is_the_ranks() {
    nothing_stays(|cluster, app, run| {
        cluster.ask(&["kill", app, "-s", "USR1"]);
        assert_eq!(run.wait(SOON).code(), 3);
    });
}

#[test]
fn background_children_of_a_rank_live_as_long_as_other_ranks() {
    on_cluster(Config::with_nodes(2), |cluster| {
        let script = format!("[ $SLURM_PROCID = 0 ] && exec {0} leave; exec {0}", strays());
        let mut run = cluster.launch(&[&RANKS[..], &["/bin/sh", "-c", &script]].concat());
        let event = run.next_event("started", SOON);
        let app = event["app"].as_str().expect("an id").to_owned();
        // If a rank ends before the launch is complete, the table shows its end, and there is no event.
        if event["ranks"][0]["state"] != "exited" {
            run.next_event("rank_exited", SOON);
        }
        started(cluster, ALL - 6);
        assert_eq!(cluster.find("strays leave").len(), 5);
        cluster.ask(&["kill", &app, "-s", "USR1"]);
        assert_eq!(run.wait(SOON).code(), 3);
    });
}

#[test]
fn children_of_a_detached_apps_ranks_end_with_it() {
    on_cluster(Config::with_nodes(2), |cluster| {
        let mut tool = cluster.run(binaries().dir.join("fault_tool"), [""; 0], &[]);
        tool.write(format!("launch {} {}\ndetach\n", RANKS[1..].join(" "), strays()).as_bytes());
        eventually(SOON, "the app is let go", || tool.next_line(SOON).contains(r#""done":"detach""#));
        tool.close_stdin();
        tool.exited(SOON);
        started(cluster, ALL);
        // When the ranks have ended, their children may have ended too.
        proc::send_those_left(found(cluster).iter().map(|process| process.pid), Signal::SIGUSR1);
    });
}

#[test]
fn children_of_attached_ranks_are_left_unchanged() {
    on_cluster(Config::with_nodes(2), |cluster| {
        let program = strays();
        let words = [&["--quiet"], &RANKS[1..], &[&program]].concat();
        let mut srun = cluster.run("srun", words, &[]);
        started(cluster, ALL);
        let job = cluster.said("squeue", ["--noheader", "--format=%A"]);
        let mut run = cluster.gantry(["attach", "--json", &format!("{}.0", job.trim())]);
        run.next_event("attached", SOON);
        proc::send(program_of(&run), Signal::SIGKILL);
        run.exited(SOON);
        eventually(SOON, "the agents are gone", || cluster.find("gantry-agent serve step").is_empty());
        started(cluster, ALL);
        // Slurm itself does not find processes that have lost their parents.
        proc::send_those_left(found(cluster).iter().map(|process| process.pid), Signal::SIGKILL);
        srun.exited(SOON);
    });
}

fn program_of(run: &Run) -> i32 {
    program(run.pid()).expect("the tool")
}

#[test]
fn children_of_daemons_end_with_a_killed_agent_while_ranks_continue() {
    on_cluster(Config::with_nodes(2), |cluster| {
        let (daemon, its) = (format!("{} daemon", strays()), "strays daemon");
        let args = [&["--daemon", &daemon], &RANKS[..], &["/bin/sleep", "1000"]].concat();
        let mut run = cluster.launch(&args);
        eventually(SOON, "daemons have started others", || cluster.find(its).len() == 2 * 6);
        for (_, agent) in cluster.find("gantry-agent enter") {
            proc::send(agent.pid, Signal::SIGKILL);
        }
        eventually(SOON, "all that daemons have started is gone", || cluster.find(its).is_empty());
        assert_eq!(cluster.find("/bin/sleep 1000").len(), 4);
        cluster.said("scancel", ["--me"]);
        run.exited(2 * SOON);
    });
}

/// Jobs inherit the environment of their submitter, which includes the mark of the app.
#[test]
fn a_job_that_a_rank_has_submitted_outlives_the_app_and_a_sweep() {
    const JOB: &str = "/bin/sleep 701";
    on_cluster(Config::with_nodes(1), |cluster| {
        // The command line of the submitting command has the same end.
        let jobs = |cluster: &Cluster| {
            let found = cluster.find(JOB).into_iter().map(|(_, process)| process);
            found.filter(|process| process.line == JOB).collect::<Vec<_>>()
        };
        let submit =
            format!("sbatch --chdir=/ --output=/dev/null -n1 --wrap='exec {JOB}'; exec /bin/sleep 1000");
        let mut run = cluster.launch(&["--", "-N1", "-n1", "/bin/sh", "-c", &submit]);
        let app = run.next_event("started", SOON)["app"].as_str().expect("an id").to_owned();
        eventually(SOON, "the job runs", || jobs(cluster).len() == 1);
        let job = jobs(cluster)[0].pid;
        assert!(proc::variable(job, "GANTRY_MARK").is_some(), "it has no mark");
        cluster.ask(&["kill", &app, "-s", "KILL"]);
        run.exited(SOON);
        // The next app's agent looks for leftovers of dead apps.
        assert_eq!(cluster.launch(&["--", "-N1", "-n1", "/bin/true"]).wait(SOON).code(), 0);
        assert_eq!(jobs(cluster).len(), 1);
        cluster.said("scancel", ["--me"]);
        eventually(SOON, "the job is gone", || jobs(cluster).is_empty());
    });
}
