//! Apps that are launched on the login node of a real PBS. gantry submits a job that starts the agents.

use std::fs;
use std::path::Path;
use std::time::Duration;

use gantry_tests::pbs::{STARTS, Script, jobs, on_pbs, on_pbs_with, said_by};
use gantry_tests::slurm::{Cluster, cause_of, error_of, lines_of};
use gantry_tests::testbed::pbs::installation;
use gantry_tests::testbed::program;
use gantry_tests::{Run, SOON, becomes_true, eventually, proc, programs};
use nix::sys::signal::Signal;

/// Two slots on each of two hosts.
const FOUR: [&str; 5] = ["--", "-l", "select=2:ncpus=2:mpiprocs=2", "-l", "place=scatter"];

/// Starts a launch through PBS.
fn launch(cluster: &Cluster, options: &[&str], args: &[&str]) -> Run {
    cluster.launch(&[&["--wlm", "pbs"], options, args].concat())
}

fn four<'a>(words: &[&'a str]) -> Vec<&'a str> {
    FOUR.iter().copied().chain(words.iter().copied()).collect()
}

#[test]
fn a_job_brings_agents_that_hold_its_ranks_and_ends_with_the_app() {
    on_pbs(|cluster| {
        let program = programs::get("exit_with").display().to_string();
        let mut run = launch(cluster, &["--hold"], &four(&[&program, "7"]));
        let held = run.next_event("held", STARTS);
        cluster.assert_held("exit_with 7", 4);
        let mut nodes: Vec<String> = cluster.find("exit_with 7").into_iter().map(|(node, _)| node).collect();
        nodes.sort_unstable();
        assert_eq!(nodes, ["n001", "n001", "n002", "n002"]);
        let app = held["app"].as_str().expect("an id");
        let listed = cluster.ask(&["ps", "--json"]).stdout.concat();
        let job = listed.split("\"job\":\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a job");
        assert!(jobs(&cluster.bed).contains(job.split('.').next().expect("a number")), "{listed}");
        cluster.ask(&["release", app]);
        assert_eq!(run.wait(SOON).code(), 7);
        eventually(SOON, "the job has ended", || jobs(&cluster.bed).is_empty());
    });
}

#[test]
fn ranks_read_and_write_here_and_know_their_own_host() {
    on_pbs(|cluster| {
        let script = "echo $GANTRY_RANK on $(hostname) host $PBS_NODENUM; [ $GANTRY_RANK != 0 ] || cat";
        let mut run = launch(cluster, &[], &four(&["-n", "3", "--map-by", "node", "sh", "-c", script]));
        run.next_event("started", STARTS);
        run.write(b"to the first\n");
        run.close_stdin();
        let done = run.wait(SOON);
        let expected = ["0 on n001 host 0", "1 on n002 host 1", "2 on n001 host 0", "to the first"];
        assert_eq!((done.code(), lines_of(&done)), (0, expected.map(str::to_owned).to_vec()), "{done:?}");
    });
}

/// The ticket is in the agents' environment, which only their user can read.
#[test]
fn the_secret_is_in_no_argument_list_and_in_nothing_that_pbs_shows() {
    on_pbs(|cluster| {
        let mut run = launch(cluster, &["--hold"], &four(&["/bin/true"]));
        let held = run.next_event("held", STARTS);
        let all = cluster.bed.hosts();
        let mut tickets = Vec::new();
        for host in &all {
            for process in host.user_processes() {
                let environ = fs::read(format!("/proc/{}/environ", process.pid)).unwrap_or_default();
                let text = String::from_utf8_lossy(&environ).into_owned();
                tickets.extend(
                    text.split('\0').filter_map(|it| it.strip_prefix("GANTRY_TICKET=")).map(str::to_owned),
                );
            }
        }
        // An agent and its keeper have the same ticket.
        tickets.sort_unstable();
        tickets.dedup();
        assert_eq!(tickets.len(), 2, "an agent on each host");
        // Pieces of 16 digits of each ticket, which contains the 32-byte secret.
        let pieces: Vec<&str> = tickets
            .iter()
            .flat_map(|it| it.as_bytes().chunks(16))
            .map(|it| std::str::from_utf8(it).expect("digits"))
            .collect();
        let mut shown = said_by(&cluster.bed, &["qstat", "-f", "-x"]);
        for host in &all {
            shown.extend(host.processes().into_iter().map(|process| process.line));
        }
        assert!(shown.contains("gantry-agent serve told") && shown.contains("Variable_List"), "{shown}");
        for piece in
            pieces.iter().filter(|piece| piece.len() == 16 && piece.chars().any(|digit| digit != '0'))
        {
            assert!(!shown.contains(piece), "{piece} in {shown}");
        }
        cluster.ask(&["release", held["app"].as_str().expect("an id")]);
        assert_eq!(run.wait(SOON).code(), 0);
    });
}

/// A launch whose job waits in the queue. Returns when the tool has reported that.
#[track_caller]
fn waiting(cluster: &Cluster, options: &[&str]) -> Run {
    let mut run = launch(cluster, options, &["--", "-h", "/bin/true"]);
    let job = run.next_event("submitted", SOON)["job"].as_str().expect("a job").to_owned();
    let news = run.next_event("waiting", SOON);
    assert!(news["message"].as_str().is_some_and(|it| it.contains("is held by a user")), "{news}");
    assert!(jobs(&cluster.bed).contains(job.split('.').next().expect("a number")));
    run
}

#[test]
fn the_queue_shows_a_job_under_its_programs_name_unless_the_user_names_it() {
    on_pbs(|cluster| {
        let check = |words: &[&str], name: &str| {
            let mut run = launch(cluster, &[], &[&["--", "-h"], words].concat());
            let job = run.next_event("submitted", SOON)["job"].as_str().expect("a job").to_owned();
            let said = said_by(&cluster.bed, &["qstat", "-f", "-w", &job]);
            assert!(said.lines().any(|line| line.trim() == format!("Job_Name = {name}")), "{name}: {said}");
            proc::send(program(run.pid()).expect("the tool"), Signal::SIGINT);
            run.exited(SOON);
        };
        check(&["/bin/sleep", "810"], "sleep");
        check(&["./2d heat:x+"], "2d_heat_x+");
        check(&[&"x".repeat(250)], &"x".repeat(230));
        check(&["-N", "mine", "/bin/true"], "mine");
    });
}

#[test]
fn a_launch_that_is_interrupted_killed_or_late_before_it_has_nodes_cancels_its_job() {
    on_pbs(|cluster| {
        for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGKILL] {
            let mut run = waiting(cluster, &[]);
            proc::send(program(run.pid()).expect("the tool"), signal);
            run.exited(SOON);
            eventually(SOON, "the job is cancelled", || jobs(&cluster.bed).is_empty());
        }
        let mut run = waiting(cluster, &["--queue-timeout", "4"]);
        let done = run.wait(SOON);
        let error = error_of(&done);
        assert_eq!(error["kind"], "timed-out", "{error}");
        assert!(error.to_string().contains("is held by a user"), "{error}");
        eventually(SOON, "the job is cancelled", || jobs(&cluster.bed).is_empty());
    });
}

#[test]
fn time_in_the_queue_does_not_count_towards_the_timeout() {
    on_pbs(|cluster| {
        let mut run = launch(cluster, &["--timeout", "8"], &["--", "-h", "/bin/true"]);
        let job = run.next_event("submitted", SOON)["job"].as_str().expect("a job").to_owned();
        run.next_event("waiting", SOON);
        let ended = becomes_true(Duration::from_secs(9), || program(run.pid()).is_none());
        assert!(!ended, "{:?}", run.wait(SOON));
        assert_eq!(said_by(&cluster.bed, &["qrls", &job]), "");
        assert_eq!(run.wait(STARTS).code(), 0);
    });
}

#[test]
fn a_tool_that_is_killed_or_a_job_that_is_deleted_leaves_nothing() {
    on_pbs(|cluster| {
        let mut run = launch(cluster, &["--hold"], &four(&["/bin/sleep", "800"]));
        run.next_event("held", STARTS);
        proc::send(program(run.pid()).expect("the tool"), Signal::SIGKILL);
        run.exited(SOON);
        eventually(2 * SOON, "no rank is left", || cluster.find("/bin/sleep 800").is_empty());
        eventually(SOON, "the job has ended", || jobs(&cluster.bed).is_empty());
        let mut run = launch(cluster, &["--hold"], &four(&["/bin/sleep", "801"]));
        let job = run.next_event("held", STARTS);
        let job = cluster.ask(&["ps", "--json"]).stdout.concat().split("\"job\":\"").nth(1).map_or_else(
            || panic!("no job in {job}"),
            |rest| rest.split('"').next().unwrap_or_default().to_owned(),
        );
        assert_eq!(said_by(&cluster.bed, &["qdel", &job]), "");
        let done = run.wait(2 * SOON);
        assert_ne!(done.code(), 0, "{done:?}");
        let cause = cause_of(&done);
        assert_eq!(cause["cause"], "cancelled", "{cause}");
        assert!(cause["message"].as_str().is_some_and(|it| it.contains("and terminated by")), "{cause}");
        eventually(SOON, "no rank is left", || cluster.find("/bin/sleep 801").is_empty());
    });
}

/// The walltime is shortened once everything runs, so the test does not depend on the start-up time.
#[test]
fn a_job_whose_time_is_over_is_told_as_that_whether_its_ranks_are_held_or_run() {
    on_pbs(|cluster| {
        let places = four(&["-l", "walltime=1:00:00"]);
        let mut held = launch(cluster, &["--hold"], &[&places[..], &["/bin/sleep", "802"]].concat());
        let mut runs = launch(cluster, &[], &[&places[..], &["/bin/sleep", "803"]].concat());
        held.next_event("held", STARTS);
        runs.next_event("started", STARTS);
        let pbsdsh = installation().expect("PBS").join("bin/pbsdsh");
        let places = "select=2:ncpus=2:mpiprocs=2,walltime=1:00:00";
        let own = format!("{} -- /bin/sleep 804", pbsdsh.display());
        let own = Script::submit_on(&cluster.bed, places, &own);
        let mut attached = cluster.gantry(["--json", "attach", "--wait", "--wlm", "pbs", &own.id]);
        attached.next_event("attached", STARTS);
        let all = said_by(&cluster.bed, &["qselect"]);
        assert_eq!(all.lines().count(), 3, "{all}");
        for job in all.lines() {
            assert_eq!(said_by(&cluster.bed, &["qalter", "-l", "walltime=1", job]), "");
        }
        for run in [&mut held, &mut runs, &mut attached] {
            let done = run.wait(STARTS);
            let cause = cause_of(&done);
            assert_eq!(cause["cause"], "time_limit", "{cause}");
            assert!(
                cause["message"].as_str().is_some_and(|it| it.contains("exceeded resource walltime")),
                "{cause}"
            );
        }
        for line in ["/bin/sleep 802", "/bin/sleep 803", "/bin/sleep 804"] {
            eventually(SOON, "no rank is left", || cluster.find(line).is_empty());
        }
    });
}

#[test]
fn refusals_are_reported_with_their_sources_message() {
    on_pbs(|cluster| {
        let check = |args: &[&str], kind: &str, words: &[&str]| {
            let done = launch(cluster, &[], args).wait(STARTS);
            let error = error_of(&done);
            let text = error.to_string();
            assert!(error["kind"] == kind && words.iter().all(|it| text.contains(it)), "{text}");
        };
        check(
            &["--", "-l", "bogus=1", "true"],
            "launcher-failed",
            &["qsub: Unknown resource Resource_List.bogus", "(command: ", "/qsub -f -S /bin/sh -N true"],
        );
        check(&["--", "-q", "nowhere", "true"], "not-found", &["qsub: Unknown queue"]);
        check(&["--", "-I", "true"], "invalid", &["an interactive job has no script"]);
        check(
            &["--", "-l", "select=1:mpiprocs=2:ncpus=2", "-n", "3", "true"],
            "invalid",
            &["3 ranks for 2 places on 1 hosts"],
        );
        check(&four(&["no-such-program"]), "not-found", &["no-such-program"]);
        eventually(SOON, "no job is left", || jobs(&cluster.bed).is_empty());
    });
}

#[test]
fn a_job_whose_nodes_have_no_gantry_fetches_it_and_leaves_nothing_of_it() {
    on_pbs_with(
        |config| config.without_gantry(),
        |cluster| {
            let mut run = launch(cluster, &["--hold"], &four(&["/bin/sh", "-c", "exit 5"]));
            let held = run.next_event("held", STARTS);
            assert_eq!(held["ranks"].as_array().map(Vec::len), Some(4), "{held}");
            cluster.ask(&["release", held["app"].as_str().expect("an id")]);
            assert_eq!(run.wait(SOON).code(), 5);
            eventually(SOON, "the job has ended", || jobs(&cluster.bed).is_empty());
            for host in cluster.bed.hosts() {
                for folder in ["/tmp", "/var/tmp", "/dev/shm"] {
                    let folder = host.path(Path::new(folder)).expect("a folder");
                    let left = fs::read_dir(folder).expect("a folder").flatten();
                    let left: Vec<_> = left.map(|entry| entry.file_name()).collect();
                    let is_ours =
                        |name: &std::ffi::OsString| name.to_string_lossy().starts_with("gantry-agent-");
                    assert!(!left.iter().any(is_ours), "{left:?}");
                }
            }
        },
    );
}

/// The job verifies the fetched file by values that are only in its script. PBS shows the script only to the job's
/// owner.
#[test]
fn a_job_that_fetches_gantry_shows_no_word_of_it_to_others() {
    on_pbs_with(
        |config| config.without_gantry(),
        |cluster| {
            let mut run = launch(cluster, &["--hold"], &four(&["/bin/true"]));
            let held = run.next_event("held", STARTS);
            let mut shown = said_by(&cluster.bed, &["qstat", "-f", "-x"]);
            for host in cluster.bed.hosts() {
                shown.extend(host.processes().into_iter().map(|process| process.line));
            }
            assert!(shown.contains("gantry-agent") && shown.contains("Variable_List"), "{shown}");
            let digits =
                |piece: &str| piece.len() == 64 && piece.bytes().all(|byte| byte.is_ascii_hexdigit());
            let words: Vec<&str> =
                shown.split(|c: char| !c.is_ascii_hexdigit()).filter(|it| digits(it)).collect();
            assert!(words.is_empty() && !shown.contains("GANTRY_GIVEN"), "{words:?}");
            cluster.ask(&["release", held["app"].as_str().expect("an id")]);
            assert_eq!(run.wait(SOON).code(), 0);
        },
    );
}

#[test]
fn a_job_whose_nodes_have_no_gantry_and_may_not_fetch_it_says_how_it_ended() {
    on_pbs_with(
        |config| config.without_gantry(),
        |cluster| {
            let done = launch(cluster, &["--send-agent=never"], &["--", "/bin/true"]).wait(STARTS);
            let error = error_of(&done).to_string();
            assert!(
                error.contains("ended with 127") && error.contains("its agents were not there"),
                "{error}"
            );
            assert!(error.contains("gantry is not where it is here on its first host"), "{error}");
            assert!(error.contains("-o FILE"), "{error}");
        },
    );
}
