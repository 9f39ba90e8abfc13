//! The client of PBS's task management. One suite runs everywhere against a stand-in, and against a real OpenPBS if
//! one is installed.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Stdio;
use std::time::Duration;

use gantry_tests::pbs::cases::CASES;
use gantry_tests::pbs::{Job, StandIn, said, submit};
use gantry_tests::testbed::config::HOME;
use gantry_tests::testbed::pbs::installation;
use gantry_tests::testbed::{Config, Shared, shared, usable};
use gantry_tests::{SOON, World, binaries, eventually, proc, require, within};
use gantry_wlm::pbs::tm::EventId;
use gantry_wlm::pbs::tm::blocking::{Polled, Session};
use gantry_wlm::pbs::tm::dis::Reader;
use gantry_wlm::pbs::tm::reply::ReplyHead;
use gantry_wlm::pbs::tm::{
    Caller, Client, Command, Cookie, Framing, Loss, NodeId, Spawn, Task, TaskId, TmError, packet,
};

/// The timeout of a whole test.
const LIMIT: Duration = Duration::from_secs(300);

/// How long to wait for an event that must not come.
const NEVER: Duration = Duration::from_millis(500);

fn probe() -> std::path::PathBuf {
    binaries().dir.join("tm_probe")
}

/// Fails with all output if a case has not passed.
#[track_caller]
fn assert_all_passed(said: &str) {
    for (name, _) in CASES {
        assert!(said.lines().any(|line| line == format!("passed {name}")), "{name} has not passed:\n{said}");
    }
}

#[test]
fn the_suite_passes_against_the_stand_in() {
    within(LIMIT, || {
        let world = World::new();
        let mom = StandIn::start(&world, &[]);
        let output =
            mom.script(&world, probe()).arg("cases").stdin(Stdio::null()).output().expect("the suite");
        assert_all_passed(&String::from_utf8_lossy(&[output.stdout, output.stderr].concat()));
        drop(mom);
        world.finish();
    });
}

#[test]
fn of_a_dead_mom_nothing_is_heard_and_others_go_on() {
    within(LIMIT, || {
        let world = World::new();
        let mut mom = StandIn::start(&world, &[]);
        let folder = world.work_dir();
        let mut script = mom.script(&world, probe());
        let child = script.arg("outlive").arg(&folder).stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let child = child.expect("the script");
        proc::wait_file(&folder.join("ready"), SOON);
        mom.die(2);
        std::fs::write(folder.join("dead"), "").expect("written");
        let output = child.wait_with_output().expect("the script");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "passed outlive\n");
        drop(mom);
        world.finish();
    });
}

#[test]
fn a_task_that_comes_after_its_deadline_is_killed() {
    within(LIMIT, || {
        let world = World::new();
        let mom = StandIn::start(&world, &["--slowness", "1000"]);
        runtime().block_on(async {
            let client = Client::connect(&mom.environment(), Framing::Packets, SOON).await.expect("a mom");
            let sleeper = Spawn::new(["/bin/sleep", "300"]);
            let error = client.spawn(NodeId(4), sleeper, NEVER).await.expect_err("too late");
            assert!(matches!(error, TmError::TimedOut { .. }), "{error}");
            // The mom answers in order, so by then the late task is known.
            let there = client.task_info(NodeId(4), SOON).await.expect("a list");
            let [task] = there[..] else { panic!("one task has come: {there:?}") };
            assert_eq!(client.obit(task).await.expect("an end"), 256 + libc::SIGKILL);
        });
        drop(mom);
        world.finish();
    });
}

#[test]
fn the_end_of_a_job_is_told_task_by_task_and_then_the_mom_hangs_up() {
    within(LIMIT, || {
        let world = World::new();
        let mut mom = StandIn::start(&world, &[]);
        runtime().block_on(async {
            let client = Client::connect(&mom.environment(), Framing::Packets, SOON).await.expect("a mom");
            let spawn = |node| client.spawn(NodeId(node), Spawn::new(["/bin/sleep", "300"]), SOON);
            let tasks = [spawn(0).await, spawn(2).await, spawn(4).await].map(|task| task.expect("a task"));
            let [first, second, third] = tasks.map(|task| client.obit(task));
            mom.end_job();
            let (first, second, third) = tokio::join!(first, second, third);
            for status in [first, second, third] {
                assert_eq!(status.expect("an end"), 256 + libc::SIGKILL);
            }
            let error =
                client.obit(Task { id: TaskId(1), node: NodeId(0) }).await.expect_err("no mom any more");
            assert!(matches!(error, TmError::Lost { loss: Loss::HungUp, .. }), "{error}");
        });
        drop(mom);
        world.finish();
    });
}

#[test]
fn blocking_callers_need_no_runtime() {
    within(LIMIT, || {
        let world = World::new();
        let mom = StandIn::start(&world, &[]);
        let mut session = Session::start(mom.environment(), Framing::Packets, SOON).expect("a mom");
        assert!(matches!(session.poll(true), Ok(Polled::Idle)));
        let mut begin = |command: Command| session.begin(&command).expect("sent");
        // More than a mom reads at once, so that sending blocks sometimes.
        let large = |node| Spawn::new(["true"]).variable("PADDING", "p".repeat(20_000)).on(NodeId(node));
        let mut wanted: Vec<EventId> = (0..60).map(|index| begin(large(index % 6))).collect();
        let bad = begin(Command::Tasks { node: NodeId(77) });
        wanted.push(bad);
        while !wanted.is_empty() {
            match session.poll(true).expect("the connection stands") {
                Polled::Ended(ended) => {
                    assert_eq!(ended.outcome.is_err(), ended.event == bad, "{ended:?}");
                    wanted.retain(|event| *event != ended.event);
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(session.node_of(TaskId(2)), Some(NodeId(0)));
        let obit = Command::Obit { node: NodeId(0), task: TaskId(1) };
        session.begin(&obit).expect("sent");
        assert!(matches!(session.poll(false), Ok(Polled::NotYet)));
        drop(mom);
        let lost = session.poll(true).expect_err("the mom is gone");
        assert!(matches!(lost, TmError::Lost { loss: Loss::HungUp, .. }), "{lost}");
        assert!(matches!(session.poll(true), Ok(Polled::Idle)));
        world.finish();
    });
}

/// Sends bytes in these pieces. Returns the answered events, and whether the mom disconnected.
fn heard(port: u16, pieces: &[&[u8]]) -> (Vec<i32>, bool) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("the stand-in");
    stream.set_read_timeout(Some(NEVER)).expect("a time");
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
    let mut hung_up = false;
    for piece in pieces {
        stream.write_all(piece).expect("written");
        // The mom may send nothing between two pieces. The read timeout then separates the writes.
        while let Ok(length) = stream.read(&mut buffer) {
            hung_up |= length == 0;
            bytes.extend_from_slice(&buffer[..length]);
            if length == 0 {
                break;
            }
        }
    }
    let mut events = Vec::new();
    let mut rest = &bytes[..];
    while let Ok(Some((message, length))) = packet::open(rest, 1 << 20) {
        assert_eq!(rest[6], 0x79, "the type is whatever");
        events.push(ReplyHead::decode(&mut Reader::new(message)).expect("a reply").event.0);
        rest = &rest[length..];
    }
    (events, hung_up)
}

/// Recorded from real moms. `tests/fixtures/pbs/*/good-and-bad` has each case.
#[test]
fn the_stand_in_is_as_fussy_as_real_moms() {
    within(LIMIT, || {
        let world = World::new();
        let mom = StandIn::start(&world, &[]);
        let message = |cookie: &str, node: i32, event: i32| {
            let caller = Caller { job: Job::ID.into(), cookie: Cookie::new(cookie), task: TaskId::SCRIPT };
            Command::Tasks { node: NodeId(node) }.encode(&caller, EventId(event)).expect("a request").to_vec()
        };
        let seal = |message: &[u8]| packet::seal(message).expect("a packet");
        let good = seal(&message(Job::COOKIE, 0, 7));
        let check = |what: &str, pieces: &[&[u8]], expected: (&[i32], bool)| {
            let (events, hung_up) = heard(mom.port(), pieces);
            assert_eq!((&events[..], hung_up), expected, "{what}");
        };
        check("good", &[&good], (&[7], false));
        let mut odd = good.clone();
        odd[6] = 7;
        check("another type", &[&odd], (&[7], false));
        check(
            "two packets at once",
            &[&[&good[..], &seal(&message(Job::COOKIE, 1, 8))].concat()],
            (&[7, 8], false),
        );
        let both = [message(Job::COOKIE, 0, 7), message(Job::COOKIE, 1, 8)].concat();
        check("two requests in a packet", &[&seal(&both)], (&[7, 8], false));
        check("a packet in two pieces", &[&good[..20], &good[20..]], (&[], false));
        check("no packet", &[&good[11..]], (&[], false));
        check("no packet, then a good one", &[&good[11..], &good], (&[7], false));
        let cut = message(Job::COOKIE, 0, 7);
        check("a request without its end", &[&seal(&cut[..cut.len() - 2])], (&[], false));
        check("a wrong cookie", &[&seal(&message("0", 0, 7))], (&[], true));
        check("no cookie", &[&seal(&message("", 0, 7))], (&[], true));
        check("a node below zero", &[&seal(&message(Job::COOKIE, -1, 7))], (&[], true));
        check("an unknown node", &[&seal(&message(Job::COOKIE, 99, 7))], (&[7], false));
        check("no numbers", &[&seal(b"hello world")], (&[], true));
        let mut third = message(Job::COOKIE, 0, 7);
        third[3] = b'3';
        check("version 3", &[&seal(&third)], (&[], true));
        drop(mom);
        world.finish();
    });
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Runs a test on a testbed of three nodes with a real PBS.
fn real(config: Config, body: impl FnOnce(&mut Shared) + Send + 'static) {
    within(LIMIT, move || {
        let mut bed = shared(&config);
        body(&mut bed);
        bed.assert_nothing_left(SOON);
    });
}

fn config() -> Result<Config, String> {
    let config = Config::with_nodes(3).managed_by_pbs(installation()?);
    usable(&config).map(|()| config)
}

#[test]
fn the_suite_passes_against_a_real_pbs() {
    let config = require!(config());
    real(config, |bed| {
        submit(bed, &format!("{} cases", probe().display()));
        assert_all_passed(&said(bed, LIMIT));
    });
}

#[test]
fn of_a_real_mom_that_was_killed_nothing_is_heard_and_others_go_on() {
    let config = require!(config());
    real(config, |bed| {
        let home = bed.login().path(HOME).expect("the login node");
        for name in ["ready", "dead"] {
            drop(std::fs::remove_file(home.join(name)));
        }
        let job = submit(bed, &format!("{} outlive $HOME", probe().display()));
        proc::wait_file(&home.join("ready"), SOON * 3);
        bed.node(3).kill_daemon("pbs_mom").expect("it runs");
        std::fs::write(home.join("dead"), "").expect("written");
        let said = said(bed, SOON * 3);
        assert!(said.contains("passed outlive\nended 0\n"), "{said}");
        // The processes of the dead mom are not ended. A node that was powered off and on has a new mom.
        let mut qdel = bed.login().command("qdel").expect("the login node");
        let _it_may_have_gone = qdel.args(["-W", "force", &job]).stderr(Stdio::null()).status();
        bed.node(3).power_off().expect("it was on");
        bed.node(3).power_on().expect("it was off");
        eventually(SOON * 6, "the node is back", || bed.wait_idle(Duration::ZERO).is_ok());
    });
}
