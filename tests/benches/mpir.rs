//! The time to read the table of a launcher with 100,000 ranks: in bulk, and one byte per call as the reference does
//! it, in one run.
//!
//! ```sh
//! cargo bench -p gantry-tests --bench mpir
//! ```
//!
//! The launcher runs meanwhile. It allocates every string separately, as real launchers do. Prints a Markdown table.
#![expect(clippy::print_stdout, reason = "a bench prints its results")]

use std::io::IoSliceMut;
use std::time::{Duration, Instant};

use gantry_tests::{World, programs};
use gantry_types::id::Pid;
use gantry_types::placement::{Placement, PlacementBuilder};
use gantry_wlm::host::Machine;
use gantry_wlm::mpir::read_running;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid as ProcessId;

const RANKS: u32 = 100_000;
const ROUNDS: usize = 20;
const SOON: Duration = Duration::from_secs(60);

fn main() {
    let world = World::new();
    let launcher = programs::get("mpir_launcher");
    // The launcher prints the table's address: the slow reader measures reading, not the search for symbols.
    let ranks = format!("ranks={RANKS}/1000");
    let mut run = world.start(&launcher, [ranks.as_str(), "where", "wait"]);
    run.next_line(SOON);
    let table = run.next_line(SOON);
    let table = usize::from_str_radix(table.trim_start_matches("table 0x"), 16).expect("an address");
    let pid = Pid::new(run.pid()).expect("a pid");

    let (placement, bulk) = measure(ROUNDS, || read_running(pid, &Machine).expect("a table").placement);
    let (slow, bytes) = measure(1, || read_by_bytes(pid, table));
    assert_eq!(placement, slow);
    println!("| what | median |\n| --- | ---: |");
    println!("| {RANKS} ranks in bulk, symbols looked up too | {:.2} ms |", bulk.as_secs_f64() * 1e3);
    println!("| {RANKS} ranks a byte a call, symbols known | {:.2} ms |", bytes.as_secs_f64() * 1e3);
    println!("| ratio | 1/{:.0} |", bytes.as_secs_f64() / bulk.as_secs_f64());
    run.close_stdin();
    run.wait(SOON);
}

/// The result of `work`, and the median of its times.
fn measure<T>(rounds: usize, mut work: impl FnMut() -> T) -> (T, Duration) {
    let mut times = Vec::new();
    let mut made = None;
    for _ in 0..rounds {
        let start = Instant::now();
        let now = work();
        times.push(start.elapsed());
        made = Some(now);
    }
    times.sort_unstable();
    (made.expect("a round"), times[rounds / 2])
}

fn read_by_bytes(pid: Pid, table: usize) -> Placement {
    let pid = ProcessId::from_raw(pid.get());
    let mut placement = PlacementBuilder::new();
    for rank in 0..RANKS as usize {
        let entry = table + rank * 24;
        let number = |at: usize| u64::from_ne_bytes(std::array::from_fn(|byte| read_byte(pid, at + byte)));
        let text = |at: usize| {
            let bytes = (0..).map(|byte| read_byte(pid, at + byte)).take_while(|byte| *byte != 0).collect();
            String::from_utf8(bytes).expect("text")
        };
        let address = |number: u64| usize::try_from(number).expect("an address");
        let (host, exe) = (text(address(number(entry))), text(address(number(entry + 8))));
        let process = i32::from_ne_bytes(std::array::from_fn(|byte| read_byte(pid, entry + 16 + byte)));
        placement.push(&host, Pid::new(process), &exe).expect("room");
    }
    placement.build()
}

fn read_byte(pid: ProcessId, base: usize) -> u8 {
    let mut byte = [0];
    process_vm_readv(pid, &mut [IoSliceMut::new(&mut byte)], &[RemoteIoVec { base, len: 1 }])
        .expect("a byte");
    byte[0]
}
