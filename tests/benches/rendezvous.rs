//! What a rendezvous costs: the gathering alone, and real processes with all that is between them.
//!
//! Prints a table: per number of members the time and the memory of a gathering whose items have 100 bytes, which grow as the data does; then
//! 512 real ranks on this machine, from the launch to the last one's end, with and without a rendezvous.

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gantry_frontend::{Config, Frontend, LaunchRequest};
use gantry_shared::rendezvous::Gathering;
use gantry_shared::rendezvous::gathering::{count_bytes, write_parts};

const DEADLINE: Duration = Duration::from_secs(120);
const ITEM_BYTES: usize = 100;
const RUNS: usize = 5;

fn main() {
    let mut out = std::io::stdout().lock();
    let mut line = |text: String| drop(writeln!(out, "{text}"));
    line(format!("{:>9}  {:>12}  {:>14}  {:>12}", "members", "time", "per member", "memory"));
    for members in [1024, 4096, 16_384, 65_536] {
        let before = resident_bytes();
        let mut times: Vec<Duration> = (0..RUNS).map(|_| gather(members).0).collect();
        times.sort_unstable();
        let (_, kept) = gather(members);
        let memory = resident_bytes().saturating_sub(before);
        drop(kept);
        let time = times[RUNS / 2];
        line(format!("{members:>9}  {time:>12.1?}  {:>14.1?}  {:>8} KiB", time / members, memory / 1024));
    }
    let built = gantry_tests::binaries();
    let probe = built.dir.join("rendezvous_probe").display().to_string();
    for (name, words) in [
        ("512 ranks that do nothing", vec!["/bin/true"]),
        ("512 ranks: register, wait, look one up; 8 take all (11 MB)", vec![probe.as_str(), "all"]),
    ] {
        let mut times: Vec<Duration> = (0..RUNS).map(|_| run(&words)).collect();
        times.sort_unstable();
        line(format!("{name}: {:.0?}", times[RUNS / 2]));
    }
}

/// Registers in an order that is not that of the members, and writes the aggregate.
fn gather(members: u32) -> (Duration, (Gathering, Vec<u8>)) {
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
    (begun.elapsed(), (gathering, data))
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

/// What this process has in memory.
fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split_ascii_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or_default() * 4096
}
