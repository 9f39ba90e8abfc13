//! The time to send 200 MB to nodes that lack them, compared to `cp` and `scp` of as many copies, in one run.
//!
//! ```sh
//! cargo bench -p gantry-tests --bench staging         # 1, 8 and 64 nodes
//! cargo bench -p gantry-tests --bench staging -- 1 8  # these numbers of nodes
//! cargo bench -p gantry-tests --bench staging -- 64 cp  # without scp, which takes most of the time
//! ```
//!
//! The nodes are agents of this machine with another root and stage directories of their own. So all of them share its
//! cores and its disk, and each writes a copy: the time grows with the work of all of them together. The bytes are random, so they cannot be
//! compressed. `scp` copies to the testbed's nodes, eight copies at a time. It needs root, and prints a Markdown table.
#![expect(clippy::print_stdout, reason = "a bench prints its results")]
#![expect(clippy::disallowed_methods, reason = "a bench starts the programs that it compares itself")]

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use gantry_tests::measured::Measurement;
use gantry_tests::testbed::{Config, Testbed, usable};
use gantry_tests::{OtherRoot, World, binaries, proc};
use nix::sys::resource::{UsageWho, getrusage};

const BYTES: u64 = 200_000_000;
const DEADLINE: Duration = Duration::from_secs(300);
/// The number of testbed nodes, and of copies at a time. sshd refuses more than ten connections that have not logged in
/// yet.
const SSH_NODES: u16 = 8;

fn main() {
    let asked: Vec<usize> = std::env::args().filter_map(|arg| arg.parse().ok()).collect();
    let counts = if asked.is_empty() { vec![1, 8, 64] } else { asked };
    let without_scp = std::env::args().any(|arg| arg == "cp");
    println!("command: cargo bench -p gantry-tests --bench staging\nhelpers: {}\n", binaries().dir.display());
    println!(
        "| nodes | gantry | cp | scp | bytes on each link | on all links | frontend's memory | largest agent's | \
         frontend's CPU time | agents' | cp's |"
    );
    println!("| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    for count in counts {
        let world = World::new();
        let other = match OtherRoot::new(&world) {
            Ok(other) => other,
            Err(why) => {
                println!("not measured: {why}");
                return world.finish();
            }
        };
        let payload = other.hidden().join("payload");
        make_noise(&payload);
        other.separate_stages(&world);
        let staged = stage(&world, &other, &payload, count);
        let before = children_time();
        let cp = copy(&payload, world.path(), count);
        let cp_time = children_time() - before;
        let scp = match without_scp {
            true => Err("not asked for".to_owned()),
            false => copy_by_ssh(other.hidden(), &payload, count),
        };
        for (way, plain) in [("scp", scp.as_ref().ok()), ("cp", Some(&cp))] {
            let Some(plain) = plain.map(Duration::as_secs_f64) else { continue };
            let row = format!("{way} {count}");
            let what = format!("200 MB of noise staged to nodes, encrypted: {count}");
            let at_a_time = if way == "scp" { ", 8 at a time" } else { "" };
            let (gantry, way) = (staged.time.as_secs_f64(), format!("{count} x `{way}`{at_a_time}"));
            println!(
                "{}",
                Measurement { bench: "staging", row: &row, what: &what, gantry, plain, unit: "s", way: &way }
            );
        }
        let scp = scp.map_or_else(|why| why, |time| format!("{:.2} s", time.as_secs_f64()));
        println!(
            "| {count} | {:.2} s | {:.2} s | {scp} | {} | {} | {} MiB | {} MiB | {:.2} s | {:.2} s | {cp_time:.2} s |",
            staged.time.as_secs_f64(),
            cp.as_secs_f64(),
            staged.link_bytes,
            staged.link_bytes * count as u64,
            staged.frontend_kib / 1024,
            staged.agent_kib / 1024,
            staged.frontend_time,
            staged.agents_time,
        );
        drop(other);
        world.finish();
    }
}

/// A file of a fixed size with new random bytes each time, so no node has it already.
fn make_noise(path: &Path) {
    let mut file = fs::File::create(path).expect("a file");
    let mut noise = fs::File::open("/dev/urandom").expect("noise").take(BYTES);
    assert_eq!(io::copy(&mut noise, &mut file).expect("room"), BYTES);
    fs::set_permissions(path, PermissionsExt::from_mode(0o644)).expect("permissions");
}

struct Staged {
    /// Measured from the held ranks until the last node's answer. It includes opening a session, reading and asking.
    time: Duration,
    link_bytes: u64,
    frontend_kib: u64,
    agent_kib: u64,
    /// Processor time in seconds, from the start of the processes.
    frontend_time: f64,
    agents_time: f64,
}

fn stage(world: &World, other: &OtherRoot, payload: &Path, count: usize) -> Staged {
    let count = count.to_string();
    let args = ["launch", "--json", "--hold", "--daemon", "/bin/sh -c :", "--file"];
    let mut command = other.gantry_command(world, args);
    command.arg(payload).args(["--", "-N", &count, "-n", &count, "/bin/sh", "-c", ":"]);
    let mut run = world.spawn(command);
    run.next_event("held", DEADLINE);
    let start = Instant::now();
    let staged = run.next_event("staged", DEADLINE);
    let time = start.elapsed();
    let is_agent = |pid: &i32| {
        proc::exe(*pid).is_some_and(|exe| exe.file_name().is_some_and(|name| name == "gantry-agent"))
    };
    let agents: Vec<i32> = world.processes().into_iter().filter(is_agent).collect();
    let agents_time = agents.iter().map(|pid| proc::processor_time(*pid)).sum();
    let frontend_time = proc::processor_time(run.pid());
    let agent_kib = agents.into_iter().map(proc::peak_memory_kib).max().unwrap_or(0);
    let frontend_kib = proc::peak_memory_kib(run.pid());
    run.kill();
    run.exited(DEADLINE);
    world.assert_nothing_left();
    let link_bytes = staged["bytes_sent"].as_u64().expect("bytes");
    Staged { time, link_bytes, frontend_kib, agent_kib, frontend_time, agents_time }
}

/// The processor time of all children that have ended, in seconds.
fn children_time() -> f64 {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).expect("usage");
    [usage.user_time(), usage.system_time()]
        .map(|time| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6)
        .iter()
        .sum()
}

fn copy(payload: &Path, to: &Path, count: usize) -> Duration {
    let folder = to.join("copies");
    fs::create_dir(&folder).expect("a folder");
    let start = Instant::now();
    for number in 0..count {
        run(Command::new("cp").arg(payload).arg(folder.join(number.to_string())));
    }
    let time = start.elapsed();
    fs::remove_dir_all(folder).expect("removed");
    time
}

/// The time, or the reason why it was not measured.
fn copy_by_ssh(hidden: &Path, payload: &Path, count: usize) -> Result<Duration, String> {
    let config = Config::with_nodes(SSH_NODES);
    usable(&config)?;
    // The testbed's user is another user.
    fs::set_permissions(hidden, PermissionsExt::from_mode(0o755)).expect("permissions");
    let bed = Testbed::up(&config, &binaries().dir.join("testbed")).expect("a testbed");
    let start = Instant::now();
    for begin in (0..count).step_by(usize::from(SSH_NODES)) {
        let copies = (begin..count).take(usize::from(SSH_NODES)).map(|number| {
            let node = number % usize::from(SSH_NODES) + 1;
            let mut command = bed.login().command("scp").expect("the login node");
            command.args(["-q", "-o", "BatchMode=yes"]).arg(payload);
            spawn(command.arg(format!("n{node:03}:/tmp/copy")))
        });
        for copy in copies.collect::<Vec<_>>() {
            finish(copy);
        }
    }
    Ok(start.elapsed())
}

fn run(command: &mut Command) {
    finish(spawn(command));
}

fn spawn(command: &mut Command) -> Child {
    command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("started")
}

fn finish(mut child: Child) {
    let status = child.wait().expect("an end");
    assert!(status.success(), "{status}");
}
