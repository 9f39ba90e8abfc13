//! The cost of a rendezvous: the gathering alone, and a complete one with real processes.
//!
//! ```sh
//! cargo bench -p gantry-tests --bench rendezvous
//! ```
//!
//! For each number of members it measures a gathering of items with 100 bytes: the time, and the peak memory while the
//! aggregate was written. The model's prediction is next to it: the items, the aggregate, and a fixed cost per member.
//! The memory must grow in proportion to the data, so the last column must stay constant. Then it measures 512 real
//! ranks on this machine, from the launch to the last one's end, with and without a rendezvous. The difference is the
//! cost of the rendezvous.

#![expect(clippy::disallowed_methods, reason = "a bench measures itself in a process of its own")]

use std::io::Write;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gantry_frontend::{Config, Frontend, LaunchRequest};
use gantry_shared::rendezvous::Gathering;
use gantry_shared::rendezvous::gathering::{count_bytes, write_parts};
use gantry_tests::measured::Measurement;

const DEADLINE: Duration = Duration::from_secs(120);
const ITEM_BYTES: usize = 100;
const RUNS: usize = 5;

/// The first argument of the part that runs by itself.
const PEAK: &str = "--peak";

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if let Some(members) = args.iter().position(|arg| arg == PEAK).and_then(|at| args.get(at + 1)) {
        return tell_peak(members.parse().expect("a number of members"));
    }
    let mut out = std::io::stdout().lock();
    let mut line = |text: String| drop(writeln!(out, "{text}"));
    line("| members | time | for each | data | peak of memory | peak for each byte of data |".to_owned());
    line("| ---: | ---: | ---: | ---: | ---: | ---: |".to_owned());
    for members in [64, 1024, 4096, 16_384, 65_536] {
        let mut times: Vec<Duration> = (0..RUNS).map(|_| gather(members)).collect();
        times.sort_unstable();
        let (time, peak) = (times[RUNS / 2], peak_of(members));
        let data = u64::from(members) * ITEM_BYTES as u64;
        let ratio = peak as f64 / data as f64;
        line(format!(
            "| {members} | {time:.1?} | {:.1?} | {} KiB | {} KiB | {ratio:.1} |",
            time / members,
            data / 1024,
            peak / 1024
        ));
    }
    let built = gantry_tests::binaries();
    let probe = built.dir.join("rendezvous_probe").display().to_string();
    line(
        "\n| 512 real ranks | time | more than nothing | for each |\n| --- | ---: | ---: | ---: |".to_owned(),
    );
    let mut nothing = Duration::ZERO;
    for (name, words) in [
        ("that do nothing", vec!["/bin/true"]),
        ("register, wait, look one up; 8 take all (11 MB)", vec![probe.as_str(), "all"]),
    ] {
        let mut times: Vec<Duration> = (0..RUNS).map(|_| run(&words)).collect();
        times.sort_unstable();
        let time = times[RUNS / 2];
        if nothing.is_zero() {
            nothing = time;
        }
        let more = time.saturating_sub(nothing);
        if time != nothing {
            let kept = Measurement {
                bench: "rendezvous",
                row: "512",
                what: "512 ranks that register, wait and look up, to their ends",
                gantry: time.as_secs_f64(),
                plain: nothing.as_secs_f64(),
                unit: "s",
                way: "the same ranks, doing nothing",
            };
            line(kept.to_string());
        }
        line(format!("| {name} | {time:.0?} | {more:.0?} | {:.2?} |", more / 512));
    }
}

/// The peak memory of a gathering, in a separate process. So it cannot reuse memory that was freed before.
fn peak_of(members: u32) -> u64 {
    let own = std::env::current_exe().expect("this program");
    let done = Command::new(own).args([PEAK, &members.to_string()]).output().expect("this program again");
    String::from_utf8_lossy(&done.stdout).trim().parse().expect("a number of bytes")
}

/// The part of this bench in the separate process: gathers once, and prints the growth of its peak memory.
fn tell_peak(members: u32) {
    let before = highest_bytes();
    gather(members);
    drop(writeln!(std::io::stdout(), "{}", highest_bytes() - before));
}

/// Registers in an order that is not that of the members, and writes the aggregate.
fn gather(members: u32) -> Duration {
    let items: Vec<Arc<Vec<u8>>> = (0..members).map(|_| Arc::new(vec![7; ITEM_BYTES])).collect();
    let begun = Instant::now();
    let mut gathering = Gathering::new(1, members, members).expect("a gathering");
    for (number, item) in (0..members).zip(items) {
        let member = number.wrapping_mul(40_503) % members;
        gathering.announce(member, ITEM_BYTES as u64, u64::MAX).expect("a place");
        gathering.arrive(member, item).expect("an item");
    }
    let parts = gathering.aggregate().expect("the aggregate");
    let mut data = Vec::with_capacity(usize::try_from(count_bytes(&parts)).expect("memory"));
    write_parts(&mut data, &parts).expect("memory");
    begun.elapsed()
}

fn run(words: &[&str]) -> Duration {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let wlm = Some("localhost".to_owned());
        let frontend = Frontend::new(Config { wlm, control: false, ..Config::default() });
        let begun = Instant::now();
        let args = ["-n", "512"].iter().chain(words).copied();
        let app = frontend.launch(LaunchRequest::new(args), DEADLINE).await.expect("a launch");
        assert_eq!(app.wait().await.expect("the end").code, 0);
        let took = begun.elapsed();
        app.close(DEADLINE).await.expect("an end");
        took
    })
}

/// This process's peak memory.
fn highest_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    peak.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
}
