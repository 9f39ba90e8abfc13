//! Batch jobs that gantry submits to a real PBS. gantry attaches when their ranks run. It cancels them if the command
//! stops waiting.

use std::path::Path;

use gantry_tests::pbs::{STARTS, jobs, on_pbs, said_by};
use gantry_tests::slurm::{Cluster, error_of};
use gantry_tests::submit::{attached_and_left, check_cancelled, check_waits, submit, write_script};
use gantry_tests::testbed::config::HOME;
use gantry_tests::testbed::pbs::installation;
use gantry_tests::{SOON, eventually};

/// A batch script in the user's home, which all hosts share.
fn script(cluster: &Cluster, name: &str, lines: &str) -> String {
    let path = Path::new(HOME).join(name);
    write_script(&cluster.bed.login().path(&path).expect("the login node"), lines);
    path.display().to_string()
}

/// Prevents files with a job's output on any host.
const QUIET: [&str; 4] = ["-j", "oe", "-o", "/dev/null"];

#[test]
fn a_job_is_attached_to_when_its_ranks_run_and_is_its_own_from_then_on() {
    on_pbs(|cluster| {
        let pbsdsh = installation().expect("PBS").join("bin/pbsdsh");
        let script = script(cluster, "runs.sh", &format!("{} -- /bin/sleep 1100", pbsdsh.display()));
        let places = ["-l", "select=2:ncpus=2:mpiprocs=2", "-l", "place=scatter"];
        let options = ["--daemon", "/bin/sleep 2000", "--"];
        let args = [&options[..], &QUIET, &places, &[&script]].concat();
        let job = attached_and_left(submit(cluster, "pbs", &args), STARTS);
        assert!(jobs(&cluster.bed).contains(job.split('.').next().expect("a number")));
        let shown = said_by(&cluster.bed, &["qstat", "-f", "-w", &job]);
        assert!(shown.lines().any(|line| line.trim() == "Job_Name = runs.sh"), "{shown}");
        let ranks = cluster.find("/bin/sleep 1100");
        assert_eq!(ranks.iter().filter(|it| it.1.line.starts_with("/bin")).count(), 4, "{ranks:?}");
        assert_eq!(said_by(&cluster.bed, &["qdel", &job]), "");
    });
}

#[test]
fn a_job_that_is_interrupted_killed_or_late_before_it_runs_is_cancelled() {
    on_pbs(|cluster| {
        let script = script(cluster, "never.sh", "/bin/sleep 1101");
        let begin =
            |options: &[&str]| submit(cluster, "pbs", &[options, &["--", "-h"], &QUIET, &[&script]].concat());
        check_cancelled(begin, || jobs(&cluster.bed), "is held by a user");
    });
}

#[test]
fn time_in_the_queue_does_not_count_towards_the_timeout() {
    on_pbs(|cluster| {
        let script = script(cluster, "later.sh", "/bin/sleep 1102");
        let begin =
            |options: &[&str]| submit(cluster, "pbs", &[options, &["--", "-h"], &QUIET, &[&script]].concat());
        let let_go = |job: &str| assert_eq!(said_by(&cluster.bed, &["qrls", job]), "");
        let job = check_waits(begin, let_go, STARTS);
        assert_eq!(said_by(&cluster.bed, &["qdel", &job]), "");
        eventually(SOON, "the job has ended", || jobs(&cluster.bed).is_empty());
    });
}

#[test]
fn a_job_that_is_refused_or_runs_nothing_says_so() {
    on_pbs(|cluster| {
        let script = script(cluster, "nothing.sh", ":");
        let check = |args: &[&str], kind: &str, words: &str| {
            let error = error_of(&submit(cluster, "pbs", &[&["--"], &QUIET[..], args].concat()).wait(STARTS));
            assert!(error["kind"] == kind && error.to_string().contains(words), "{error}");
        };
        check(&["-q", "nowhere", &script], "not-found", "qsub: Unknown queue");
        check(&["no-such-script"], "launcher-failed", "qsub: script file");
        check(&[&script], "gone", "ended with 0");
    });
}

/// A server that keeps no ended jobs, which is the default. The beds' servers keep them.
struct WithoutHistory<'a>(&'a Cluster);

impl<'a> WithoutHistory<'a> {
    #[track_caller]
    fn new(cluster: &'a Cluster) -> Self {
        assert!(set_history(cluster, "False"), "qmgr");
        Self(cluster)
    }
}

impl Drop for WithoutHistory<'_> {
    fn drop(&mut self) {
        set_history(self.0, "True");
    }
}

fn set_history(cluster: &Cluster, value: &str) -> bool {
    let mut qmgr = cluster.bed.login().root_command("qmgr").expect("the login node");
    let order = format!("set server job_history_enable={value}");
    qmgr.args(["-c", &order]).status().is_ok_and(|status| status.success())
}

#[test]
fn a_server_that_keeps_no_ended_jobs_tells_of_those_that_wait_and_run() {
    on_pbs(|cluster| {
        let cluster = &*cluster;
        let _history = WithoutHistory::new(cluster);
        let asked = said_by(&cluster.bed, &["qstat", "-x"]);
        assert!(asked.contains("not configured to maintain job history"), "{asked}");
        let words = ["--wlm", "pbs", "--", "-l", "select=1:ncpus=2:mpiprocs=2", "/bin/sh", "-c", "exit 7"];
        assert_eq!(cluster.launch(&words).wait(STARTS).code(), 7);
        let runs = script(cluster, "known.sh", "/bin/sleep 1103");
        let mut run = submit(cluster, "pbs", &[&["--"], &QUIET[..], &[&runs]].concat());
        let job = run.next_event("submitted", SOON)["job"].as_str().expect("a job").to_owned();
        run.next_event("attached", STARTS);
        let mut other = cluster.gantry(["--json", "attach", "--wait", "--wlm", "pbs", &job]);
        other.next_event("attached", STARTS);
        assert_eq!(said_by(&cluster.bed, &["qdel", &job]), "");
        run.exited(SOON);
        other.exited(SOON);
        eventually(SOON, "the job has ended", || jobs(&cluster.bed).is_empty());
        let error = error_of(&cluster.gantry(["--json", "attach", "--wlm", "pbs", &job]).wait(SOON));
        assert!(error["kind"] == "gone" && error.to_string().contains("qstat: Unknown Job"), "{error}");
        let nothing = script(cluster, "soon-over.sh", ":");
        let error =
            error_of(&submit(cluster, "pbs", &[&["--"], &QUIET[..], &[&nothing]].concat()).wait(STARTS));
        assert_eq!(error["kind"], "gone", "{error}");
    });
}
