//! Process groups that a message starts on this machine: mixed specifications, repeated hosts, co-processes, and
//! their records after the end.

#![expect(clippy::unwrap_used, reason = "a test that finds something else fails")]

use std::fs;
use std::time::Duration;

use gantry_frontend::procgroup::xml::{Element, parse_document};
use gantry_tests::{Finished, World, eventually, in_a_world, proc, programs};
use nix::sys::signal::Signal;

const SOON: Duration = Duration::from_secs(20);
const LIMIT: Duration = Duration::from_secs(120);

fn gantry(world: &World, args: &[&str]) -> Finished {
    world.gantry(args).wait(SOON)
}

/// The process manager's answer to a message.
fn ask(world: &World, message: &str) -> Element {
    let mut run = world.gantry(["pm"]);
    run.write(message.as_bytes());
    run.close_stdin();
    let done = run.wait(SOON);
    assert_eq!(done.code(), 0, "{done:?}");
    parse_document(done.stdout.join("\n").as_bytes()).unwrap()
}

/// The attributes of an element, as text.
fn show(element: &Element) -> String {
    let pairs = element.attributes.iter().map(|(name, value)| format!("{name}={value}"));
    pairs.collect::<Vec<_>>().join(" ")
}

/// The processes of the first group of an answer.
fn processes(answer: &Element) -> Vec<String> {
    let group = answer.all("process-group").next().unwrap();
    group.all("process").map(show).collect()
}

fn forget(world: &World, pgid: u32) -> Element {
    ask(world, &format!("<del-process-group-info pgid='{pgid}'/>"))
}

fn host() -> String {
    nix::unistd::gethostname().unwrap().into_string().unwrap()
}

#[test]
fn a_group_of_mixed_processes_on_repeated_hosts_is_as_it_was_asked_for() {
    in_a_world(LIMIT, |world| {
        let (work, host) = (world.work_dir().display().to_string(), host());
        let reporter = programs::get("report_signal");
        fs::create_dir(world.work_dir().join("bin")).unwrap();
        let slave = world.executable("bin/slave", &fs::read(&reporter).unwrap());
        let master = world.executable("master", &fs::read(&reporter).unwrap());
        let created = ask(
            world,
            &format!(
                "<create-process-group submitter='desai' pgid='*' totalprocs='5' output='{work}/log'>
                  <process-spec exec='./master' cwd='{work}' range='1'> <env name='LEVEL' val='3'/> </process-spec>
                  <process-spec exec='slave' path='{work}/bin' cwd='/' range='2-3,5'> <arg idx='1' val='-v'/> <arg idx='2' value='two words'/> </process-spec>
                  <process-spec exec='/bin/sleep' range='4'> <arg idx='1' val='1000'/> </process-spec>
                  <host-spec> {host}.1 {host}.%d:0-1,1 {host}.1 </host-spec>
                </create-process-group>"
            ),
        );
        assert_eq!((created.name.as_str(), show(&created).as_str()), ("process-group", "pgid=1"));
        let query = "<get-process-group><process-group submitter='desai' pgid='*' totalprocs='*' state='*'>
            <process-group-restriction pid='*' exec='*' host='*' rank='*'/></process-group></get-process-group>";
        let answer = ask(world, query);
        assert_eq!(show(&answer.children[0]), "submitter=desai pgid=1 totalprocs=5 state=running");
        let expected: Vec<String> = [
            (1, &*master),
            (0, &*slave),
            (1, &*slave),
            (1, std::path::Path::new("/usr/bin/sleep")),
            (1, &*slave),
        ]
        .iter()
        .zip(0..)
        .map(|((node, exec), rank)| format!("exec={} host={host}.{node} rank={rank}", exec.display()))
        .collect();
        let told = processes(&answer);
        let without_pid =
            |line: &String| line.split_once(' ').unwrap().1.replace("=/bin/sleep", "=/usr/bin/sleep");
        assert_eq!(told.iter().map(without_pid).collect::<Vec<_>>(), expected);
        // The system reports the same.
        let pids: Vec<i32> =
            told.iter().map(|line| line[4..].split(' ').next().unwrap().parse().unwrap()).collect();
        assert_eq!(proc::variable(pids[0], "LEVEL").as_deref(), Some("3"));
        assert_eq!(proc::variable(pids[1], "LEVEL"), None);
        assert_eq!(
            proc::command_line(pids[4]).split_whitespace().collect::<Vec<_>>(),
            ["slave", "-v", "two", "words"]
        );
        let cwd = |pid: i32| fs::read_link(format!("/proc/{pid}/cwd")).unwrap();
        assert_eq!((cwd(pids[0]), cwd(pids[1])), (world.work_dir(), "/".into()));
        assert_eq!(proc::variable(pids[1], "PATH"), Some(format!("{work}/bin")));

        let log = world.work_dir().join("log");
        let said = |line: &str| {
            fs::read_to_string(&log).unwrap_or_default().lines().filter(|it| *it == line).count()
        };
        eventually(SOON, "ready programs", || said("ready") == 4);
        let hit = format!(
            "<signal-process-group signal='SIGCONT'><process-group pgid='*'><process-group-restriction exec='slave' host='{host}.0'/></process-group></signal-process-group>"
        );
        assert_eq!(show(&ask(world, &hit).children[0]), "pgid=1");
        eventually(SOON, "the signal", || said("got SIGCONT") == 4);

        assert_eq!(forget(world, 1).all("error").count(), 1, "a group that runs was forgotten");
        ask(world, "<kill-process-group pgid='1'/>");
        assert!(pids.iter().all(|pid| !proc::is_alive(*pid)));
        // The group's record is kept until it is deleted. Then nothing is left.
        let ended =
            ask(world, "<get-process-group-info><process-group submitter='desai'/></get-process-group-info>");
        let group = &ended.children[0];
        assert_eq!((group.attribute("state"), group.attribute("exit-code")), (Some("ended"), Some("137")));
        assert_eq!(gantry(world, &["ps", "--json"]).stdout, ["[]"]);
        assert_eq!(gantry(world, &["kill", "pgid=1"]).code(), 65);
        assert_eq!(show(&forget(world, 1).children[0]), "pgid=1");
        assert!(ask(world, query).children.is_empty());
    });
}

#[test]
fn a_failed_start_is_reported_and_leaves_nothing() {
    in_a_world(LIMIT, |world| {
        let check = |inside: &str, kind: &str, part: &str| {
            let answer = ask(world, &format!("<create-process-group>{inside}</create-process-group>"));
            assert_eq!(answer.attribute("kind"), Some(kind), "{answer:?}");
            assert!(answer.attribute("reason").unwrap().contains(part), "{answer:?}, expected {part}");
        };
        let bad = "<process-spec exec='/bin/sleep' range='1'><arg idx='1' val='9'/></process-spec><process-spec exec='/no/such' range='2'/>";
        check(bad, "not-found", "/no/such");
        check(
            "<process-spec exec='/bin/true'/><host-spec>elsewhere</host-spec>",
            "invalid",
            "'elsewhere' is not this machine",
        );
        check("<process-spec exec='/bin/true' user='no-such-user'/>", "no-access", "cannot be started by");
        check("<process-spec exec='a' range='1,3'/>", "invalid", "processes 2 are not specified");
        // A killed process is gone a moment after its kill.
        eventually(SOON, "nothing is left", || world.processes().is_empty());
    });
}

#[test]
fn a_co_process_runs_before_the_ranks_do() {
    in_a_world(LIMIT, |world| {
        let (ran, work) = (world.work_dir().join("ran"), world.work_dir().display().to_string());
        let waiter = programs::get("touch_and_wait").display().to_string();
        let spec = |daemon: &str| {
            format!(
                "<create-process-group totalprocs='2'>
                  <process-spec exec='{waiter}' range='1' co-process='{daemon}'> <arg idx='1' val='{}'/> </process-spec>
                  <process-spec exec='{waiter}' range='2'> <arg idx='1' val='{}'/> </process-spec>
                  <host-spec>{host}.0 {host}.1</host-spec>
                </create-process-group>",
                ran.display(),
                ran.display(),
                host = host(),
            )
        };
        // A co-process that cannot be started. No rank may have run.
        let refused = ask(world, &spec("/no/such/daemon"));
        assert_eq!(refused.name, "error");
        assert!(!ran.exists(), "ranks ran without their co-process");
        let script = format!("#!/bin/sh\necho $GANTRY_NODE $1 >> {work}/beside\nexec sleep 1000\n");
        world.executable("daemon", script.as_bytes());
        // The group that could not be started also used a number. The path is based on the directory of the message.
        assert_eq!(show(&ask(world, &spec("./daemon -x"))), "pgid=2");
        proc::wait_file(&ran, SOON);
        eventually(SOON, "the co-process", || {
            // The co-process runs only on the node of its own processes.
            fs::read_to_string(world.work_dir().join("beside")).unwrap_or_default() == "0 -x\n"
        });
        let sessions = gantry(world, &["ps", "--json", "session=1 pgid=*"]);
        assert_eq!(sessions.stdout, ["[{\"pgid\":2,\"session\":\"1\"}]"]);
        ask(world, "<kill-process-group pgid='2'/>");
        forget(world, 2);
    });
}

#[test]
fn a_waiting_client_learns_how_groups_have_ended() {
    in_a_world(LIMIT, |world| {
        let log = world.work_dir().join("log");
        let create = format!(
            "<create-process-group totalprocs='2' output='{}'><process-spec exec='{}'/></create-process-group>",
            log.display(),
            programs::get("report_signal").display()
        );
        assert_eq!(show(&ask(world, &create)), "pgid=1");
        let lines = |line: &str| {
            fs::read_to_string(&log).unwrap_or_default().lines().filter(|it| *it == line).count()
        };
        eventually(SOON, "ready programs", || lines("ready") == 2);
        let late = ask(world, "<wait-process-group timeout='1' pgid='1'/>");
        assert_eq!((late.name.as_str(), late.attribute("kind")), ("error", Some("timed-out")));
        assert!(late.attribute("reason").unwrap().contains("process group 1"), "{late:?}");
        let mut wait = world.gantry(["pm"]);
        let message = "<wait-process-group><process-group pgid='1' state='*' exit-code='*'><process-group-restriction state='*'/></process-group></wait-process-group>";
        wait.write(message.as_bytes());
        wait.close_stdin();
        assert_eq!(gantry(world, &["signal", "TERM", "pgid=1"]).code(), 0);
        let done = wait.wait(SOON);
        let answer = parse_document(done.stdout.join("\n").as_bytes()).unwrap();
        let group = &answer.children[0];
        assert_eq!((group.attribute("state"), group.attribute("exit-code")), (Some("ended"), Some("55")));
        assert_eq!(processes(&answer), ["state=exited", "state=exited"]);
        assert_eq!(lines("got SIGTERM"), 2);
        let refused =
            ask(world, "<checkpoint-process-group><process-group pgid='1'/></checkpoint-process-group>");
        assert_eq!(refused.attribute("kind"), Some("unsupported"));
        forget(world, 1);
    });
}

#[test]
fn an_owner_that_is_asked_to_end_takes_its_group_along_and_a_killed_one_too() {
    in_a_world(LIMIT, |world| {
        let create = "<create-process-group totalprocs='2'><process-spec exec='/bin/sleep'><arg idx='1' val='1000'/></process-spec></create-process-group>";
        for (pgid, signal) in [(1, Signal::SIGTERM), (2, Signal::SIGKILL)] {
            assert_eq!(show(&ask(world, create)), format!("pgid={pgid}"));
            let apps: serde_json::Value =
                serde_json::from_str(&gantry(world, &["ps", "--json"]).stdout[0]).unwrap();
            let owner = i32::try_from(apps[0]["owner"].as_i64().unwrap()).unwrap();
            proc::send(owner, signal);
            eventually(SOON, "an end of all", || world.processes().is_empty());
            assert_eq!(gantry(world, &["ps", "--json", "pgid=*"]).stdout, ["[]"]);
        }
    });
}
