//! Strangers at every port of a launch: thousands of connections that never authenticate, from another user and from
//! our own.
//!
//! Each test has its own network namespace, so that the crowd reaches no other program.

#![expect(clippy::unwrap_used, reason = "a test that finds something else fails")]

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use gantry_tests::{Run, World, binaries, record_skip, within, write_executable};
use nix::fcntl::{Flock, FlockArg};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::Signal;

const SOON: Duration = Duration::from_secs(60);
const LIMIT: Duration = Duration::from_secs(300);
/// The numbers of connections to the frontend's port and to the port of each agent.
const CROWD: (usize, usize) = (2000, 100);
/// The user `nobody`, and the user that runs the tests.
const USERS: [&str; 2] = ["65534", "0"];

/// A world whose processes have their own loopback interface. None: this user may not have one.
fn alone() -> Option<World> {
    if !nix::unistd::geteuid().is_root() || unshare(CloneFlags::CLONE_NEWNET).is_err() {
        record_skip("only root has a network namespace and another user to attack from");
        return None;
    }
    let world = World::new();
    let mut up = world.command("ip");
    up.args(["link", "set", "lo", "up"]);
    assert_eq!(world.spawn(up).wait(SOON).code(), 0, "no loopback");
    Some(world)
}

/// A gantry whose agents wait at a gate before they start.
struct Gated {
    folder: PathBuf,
    gate: PathBuf,
}

impl Gated {
    fn new(world: &World) -> Self {
        let folder = world.path().join("installed");
        let gate = folder.join("gate");
        fs::create_dir(&folder).unwrap();
        File::create(&gate).unwrap();
        let real = binaries();
        symlink(&real.guard, folder.join("gantry-guard")).unwrap();
        let agent = folder.join("gantry-agent");
        let script = format!(
            "#!/bin/sh\nflock --shared {} true\nexec {} \"$@\"\n",
            gate.display(),
            real.agent.display()
        );
        write_executable(&agent, script);
        Self { folder, gate }
    }

    /// Measures a launch from the moment its agents may connect, while `crowd` keeps its connections to the
    /// frontend's port.
    fn launch(&self, world: &World, crowd: &mut Run) -> Duration {
        let gate = Flock::lock(File::open(&self.gate).unwrap(), FlockArg::LockExclusive).unwrap();
        let mut command = world.command(&binaries().gantry);
        command.args(["launch", "--", "-n", "64", "-N", "16", "/bin/true"]);
        command.env("GANTRY_INSTALL_DIR", &self.folder);
        let mut launched = world.spawn(command);
        assert_eq!(crowd.next_line(SOON), "stands");
        let start = Instant::now();
        drop(gate);
        let launched = launched.wait(SOON);
        assert_eq!(launched.code(), 0, "{launched:?}");
        start.elapsed()
    }
}

fn crowd(world: &World, user: &str, (first, others): (usize, usize)) -> Run {
    let mut command = world.command("sh");
    let script = "ulimit -n $(ulimit -Hn); exec \"$@\"";
    command.args(["-c", script, "sh", env!("CARGO_BIN_EXE_crowd"), user]);
    command.args([first.to_string(), others.to_string()]);
    let mut crowd = world.spawn(command);
    assert_eq!(crowd.next_line(SOON), "ready");
    crowd
}

/// Ends the crowd. Returns the number of connections that it had.
fn disperse(mut crowd: Run) -> usize {
    crowd.close_stdin();
    let said = crowd.next_line(SOON);
    crowd.wait(SOON);
    said.split(' ').next().unwrap().parse().unwrap()
}

#[test]
fn a_launch_beside_two_thousand_strangers_succeeds() {
    within(LIMIT, || {
        let Some(world) = alone() else { return };
        let gated = Gated::new(&world);
        for user in USERS {
            let [alone, beside] = [(0, 0), CROWD].map(|size| {
                let mut crowd = crowd(&world, user, size);
                let time = gated.launch(&world, &mut crowd);
                (time, disperse(crowd))
            });
            assert!(beside.1 >= CROWD.0, "{beside:?}");
            println!("user {user}: alone {:?}, beside {} connections {:?}", alone.0, beside.1, beside.0);
        }
        world.finish();
    });
}

#[test]
fn an_editor_is_served_beside_connections_of_another_user() {
    within(LIMIT, || {
        let Some(world) = alone() else { return };
        let mut crowd = crowd(&world, USERS[0], (200, 0));
        let mut adapter = world.gantry(["dap", "--listen"]);
        let line = adapter.next_line(SOON);
        assert_eq!(crowd.next_line(SOON), "stands");
        let mut editor = TcpStream::connect(line.split(' ').next().unwrap()).unwrap();
        let asked = r#"{"seq":1,"type":"request","command":"initialize","arguments":{"adapterID":"gantry"}}"#;
        write!(editor, "Content-Length: {}\r\n\r\n{asked}", asked.len()).unwrap();
        editor.set_read_timeout(Some(SOON)).unwrap();
        let mut said = String::new();
        while !said.contains("\"success\":true") {
            let mut piece = [0; 4096];
            let length = editor.read(&mut piece).expect("an answer in time");
            assert_ne!(length, 0, "the editor is cut off: {said}");
            said.push_str(std::str::from_utf8(&piece[..length]).unwrap());
        }
        disperse(crowd);
        adapter.signal(Signal::SIGTERM);
        assert_eq!(adapter.wait(SOON).code(), 143);
        world.finish();
    });
}
