//! Staging at its limits: large files, many files, and nodes that cannot store them. Tested with real agents, in
//! roots that lack files of this machine.

#![expect(clippy::unwrap_used, reason = "a test that finds something else fails")]

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gantry_tests::fault::agents;
use gantry_tests::{OtherRoot, Run, World, in_another_root, proc, require, tool};
use nix::sys::signal::Signal;
use serde_json::Value;

const SOON: Duration = Duration::from_secs(60);
/// The timeout for a hundred thousand files on a busy disk.
const LONG: Duration = Duration::from_secs(400);
/// The memory limit of the frontend and of each agent, whatever is sent.
const MOST_MEMORY_KIB: u64 = 64 * 1024;

/// An app with one rank on each of this many nodes, which have no files.
fn launch<A: AsRef<OsStr>>(
    world: &World,
    other: &OtherRoot,
    nodes: &str,
    args: impl IntoIterator<Item = A>,
) -> Run {
    let mut command = other.gantry_command(world, ["launch", "--json", "--hold"]);
    command.args(args).args(["--", "-N", nodes, "-n", nodes, "/bin/sh", "-c", ":"]);
    world.spawn(command)
}

fn end(world: &World, mut app: Run) {
    app.kill();
    app.exited(SOON);
    world.assert_nothing_left();
}

fn number(event: &Value, key: &str) -> u64 {
    event[key].as_u64().unwrap_or_else(|| panic!("{event} has no {key}"))
}

/// Checks the memory of a frontend and of its agents, at their end.
#[track_caller]
fn assert_little_memory(world: &World, app: &Run) {
    let agents = agents(world);
    assert!(!agents.is_empty());
    for (name, pid) in agents.iter().map(|pid| ("an agent", *pid)).chain([("the frontend", app.pid())]) {
        let peak = proc::peak_memory_kib(pid);
        assert!(peak > 0 && peak < MOST_MEMORY_KIB, "{name} had {peak} KiB");
    }
}

/// How many thousand files. The default takes a busy machine some seconds. `GANTRY_TEST_FILES=100000` sets more.
#[expect(clippy::disallowed_methods, reason = "a longer run is requested in the environment")]
fn thousands() -> u64 {
    std::env::var("GANTRY_TEST_FILES").ok().and_then(|count| count.parse().ok()).unwrap_or(30_000_u64) / 1000
}

#[test]
fn many_small_files_come_in_several_orders_and_one_archive_and_in_little_memory() {
    let limit = OtherRoot::LIMIT + Duration::from_secs(5 * thousands());
    in_another_root!(limit, |world, other| {
        let folders = thousands();
        let tree = other.hidden().join("tree");
        for number in 0..folders {
            let folder = tree.join(number.to_string());
            fs::create_dir_all(&folder).unwrap();
            for file in 0..1000 {
                fs::write(folder.join(format!("of-a-long-name-{file}")), format!("{file} of {number}\n"))
                    .unwrap();
            }
        }
        let tool = other.hidden().join("count.sh");
        let text = format!(
            "#!/bin/sh\nset -e\ncd \"$GANTRY_SESSION_DIR/lib/tree\"\nset -- */*\necho $#\n\
            read last < {}/of-a-long-name-999\necho $last\n",
            folders - 1
        );
        other.write_executable(&tool, &text);
        let [dir, daemon, timeout] = ["--dir", "--daemon", "--timeout=300"].map(OsStr::new);
        let args = [timeout, dir, tree.as_os_str(), daemon, tool.as_os_str()];
        let mut app = launch(world, other, "1", args);
        app.next_event("held", SOON);
        let begun = std::time::Instant::now();
        let staged = app.next_event("staged", LONG);
        println!("{} files in {:?}", folders * 1000, begun.elapsed());
        assert_eq!(number(&staged, "files_sent"), folders * 1000 + 1);
        let mut said = String::new();
        while said.lines().count() < 2 {
            said.push_str(app.next_event("output", SOON)["text"].as_str().unwrap());
        }
        assert_eq!(said, format!("{}\n999 of {}\n", folders * 1000, folders - 1));
        assert_little_memory(world, &app);
        end(world, app);
    });
}

#[test]
fn much_comes_to_several_nodes_once_and_in_little_memory() {
    const BYTES: u64 = 200_000_000;
    in_another_root!(|world, other| {
        let big = other.hidden().join("big");
        fs::File::create(&big).unwrap().set_len(BYTES).unwrap();
        // The shell is not sent, because every node has it. It is not small.
        let args = ["--file", big.to_str().unwrap(), "--bin", "/bin/sh", "--daemon", "/usr/bin/env"];
        let mut app = launch(world, other, "3", args);
        let staged = app.next_event("staged", LONG);
        assert_eq!((number(&staged, "nodes"), number(&staged, "files_sent")), (3, 1), "{staged}");
        // A block for the file's name, the padding of its last block, and two blocks at the end.
        let expected = 512 + BYTES.next_multiple_of(512) + 1024;
        assert_eq!(number(&staged, "bytes_sent"), expected, "{staged}");
        assert_little_memory(world, &app);
        end(world, app);
    });
}

/// Starts an app, and then a daemon with a file for its node. Returns the error of the second command.
fn send_in_vain(world: &World, app: &mut Run, mut command: std::process::Command, big: &Path) -> Value {
    let name = app.next_event("held", SOON)["app"].as_str().unwrap().to_owned();
    command.args(["daemon", "--json", &name, "--file"]).arg(big).args(["--", "/bin/sh", "-c", ":"]);
    let done = world.spawn(command).wait(SOON);
    assert_ne!(done.code(), 0, "{done:?}");
    let errors: Vec<Value> = done.events().into_iter().filter(|event| event["event"] == "error").collect();
    assert_eq!(errors.len(), 1, "{done:?}");
    errors[0].clone()
}

/// The session directories below the app directories, as this agent sees them.
fn sessions_of(agent: i32, stage: &Path) -> Vec<PathBuf> {
    let seen = PathBuf::from(format!("/proc/{agent}/root{}", stage.display()));
    let below = |dir: PathBuf| fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_session =
        |path: &PathBuf| path.is_dir() && path.file_name().unwrap().to_str().unwrap().starts_with('s');
    below(seen).flat_map(below).filter(is_session).collect()
}

#[test]
fn a_node_whose_disk_becomes_full_is_named_and_nothing_of_it_stays() {
    in_another_root!(|world, other| {
        let big = other.hidden().join("big");
        fs::File::create(&big).unwrap().set_len(20_000_000).unwrap();
        other.mount("/small", "size=4m");
        let mut app = launch(world, other, "1", ["--stage-dir", "/small"]);
        let told = send_in_vain(world, &mut app, other.gantry_command(world, [""; 0]), &big);
        let message = told["message"].as_str().unwrap();
        assert!(message.contains("unpack \"big\": No space left on device"), "{told}");
        assert!(told["hint"].as_str().unwrap().contains("free some space there"), "{told}");
        let agent = agents(world)[0];
        proc::eventually(SOON, "no half of a session is left", || {
            sessions_of(agent, Path::new("/small")).is_empty()
        });
        end(world, app);
    });
}

/// This kernel may not support quotas. strace injects the quota error into the agent's system call instead.
#[test]
fn a_node_where_the_quota_is_used_up_is_named_and_nothing_of_it_stays() {
    let _strace = require!(tool("strace"));
    in_another_root!(|world, other| {
        let big = other.hidden().join("big");
        fs::File::create(&big).unwrap().set_len(20_000_000).unwrap();
        let mut app = launch(world, other, "1", [""; 0]);
        let held = app.next_event("held", SOON);
        let name = held["app"].as_str().unwrap().to_owned();
        let daemon = |args: &[&str]| {
            let mut command = other.gantry_command(world, ["daemon", "--json", &name]);
            command.args(args);
            world.spawn(command).wait(SOON)
        };
        let done = daemon(&["--", "/bin/sh", "-c", "echo $GANTRY_SESSION_DIR"]);
        let first: String = done.events().iter().filter_map(|event| event["text"].as_str()).collect();
        // The path of the next session, and of the first archive that this agent gets.
        let first = first.trim().strip_suffix("s1").unwrap_or_else(|| panic!("{done:?}"));
        let path = format!("{first}s2/.incoming-1/big");
        let agent = agents(world)[0];
        let mut strace = world.command(tool("strace").unwrap());
        strace.args(["-f", "-p", &agent.to_string(), "-e", "trace=write"]);
        strace.args(["-e", "inject=write:error=EDQUOT:when=3+", "-P", &path]);
        // The same path, seen from outside the root.
        strace.arg("-P").arg(other.inside(Path::new(&path)));
        let mut strace = world.spawn(strace);
        strace.stderr_line("attached", SOON);

        let done = daemon(&["--file", big.to_str().unwrap(), "--", "/bin/sh", "-c", ":"]);
        assert_ne!(done.code(), 0, "{done:?}");
        let told = done.events().into_iter().find(|event| event["event"] == "error").expect("an error");
        let message = told["message"].as_str().unwrap();
        assert!(message.contains("unpack \"big\": Disk quota exceeded"), "{told}");
        assert!(told["hint"].as_str().unwrap().contains("free some space there"), "{told}");
        proc::eventually(SOON, "no half of a session is left", || {
            sessions_of(agent, &world.stage_dir()).is_empty()
        });
        strace.signal(Signal::SIGINT);
        strace.exited(SOON);
        // The agent still works.
        let done = daemon(&["--", "/bin/sh", "-c", ":"]);
        assert_eq!(done.code(), 0, "{done:?}");
        end(world, app);
    });
}

#[test]
fn a_file_that_is_gone_when_its_turn_comes_is_named_and_no_session_stays() {
    in_another_root!(|world, other| {
        let [big, later] = ["big", "later"].map(|name| other.hidden().join(name));
        fs::File::create(&big).unwrap().set_len(400_000_000).unwrap();
        fs::write(&later, "some text").unwrap();
        let mut app = launch(world, other, "1", [""; 0]);
        let name = app.next_event("held", SOON)["app"].as_str().unwrap().to_owned();
        let mut command = other.gantry_command(world, ["daemon", "--json", &name, "--file"]);
        command.arg(&big).arg("--file").arg(&later).args(["--", "/bin/sh", "-c", ":"]);
        let mut daemon = world.spawn(command);
        daemon.next_event("staging", SOON);
        fs::remove_file(&later).unwrap();
        let done = daemon.wait(SOON);
        assert_ne!(done.code(), 0, "{done:?}");
        let told = done.events().into_iter().find(|event| event["event"] == "error").expect("an error");
        let expected = format!("cannot send {}: No such file or directory", later.display());
        assert!(told["message"].as_str().unwrap().starts_with(&expected), "{told}");
        let agent = agents(world)[0];
        proc::eventually(SOON, "no half of a session is left", || {
            sessions_of(agent, &world.stage_dir()).is_empty()
        });
        end(world, app);
    });
}
