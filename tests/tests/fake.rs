//! The launch pipeline on a fake cluster: a queue, limits, failing nodes. The guard and the agents are real. These
//! tests show in milliseconds what the suites of real workload managers show in seconds.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gantry_tests::fault::guards;
use gantry_tests::{Finished, Run, SOON, World, becomes_true, proc, programs, require, tool, within};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_secs(60);

/// Longer than any test.
const FOREVER_MS: u64 = 1_000_000;

/// A shell's command that ends when the test says so: see [`Cluster::go`].
const UNTIL_GO: &str = "until [ -e go ]; do sleep 0.05; done";

/// A script with two steps beside each other. Their pids are in the files `a` and `b`. It ends as [`UNTIL_GO`] does.
const TWO_STEPS: &str = "for step in a b; do /bin/sleep 1000 & echo $! >new; mv new $step; done\n\
     until [ -e go ]; do sleep 0.05; done; kill $(cat a b); wait";

/// A cluster that behaves as `site` says, and its world.
struct Cluster {
    world: World,
}

impl Cluster {
    fn new(site: &Value) -> Self {
        let cluster = Self { world: World::new() };
        fs::create_dir(cluster.folder()).expect("a folder");
        cluster.becomes(site);
        cluster
    }

    /// Makes it behave in this way from now on.
    fn becomes(&self, site: &Value) {
        let new = self.folder().join("new");
        fs::write(&new, site.to_string()).expect("a file");
        fs::rename(new, self.folder().join("site.json")).expect("a file");
    }

    fn folder(&self) -> PathBuf {
        self.world.path().join("site")
    }

    fn gantry(&self, args: &[&str]) -> Run {
        let mut command = self.world.gantry_command(args);
        command.env("GANTRY_FAKE_SITE", self.folder());
        self.world.spawn(command)
    }

    /// Launches with these options and arguments, with events in JSON.
    fn launch(&self, options: &[&str], args: &[&str]) -> Run {
        self.gantry(&[&["--json", "launch", "--wlm", "fake"], options, &["--"], args].concat())
    }

    /// The content of a file of job 1.
    fn read(&self, file: &str) -> Option<String> {
        let text = fs::read_to_string(self.folder().join("jobs/1").join(file)).ok()?;
        Some(text.trim().to_owned())
    }

    /// Ends a script of [`UNTIL_GO`].
    fn go(&self) {
        fs::write(self.world.work_dir().join("go"), "").expect("a file");
    }

    /// Makes the process of this pid the newest step of job 1.
    fn is_in_step(&self, pid: i32) {
        let new = self.folder().join("new");
        fs::write(&new, pid.to_string()).expect("a file");
        fs::rename(new, self.folder().join("jobs/1/step")).expect("a file");
    }

    /// Submits [`TWO_STEPS`] by this command. Returns both steps when gantry attaches to the first one. Agents start
    /// when the cluster becomes another one.
    #[track_caller]
    fn attaching_to_a_step(&self, options: &[&str]) -> (Run, [i32; 2]) {
        self.becomes(&json!({ "silent": true }));
        let run = self.gantry(&[options, &["--wlm", "fake", "--", "/bin/sh", "-c", TWO_STEPS]].concat());
        let steps = ["a", "b"].map(|name| {
            let file = self.world.work_dir().join(name);
            proc::wait_file(&file, SOON);
            fs::read_to_string(file).expect("a file").trim().parse().expect("a pid")
        });
        self.is_in_step(steps[0]);
        self.becomes(&json!({ "stuck": true }));
        assert!(becomes_true(SOON, || self.read("attachments").is_some()), "nothing is attached to");
        (run, steps)
    }

    /// Submits a script of [`UNTIL_GO`], and checks that gantry gives up in time with this error and leaves the job.
    #[track_caller]
    fn assert_late_and_left(&self, error: &str) {
        let words = ["submit", "--wlm", "fake", "--timeout", "2", "--", "/bin/sh", "-c", UNTIL_GO];
        let done = self.gantry(&words).wait(SOON);
        assert_eq!(done.code(), 67, "{done:?}");
        self.assert_left(&done, error);
    }

    /// Checks that a submission has ended with this error, and has left its job, a script of [`UNTIL_GO`].
    #[track_caller]
    fn assert_left(&self, done: &Finished, error: &str) {
        let said = [&done.stderr[..], &done.stdout[..]].concat().concat();
        assert!(said.contains(error) && said.contains("job 1 was left as it is"), "{done:?}");
        // The guard would cancel it.
        assert!(becomes_true(SOON, || guards(&self.world).is_empty()), "a guard stays");
        self.go();
        assert_eq!(self.end(), "0");
    }

    /// Ends the first job's wait in the queue.
    fn gives_nodes(&self) {
        let script = self.read("pid").expect("a job").parse().expect("a pid");
        let ends = || {
            let waiting = proc::children(script);
            waiting.iter().for_each(|pid| proc::send(*pid, Signal::SIGKILL));
            !waiting.is_empty()
        };
        assert!(becomes_true(SOON, ends), "the job does not wait");
    }

    /// Waits until the first job has ended, and returns how.
    #[track_caller]
    fn end(&self) -> String {
        assert!(becomes_true(SOON, || self.read("end").is_some()), "the job does not end");
        self.read("end").unwrap_or_default()
    }
}

fn run(site: &Value, test: impl FnOnce(&Cluster) + Send + 'static) {
    run_for(LIMIT, site, test);
}

fn run_for(limit: Duration, site: &Value, test: impl FnOnce(&Cluster) + Send + 'static) {
    let site = site.clone();
    within(limit, move || {
        let cluster = Cluster::new(&site);
        test(&cluster);
        cluster.world.finish();
    });
}

#[test]
fn a_launch_waits_in_the_queue_and_is_held_on_the_nodes_of_its_job() {
    run(&json!({ "nodes": 3, "queue_ms": 300, "reason": "Priority" }), |cluster| {
        let mut run = cluster.launch(&["--hold"], &["-n", "5", "-N", "3", "/bin/sh", "-c", "exit 7"]);
        assert_eq!(run.next_event("submitted", SOON)["job"], "1");
        let waiting = run.next_event("waiting", SOON)["message"].to_string();
        assert!(waiting.contains("waits for nodes (Priority)"), "{waiting}");
        let held = run.next_event("held", SOON);
        let hosts: Vec<&str> = held["ranks"]
            .as_array()
            .expect("ranks")
            .iter()
            .filter_map(|rank| rank["host"].as_str())
            .collect();
        assert_eq!(hosts, ["fake1", "fake1", "fake2", "fake2", "fake3"]);
        assert!(cluster.read("input").is_none(), "the app's secret stays in a file");
        let app = held["app"].as_str().expect("an id");
        assert_eq!(cluster.gantry(&["release", app]).wait(SOON).code(), 0);
        assert_eq!(run.wait(SOON).code(), 7);
        assert_eq!(cluster.end(), "0");
    });
}

#[test]
fn a_refusal_of_the_cluster_is_reported_with_its_message() {
    run(&json!({ "nodes": 4, "refuse": "your account has expired" }), |cluster| {
        let done = cluster.launch(&[], &["/bin/true"]).wait(SOON);
        assert_eq!(done.code(), 68, "{done:?}");
        assert!(done.stdout.concat().contains("your account has expired"), "{done:?}");
        let done = cluster.launch(&[], &["-n", "5", "-N", "5", "/bin/true"]).wait(SOON);
        assert_eq!(done.code(), 64, "{done:?}");
        assert!(done.stdout.concat().contains("the cluster has 4"), "{done:?}");
    });
}

#[test]
fn a_launch_that_gives_up_in_the_queue_takes_its_job_along() {
    for signal in [None, Some(Signal::SIGINT), Some(Signal::SIGKILL)] {
        run(&json!({ "queue_ms": FOREVER_MS }), move |cluster| {
            let options: &[&str] = if signal.is_none() { &["--queue-timeout", "0.3"] } else { &[] };
            let mut run = cluster.launch(options, &["/bin/true"]);
            run.next_event("waiting", SOON);
            match signal {
                Some(signal) => {
                    proc::send(run.pid(), signal);
                    run.exited(SOON);
                }
                None => {
                    let done = run.wait(SOON);
                    assert_eq!(done.code(), 67, "{done:?}");
                    assert!(done.stdout.concat().contains("waits for nodes (Resources)"), "{done:?}");
                }
            }
            assert_eq!(cluster.end(), "cancelled");
        });
    }
}

#[test]
fn a_job_whose_tool_ends_before_its_acceptance_is_told_is_cancelled() {
    for words in ["launch", "submit"] {
        run(&json!({ "queue_ms": FOREVER_MS, "mute": true }), move |cluster| {
            let mut run = cluster.gantry(&["--json", words, "--wlm", "fake", "--", "/bin/true"]);
            assert!(becomes_true(SOON, || cluster.read("pid").is_some()), "nothing is submitted");
            proc::send(run.pid(), Signal::SIGKILL);
            run.exited(SOON);
            cluster.becomes(&json!({}));
            assert_eq!(cluster.end(), "cancelled");
        });
    }
}

#[test]
fn a_cancellation_without_an_answer_is_tried_again() {
    for dies in ["tool", "guard"] {
        run(&json!({ "queue_ms": FOREVER_MS }), move |cluster| {
            let mut run = cluster.launch(&[], &["/bin/true"]);
            run.next_event("waiting", SOON);
            let (file, asked) = (cluster.folder().join("jobs/1/cancel"), cluster.folder().join("asked"));
            let cancel = fs::read_to_string(&file).expect("a file");
            let becomes = |lines: &str| {
                fs::write(cluster.folder().join("new"), lines).expect("a file");
                fs::rename(cluster.folder().join("new"), &file).expect("a file");
            };
            becomes(&format!(": >{}; echo 'no answer' >&2\n", asked.display()));
            match dies {
                "tool" => proc::send(run.pid(), Signal::SIGKILL),
                _ => kill_guards(&guards(&cluster.world)),
            }
            run.exited(SOON);
            proc::wait_file(&asked, SOON);
            becomes(&cancel);
            assert_eq!(cluster.end(), "cancelled");
        });
    }
}

#[test]
fn time_in_the_queue_does_not_count_towards_the_timeout() {
    run(&json!({ "queue_ms": 2500 }), |cluster| {
        let done = cluster.launch(&["--timeout", "2"], &["/bin/true"]).wait(SOON);
        assert_eq!(done.code(), 0, "{done:?}");
    });
}

#[test]
fn a_job_whose_time_is_over_says_so() {
    run(&json!({ "limit_ms": 700 }), |cluster| {
        let mut run = cluster.launch(&[], &["-n", "2", "-N", "2", "/bin/sleep", "1000"]);
        run.next_event("started", SOON);
        let ended = run.next_event("ended_by", SOON);
        assert_eq!(ended["cause"], "time_limit", "{ended}");
        assert_ne!(run.wait(SOON).code(), 0);
        assert_eq!(cluster.end(), "time limit");
    });
}

#[test]
fn a_node_that_starts_nothing_is_named() {
    run(&json!({ "broken": ["fake2"] }), |cluster| {
        let done = cluster.launch(&["--timeout", "20"], &["-n", "2", "-N", "2", "/bin/true"]).wait(SOON);
        let text = done.stdout.concat();
        assert_eq!(done.code(), 68, "{done:?}");
        assert!(text.contains("fake2") && text.contains("the node does not start anything"), "{text}");
    });
}

#[test]
fn a_node_that_is_lost_is_named_and_the_others_go_on() {
    run(&json!({}), |cluster| {
        let mut run = cluster.launch(&["--hold"], &["-n", "3", "-N", "3", "/bin/true"]);
        let held = run.next_event("held", SOON);
        let pid = cluster.read("agents/fake2").expect("an agent").parse().expect("a pid");
        proc::send(pid, Signal::SIGKILL);
        let lost = run.next_event("nodes_lost", SOON);
        assert_eq!(lost["hosts"], json!(["fake2"]), "{lost}");
        cluster.gantry(&["release", held["app"].as_str().expect("an id")]).wait(SOON);
        let done = run.wait(SOON);
        let exited = done.events().into_iter().find(|event| event["event"] == "exited").expect("an end");
        let codes: Vec<&Value> =
            exited["ranks"].as_array().expect("ranks").iter().map(|it| &it["code"]).collect();
        assert_eq!(codes[0], 0, "{exited}");
        assert_eq!(codes[2], 0, "{exited}");
    });
}

#[test]
fn a_launch_in_a_job_uses_its_nodes() {
    run(&json!({ "queue_ms": 100 }), |cluster| {
        let gantry = cluster.world.gantry_command(["x"; 0]).get_program().to_string_lossy().into_owned();
        let inner = format!("{gantry} launch --wlm fake -n 2 -N 2 /bin/sh -c 'echo $GANTRY_RANK' >out");
        let done = cluster.gantry(&["submit", "--wlm", "fake", "--", "/bin/sh", "-c", &inner]).wait(SOON);
        assert_eq!(cluster.end(), "0", "{done:?}");
        let out = fs::read_to_string(cluster.world.work_dir().join("out")).expect("output");
        let mut ranks: Vec<&str> = out.lines().collect();
        ranks.sort_unstable();
        assert_eq!(ranks, ["0", "1"]);
    });
}

#[test]
fn a_batch_job_is_attached_to_when_it_has_its_nodes() {
    run(&json!({ "queue_ms": 300 }), |cluster| {
        let mut run = cluster.gantry(&["--json", "submit", "--wlm", "fake", "--", "/bin/sleep", "2"]);
        assert_eq!(run.next_event("submitted", SOON)["job"], "1");
        run.next_event("waiting", SOON);
        let attached = run.next_event("attached", SOON);
        assert_eq!(attached["ranks"].as_array().map(Vec::len), Some(1), "{attached}");
        assert_eq!(run.wait(SOON).code(), 0);
        assert_eq!(cluster.end(), "0");
    });
}

#[test]
fn a_question_without_an_answer_says_nothing_about_the_job() {
    for words in [&["launch"][..], &["submit"]] {
        run(&json!({ "silent": true }), move |cluster| {
            let options = ["--wlm", "fake", "--timeout", "20", "--", "/bin/sh", "-c"];
            let mut run = cluster.gantry(&[&["--json"], words, &options, &[UNTIL_GO]].concat());
            let waiting = run.next_event("waiting", SOON)["message"].to_string();
            assert!(waiting.contains("gives no answer"), "{waiting}");
            cluster.becomes(&json!({}));
            run.next_event(if words == ["launch"] { "started" } else { "attached" }, SOON);
            cluster.go();
            assert_eq!(run.wait(SOON).code(), 0);
            assert_eq!(cluster.end(), "0");
        });
    }
}

#[test]
fn a_cluster_that_never_answers_is_not_waited_for_like_a_queue() {
    run(&json!({ "silent": true, "queue_ms": FOREVER_MS }), |cluster| {
        let done = cluster.launch(&["--timeout", "2"], &["/bin/true"]).wait(SOON);
        assert_eq!(done.code(), 67, "{done:?}");
        assert!(done.stdout.concat().contains("the cluster gives no answer"), "{done:?}");
        assert_eq!(cluster.end(), "cancelled");
    });
    run(&json!({ "silent": true }), |cluster| {
        cluster.assert_late_and_left("the cluster gives no answer");
    });
}

#[test]
fn a_job_that_may_have_left_the_queue_unseen_is_left() {
    run(&json!({ "queue_ms": FOREVER_MS }), |cluster| {
        let words = ["--json", "submit", "--wlm", "fake", "--queue-timeout", "5", "--"];
        let mut run = cluster.gantry(&[&words[..], &["/bin/sh", "-c", UNTIL_GO]].concat());
        run.next_event("waiting", SOON);
        cluster.becomes(&json!({ "silent": true }));
        while !run.next_event("waiting", SOON)["message"].to_string().contains("gives no answer") {}
        cluster.gives_nodes();
        let done = run.wait(SOON);
        assert_eq!(done.code(), 67, "{done:?}");
        cluster.assert_left(&done, "after waiting in the queue");
    });
}

#[test]
fn a_job_is_left_if_no_question_about_it_has_ended() {
    run(&json!({ "hangs": true }), |cluster| {
        cluster.assert_late_and_left("looking for what to attach to");
    });
}

#[test]
fn a_job_that_runs_is_left_where_it_cannot_be_attached_to() {
    let here = nix::unistd::gethostname().expect("a name").into_string().expect("a name in UTF-8");
    run(&json!({ "broken": [here] }), |cluster| {
        let done = cluster.gantry(&["submit", "--wlm", "fake", "--", "/bin/sh", "-c", UNTIL_GO]).wait(SOON);
        cluster.assert_left(&done, "the node does not start anything");
    });
}

#[test]
fn a_step_that_has_ended_gives_way_to_the_next_one() {
    run(&json!({}), |cluster| {
        let (mut run, [one, other]) = cluster.attaching_to_a_step(&["--json", "submit"]);
        proc::send(one, Signal::SIGKILL);
        proc::wait_gone(one, SOON);
        cluster.is_in_step(other);
        cluster.becomes(&json!({}));
        assert_eq!(run.next_event("attached", SOON)["ranks"][0]["pid"], other);
        cluster.go();
        run.exited(SOON);
        assert_eq!(cluster.end(), "0");
    });
}

#[test]
fn a_step_is_not_left_for_another_one_that_begins_beside_it() {
    let here = nix::unistd::gethostname().expect("a name").into_string().expect("a name in UTF-8");
    run(&json!({}), move |cluster| {
        let (mut run, [one, other]) = cluster.attaching_to_a_step(&["submit"]);
        cluster.is_in_step(other);
        cluster.becomes(&json!({ "broken": [here] }));
        cluster.assert_left(&run.wait(SOON), "the node does not start anything");
        assert_eq!(cluster.read("attachments"), Some(format!("1.{one}")));
    });
}

#[test]
fn a_job_is_left_if_nobody_knows_whether_the_ranks_that_were_found_have_ended() {
    run(&json!({}), |cluster| {
        let (mut run, [one, _]) = cluster.attaching_to_a_step(&["submit", "--timeout", "10"]);
        proc::send(one, Signal::SIGKILL);
        proc::wait_gone(one, SOON);
        cluster.becomes(&json!({ "hangs": true }));
        cluster.assert_left(&run.wait(SOON), "");
    });
}

/// Kills guards, which end with their children.
#[track_caller]
fn kill_guards(guards: &[i32]) {
    assert!(!guards.is_empty(), "no guard");
    for guard in guards {
        proc::send(*guard, Signal::SIGKILL);
        proc::wait_gone(*guard, SOON);
    }
}

#[test]
fn a_job_that_waits_is_cancelled_when_its_guard_is_killed() {
    for words in ["launch", "submit"] {
        run(&json!({ "queue_ms": FOREVER_MS }), move |cluster| {
            let mut run = cluster.gantry(&["--json", words, "--wlm", "fake", "--", "/bin/true"]);
            run.next_event("waiting", SOON);
            kill_guards(&guards(&cluster.world));
            let done = run.wait(SOON);
            let error = "lost job 1: it was cancelled, because it had no owner: the guard is gone";
            assert!(done.stdout.concat().contains(error), "{done:?}");
            assert_eq!(cluster.end(), "cancelled");
        });
    }
}

#[test]
fn an_attachment_to_a_submitted_job_does_not_need_the_guard_that_it_had_in_the_queue() {
    run(&json!({ "silent": true }), |cluster| {
        let words = ["--json", "submit", "--wlm", "fake", "--", "/bin/sh", "-c", UNTIL_GO];
        let mut run = cluster.gantry(&words);
        run.next_event("waiting", SOON);
        let owners = guards(&cluster.world);
        cluster.becomes(&json!({ "stuck": true }));
        assert!(becomes_true(SOON, || cluster.read("attachments").is_some()), "nothing is attached to");
        kill_guards(&owners);
        cluster.becomes(&json!({}));
        run.next_event("attached", SOON);
        cluster.go();
        assert_eq!(run.wait(SOON).code(), 0);
        assert_eq!(cluster.end(), "0");
    });
}

#[test]
fn a_watch_waits_for_a_job_that_has_not_started_yet() {
    run(&json!({ "queue_ms": FOREVER_MS }), |cluster| {
        let steps = programs::get("steps");
        let steps = steps.to_str().expect("a path");
        let mut run = cluster.gantry(&["--json", "submit", "--wlm", "fake", "--", steps, "hang"]);
        assert_eq!(run.next_event("submitted", SOON)["job"], "1");
        let words = ["why", "--wlm", "fake", "--wait=5m", "--watch=1s", "--every", "0.2", "--exit", "1"];
        let mut watch = cluster.gantry(&words);
        watch.stderr_line("waits for nodes (Resources)", SOON);
        cluster.gives_nodes();
        let done = watch.wait(SOON);
        assert_eq!(done.code(), 75, "{done:?}");
        let attached = run.next_event("attached", SOON);
        let rank = attached["ranks"][0]["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok());
        proc::send(rank.expect("a pid"), Signal::SIGKILL);
        run.exited(SOON);
        cluster.end();
    });
}

#[test]
fn parts_of_a_job_start_together_whatever_their_queue() {
    run(&json!({ "queue_ms": 500 }), |cluster| {
        let part =
            |contact: &str| format!("(&(resourceManagerContact={contact})(count=2)(executable=/bin/true))");
        let job = format!("+{}{}", part("fake"), part("localhost"));
        let done = cluster.gantry(&["--json", "coalloc", &job]).wait(SOON);
        assert_eq!(done.code(), 0, "{done:?}");
        let exited = done.events().into_iter().find(|event| event["event"] == "job_exited").expect("an end");
        assert_eq!(exited["subjobs"].as_array().map(Vec::len), Some(2), "{exited}");
    });
}

#[test]
fn gdb_outlives_a_node_that_is_late_and_takes_no_answer_for_another() {
    require!(tool("gdb"));
    run_for(3 * LIMIT, &json!({}), |cluster| {
        let program = programs::get("rounds");
        let own = ["--json", "gdb", "--wlm", "fake", "--timeout", "8", "--", "-n", "2", "-N", "2"];
        let mut run = cluster.gantry(&[&own[..], &[program.to_str().expect("a path"), "1000"]].concat());
        let answered = |run: &mut Run, command: &str, text: &str| {
            let line = run.next_line(3 * SOON);
            let said: Value = serde_json::from_str(&line).expect("JSON");
            assert_eq!((&said["command"], &said["classes"][0]["ranks"]), (&json!(command), &json!("0-1")));
            assert_eq!(said["classes"][0]["text"], text, "{line}");
        };
        run.write(b"print 40 + 1\n");
        answered(&mut run, "print 40 + 1", "$1 = 41");
        let agent = cluster.read("agents/fake2").expect("an agent").parse().expect("a pid");
        proc::send(agent, Signal::SIGSTOP);
        run.write(b"print 40 + 2\n");
        let late = run.next_line(3 * SOON);
        assert!(late.contains("no answer from fake2"), "{late}");
        proc::send(agent, Signal::SIGCONT);
        answered(&mut run, "print 40 + 2", "$2 = 42");
        run.write(b"print 40 + 3\n");
        answered(&mut run, "print 40 + 3", "$3 = 43");
        run.write(b"quit\n");
        assert_eq!(run.wait(SOON).code(), 0);
    });
}

#[test]
fn a_signal_ends_gdb_while_it_waits_for_a_node_to_open_its_session() {
    run(&json!({}), |cluster| {
        let launch = ["launch", "--background", "--hold", "--wlm", "fake", "--", "-n", "2", "-N", "2"];
        let done = cluster.gantry(&[&launch[..], &["/bin/true"]].concat()).wait(SOON);
        assert_eq!(done.code(), 0, "{done:?}");
        let app = done.stdout.concat();
        let agent = cluster.read("agents/fake2").expect("an agent").parse().expect("a pid");
        proc::send(agent, Signal::SIGSTOP);
        let mut run = cluster.gantry(&["gdb", "--batch", &app]);
        let stage = cluster.world.stage_dir();
        assert!(becomes_true(SOON, || has_file(&stage, "s1.lease")), "no node has its session");
        proc::send(run.pid(), Signal::SIGINT);
        assert_eq!(run.wait(SOON / 2).code(), 130);
        proc::send(agent, Signal::SIGCONT);
        assert_eq!(cluster.gantry(&["kill", "--yes", &app]).wait(SOON).code(), 0);
    });
}

#[test]
fn a_submission_that_fails_ends_when_its_job_is_gone() {
    run(&json!({ "queue_ms": FOREVER_MS }), |cluster| {
        let words = ["--json", "submit", "--wlm", "fake", "--queue-timeout", "2", "--", "/bin/true"];
        let mut run = cluster.gantry(&words);
        run.next_event("waiting", SOON);
        // The cluster takes its time.
        let (job, cancel) = (cluster.folder().join("jobs/1"), cluster.read("cancel").expect("a script"));
        let until_gone = format!("until [ -e {}/end ]; do sleep 0.05; done", job.display());
        fs::write(job.join("slow"), format!("sleep 1\n{cancel}\n{until_gone}\n")).expect("a file");
        fs::rename(job.join("slow"), job.join("cancel")).expect("a file");
        assert_eq!(run.wait(SOON).code(), 67);
        assert_eq!(cluster.read("end").as_deref(), Some("cancelled"));
    });
}

#[test]
fn every_command_that_launches_says_what_it_waits_for_and_for_how_long_it_may() {
    let commands: [&[&str]; 2] = [&["gdb", "--batch"], &["stack", "--launch"]];
    for command in commands {
        run(&json!({ "queue_ms": FOREVER_MS }), move |cluster| {
            let rest = ["--wlm", "fake", "--queue-timeout", "0.3", "--", "/bin/true"];
            let done = cluster.gantry(&[command, &rest].concat()).wait(SOON);
            assert_eq!(done.code(), 67, "{done:?}");
            for part in ["submitted job 1", "waits for nodes (Resources)", "in the queue"] {
                assert!(done.stderr.iter().any(|line| line.contains(part)), "{part}: {done:?}");
            }
            assert_eq!(cluster.end(), "cancelled");
        });
    }
}

#[test]
fn doctor_shows_what_it_knows_before_it_waits_for_a_node_and_does_not_wait_long() {
    run(&json!({ "queue_ms": FOREVER_MS }), |cluster| {
        let mut command = cluster.world.gantry_command(["doctor"]);
        command.env("GANTRY_FAKE_SITE", cluster.folder()).env("GANTRY_WLM", "fake");
        let mut run = cluster.world.spawn(command);
        while !run.next_line(SOON).contains("hold method: ") {}
        run.stderr_line("submitted job 1", SOON);
        assert!(cluster.read("end").is_none(), "all is shown at the end");
        let done = run.wait(SOON);
        let is_hold = |line: &&String| line.starts_with("warn  hold: no node ");
        let hold = done.stdout.iter().find(is_hold).unwrap_or_else(|| panic!("{done:?}"));
        assert!(hold.contains("waits for nodes (Resources), after waiting in the queue for "), "{hold}");
        assert_eq!(cluster.end(), "cancelled");
    });
}

/// Whether a file of this name is below a folder.
fn has_file(folder: &Path, name: &str) -> bool {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.into_iter().any(|entry| match entry.file_type().is_ok_and(|kind| kind.is_dir()) {
        true => has_file(&entry.path(), name),
        false => entry.file_name() == name,
    })
}
