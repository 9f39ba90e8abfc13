//! Batch jobs that gantry submits to a real Slurm. gantry attaches when their srun has started. It cancels them if
//! the command stops waiting.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use gantry_tests::fault::{guards, is_submitter};
use gantry_tests::slurm::{Cluster, error_of, on_cluster};
use gantry_tests::submit::{attached_and_left, check_cancelled, check_waits, submit, write_script};
use gantry_tests::testbed::Config;
use gantry_tests::{Run, SOON, World, becomes_true, binaries, proc};
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

/// A folder that every host can access.
fn folder(name: &str) -> PathBuf {
    let programs = gantry_tests::target_dir().join("test-programs");
    let folder = programs.join(format!("submit-{}", std::process::id())).join(name);
    fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// A batch script at a path that every host can access.
fn script(name: &str, lines: &str) -> String {
    let path = folder("scripts").join(name);
    write_script(&path, lines);
    path.display().to_string()
}

/// A PATH in which a program stands in front of Slurm's own of the same name. It does `lines` first.
fn path_with(name: &str, lines: &str) -> String {
    let folder = folder(name);
    write_script(&folder.join(name), &format!("{lines}\nexec /usr/bin/{name} \"$@\""));
    format!("{}:/usr/bin:/bin", folder.display())
}

/// The states of the user's jobs according to Slurm.
fn jobs(cluster: &Cluster) -> String {
    cluster.said("squeue", ["--me", "--noheader", "--format=%A %T"])
}

#[test]
fn a_job_is_attached_to_when_its_srun_has_started() {
    on_cluster(Config::with_nodes(2), |cluster| {
        let script = script("runs", "srun sleep 700; sleep 701");
        let daemon = ["--daemon", "/bin/sleep 2000", "--", "--output=/dev/null"];
        let job = ["-N2", "-n4", "--ntasks-per-node=2", &script];
        let job = attached_and_left(submit(cluster, "slurm", &[&daemon[..], &job].concat()), SOON);
        assert_eq!(jobs(cluster).trim(), format!("{job} RUNNING"));
        let all = cluster.find("sleep 700");
        assert_eq!(all.iter().filter(|(_, process)| !process.line.starts_with("srun")).count(), 4, "{all:?}");
        cluster.said("scancel", ["--me"]);
        cluster.bed.wait_idle(2 * SOON).expect("idle");
    });
}

#[test]
fn a_job_that_is_interrupted_killed_or_late_before_it_runs_is_cancelled() {
    on_cluster(Config::with_nodes(2), |cluster| {
        let waits = ["--", "--begin=now+1hour", "--output=/dev/null", "--wrap=srun true"];
        let begin = |options: &[&str]| submit(cluster, "slurm", &[options, &waits].concat());
        check_cancelled(begin, || jobs(cluster), "PENDING (BeginTime)");
    });
}

#[test]
fn time_in_the_queue_does_not_count_towards_the_timeout() {
    on_cluster(Config::with_nodes(2), |cluster| {
        let waits = ["--", "--hold", "--output=/dev/null", "--wrap=srun sleep 703"];
        let begin = |options: &[&str]| submit(cluster, "slurm", &[options, &waits].concat());
        let let_go = |job: &str| drop(cluster.said("scontrol", ["release", job]));
        let job = check_waits(begin, let_go, SOON);
        cluster.said("scancel", [job.as_str()]);
        cluster.bed.wait_idle(2 * SOON).expect("idle");
    });
}

#[test]
fn a_job_that_is_refused_or_launches_nothing_says_so() {
    on_cluster(Config::with_nodes(2), |cluster| {
        let done = submit(cluster, "slurm", &["--", "--partition=none", "--wrap=true"]).wait(SOON);
        let error = error_of(&done).to_string();
        assert!(error.contains("sbatch: error:") && error.contains("nvalid partition"), "{error}");
        let done = submit(cluster, "slurm", &["--", "no-such-script"]).wait(SOON);
        assert!(error_of(&done).to_string().contains("no-such-script"), "{done:?}");
        let done = submit(cluster, "slurm", &["--", "--output=/dev/null", "--wrap=true"]).wait(SOON);
        let error = error_of(&done);
        assert_eq!(error["kind"], "gone", "{error}");
        assert!(error.to_string().contains("COMPLETED"), "{error}");
        let done = submit(cluster, "localhost", &["--", "x"]).wait(SOON);
        assert!(error_of(&done).to_string().contains("runs no batch jobs"), "{done:?}");
        cluster.bed.wait_idle(2 * SOON).expect("idle");
    });
}

#[test]
fn a_controller_that_does_not_answer_once_is_asked_again() {
    on_cluster(Config::with_nodes(2), |cluster| {
        let marks = folder("marks");
        fs::set_permissions(&marks, fs::Permissions::from_mode(0o777)).expect("permissions");
        let words = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)";
        let asked = marks.join("asked").display().to_string();
        let lines = format!("mkdir {asked} 2>/dev/null && {{ echo '{words}' >&2; exit 1; }}");
        let path = path_with("scontrol", &lines);
        let args = ["submit", "--json", "--wlm=slurm", "--", "--output=/dev/null", "--wrap=srun sleep 704"];
        let mut run = cluster.run(&binaries().gantry, args, &[("PATH", &path)]);
        assert!(run.next_event("waiting", SOON)["message"].to_string().contains(words));
        run.next_event("attached", SOON);
        cluster.said("scancel", ["--me"]);
        run.exited(SOON);
        cluster.bed.wait_idle(2 * SOON).expect("idle");
    });
}

#[test]
fn a_step_that_ends_while_it_is_attached_to_gives_way_to_the_next() {
    on_cluster(Config::with_nodes(2), |cluster| {
        // The first step ends before its agents are there.
        let lines = "case \"$*\" in *gantry-agents*) job=\"${*#*--jobid=}\"; step=\"${job%% *}.0\"\n\
             scancel \"$step\"; while scontrol -o show step \"$step\" | grep -q State=RUNNING; do sleep 0.1; done;; esac";
        let path = path_with("srun", lines);
        let script = script("steps", "srun -n1 sleep 705; srun -n1 sleep 706");
        let args = ["submit", "--json", "--wlm=slurm", "--", "--output=/dev/null", &script];
        let mut run = cluster.run(&binaries().gantry, args, &[("PATH", &path)]);
        let attached = run.next_event("attached", SOON);
        assert_eq!(attached["ranks"].as_array().map(Vec::len), Some(1), "{attached}");
        assert!(cluster.find("sleep 705").is_empty() && !cluster.find("sleep 706").is_empty(), "{attached}");
        cluster.said("scancel", ["--me"]);
        run.exited(SOON);
        cluster.bed.wait_idle(2 * SOON).expect("idle");
    });
}

#[test]
fn an_sbatch_that_would_stay_until_the_jobs_end_is_not_waited_for() {
    on_cluster(Config::with_nodes(2), |cluster| {
        let job = ["--", "--wait", "--output=/dev/null", "--wrap=srun sleep 707"];
        let mut run = submit(cluster, "slurm", &job);
        run.next_event("attached", SOON);
        cluster.said("scancel", ["--me"]);
        run.exited(SOON);
        cluster.bed.wait_idle(2 * SOON).expect("idle");
    });
}

#[test]
fn a_job_in_the_background_is_known_when_it_is_attached_to() {
    on_cluster(Config::with_nodes(2), |cluster| {
        let script = script("stays", "srun -n1 sleep 702");
        let args = ["submit", "--background", "--", "--output=/dev/null", &script];
        let app = cluster.ask(&args).stdout.concat();
        let listed = cluster.ask(&["ps", "--json"]).stdout.concat();
        assert!(listed.contains(app.trim()) && listed.contains("\"job\":"), "{listed}");
        cluster.said("scancel", ["--me"]);
        assert!(becomes_true(2 * SOON, || cluster.ask(&["ps", "--json"]).stdout.concat() == "[]"));
        cluster.bed.wait_idle(2 * SOON).expect("idle");
    });
}

/// Begins a submission by an sbatch that answers when the gate is opened.
fn begin(world: &World, options: &[&str]) -> (Run, PathBuf) {
    let sbatch = world.executable("sbatch", b"#!/bin/sh\n: >\"$0.asked\"\nread -r _ <\"$0.gate\"\necho 7\n");
    mkfifo(&sbatch.with_extension("gate"), Mode::S_IRWXU).expect("a FIFO");
    let submit = [&["--json", "submit", "--wlm", "slurm"], options, &["--", "job.sh"]].concat();
    let mut submit = world.gantry_command(submit);
    submit.env("PATH", world.work_dir());
    (world.spawn(submit), sbatch)
}

#[test]
fn what_nothing_could_cancel_is_not_submitted() {
    let world = World::new();
    let (mut run, sbatch) = begin(&world, &[]);
    let done = run.wait(SOON);
    assert!(done.stdout.concat().contains("there is no scancel in PATH"), "{done:?}");
    assert!(!sbatch.with_extension("asked").exists());
    world.finish();
}

#[test]
fn a_job_whose_guard_is_killed_while_it_is_submitted_is_cancelled() {
    let silent = "it is not cancelled: scancel ended with an error: scancel: error: Kill job error on job id 7: Unable";
    for (is_silent, words) in
        [(false, &["it was cancelled"][..]), (true, &[silent, "tries again for 10 minutes"])]
    {
        let world = World::new();
        let scancel = make_scancel(&world, is_silent);
        let (mut run, sbatch) = begin(&world, &[]);
        proc::wait_file(&sbatch.with_extension("asked"), SOON);
        kill_guards(&world);
        open_gate(&sbatch);
        let done = run.wait(SOON);
        let said = done.stdout.concat();
        assert!(said.contains("lost job 7: ") && words.iter().all(|it| said.contains(it)), "{done:?}");
        assert_cancelled(&scancel);
        world.finish();
    }
}

/// Notes the job. The first time it does not reach the controller.
const SCANCEL: &[u8] = b"#!/bin/sh
: >\"$0.begun\"
if [ -e \"$0.silent\" ] && [ ! -e \"$0.first\" ]; then
    : >\"$0.first\"
    echo 'scancel: error: Kill job error on job id 7: Unable to contact slurm controller (connect failure)' >&2
    exit 1
fi
echo \"$*\" >\"$0.new\"
/bin/mv \"$0.new\" \"$0.asked\"
";

/// An scancel, which may be silent at first.
fn make_scancel(world: &World, is_silent: bool) -> PathBuf {
    let scancel = world.executable("scancel", SCANCEL);
    if is_silent {
        fs::write(scancel.with_extension("silent"), "").expect("a file");
    }
    scancel
}

fn open_gate(sbatch: &Path) {
    fs::write(sbatch.with_extension("gate"), "\n").expect("a reader");
}

#[track_caller]
fn kill_guards(world: &World) {
    let guards = guards(world);
    assert_eq!(guards.len(), 1);
    proc::send(guards[0], Signal::SIGKILL);
    proc::wait_gone(guards[0], SOON);
}

#[track_caller]
fn assert_cancelled(scancel: &Path) {
    proc::wait_file(&scancel.with_extension("asked"), SOON);
    assert_eq!(fs::read_to_string(scancel.with_extension("asked")).expect("a file"), "--quiet 7\n");
}

/// Ends a submission before sbatch has answered, and checks that the job is cancelled when it has.
#[track_caller]
fn check_given_up(options: &[&str], end: impl FnOnce(&World, &Run)) {
    let world = World::new();
    let scancel = make_scancel(&world, true);
    let (mut run, sbatch) = begin(&world, options);
    proc::wait_file(&sbatch.with_extension("asked"), SOON);
    end(&world, &run);
    run.exited(SOON);
    assert!(!scancel.with_extension("begun").exists());
    open_gate(&sbatch);
    assert_cancelled(&scancel);
    world.finish();
}

#[test]
fn a_job_whose_tool_gives_up_or_is_killed_while_it_is_submitted_is_cancelled() {
    for signal in [Signal::SIGKILL, Signal::SIGINT, Signal::SIGTERM] {
        check_given_up(&[], |_, run| proc::send(run.pid(), signal));
    }
    // Long enough for sbatch to start on a busy machine.
    check_given_up(&["--timeout", "10"], |_, _| {});
    check_given_up(&[], |world, run| {
        proc::send(run.pid(), Signal::SIGSTOP);
        kill_guards(world);
        proc::send(run.pid(), Signal::SIGKILL);
    });
}

#[test]
fn a_cancellation_that_the_controller_does_not_answer_is_tried_again() {
    let world = World::new();
    let scancel = make_scancel(&world, true);
    let words = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)";
    world.executable("scontrol", format!("#!/bin/sh\necho '{words}' >&2\nexit 1\n").as_bytes());
    let (mut run, sbatch) = begin(&world, &[]);
    open_gate(&sbatch);
    run.next_event("waiting", SOON);
    proc::send(run.pid(), Signal::SIGKILL);
    run.exited(SOON);
    assert_cancelled(&scancel);
    world.finish();
}

#[test]
fn a_submission_without_an_answer_is_named() {
    let world = World::new();
    make_scancel(&world, false);
    let (mut run, sbatch) = begin(&world, &[]);
    proc::wait_file(&sbatch.with_extension("asked"), SOON);
    let submitter = world.processes().into_iter().find(|pid| is_submitter(*pid)).expect("a submitter");
    proc::send(submitter, Signal::SIGKILL);
    let done = run.wait(SOON);
    assert!(done.stdout.concat().contains("lost a submission: "), "{done:?}");
    open_gate(&sbatch);
    world.finish();
}
