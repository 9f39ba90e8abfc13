//! The time to get the stacks of all ranks of a Slurm job, from the command to the answer. `gantry stack` is compared
//! to gdb and to eu-stack on every rank, which pdsh starts there, in turns, on one job.
//!
//! ```sh
//! cargo bench -p gantry-tests --bench stack                # 16 nodes of 4 ranks, 64 nodes of 8
//! cargo bench -p gantry-tests --bench stack -- 4x4 8x2     # these numbers of nodes and ranks on each
//! ```
//!
//! They run on all nodes at the same time, four at a time on each. All nodes share this machine's cores, so only the
//! ratios are meaningful. It needs root, pdsh and elfutils, and prints a Markdown table of medians. The job is
//! unchanged afterwards.
#![expect(clippy::print_stdout, reason = "a bench prints its results")]

use std::path::PathBuf;
use std::time::{Duration, Instant};

use gantry_tests::measured::Measurement;
use gantry_tests::slurm::{Cluster, on_cluster_for};
use gantry_tests::testbed::Config;
use gantry_tests::{becomes_true, programs};

const LONG: Duration = Duration::from_secs(600);
const LIMIT: Duration = Duration::from_secs(3600);
const ROUNDS: usize = 5;

/// Another way to the call paths of all ranks.
struct Way {
    name: &'static str,
    /// What its row has at the end of its name.
    row: &'static str,
    /// Reads the rank `%`, and prints `main` in one line.
    command: &'static str,
}

const WAYS: [Way; 2] = [
    Way { name: "gdb -batch on every rank, by pdsh", row: "", command: "gdb -nx -batch -ex bt -p %" },
    Way { name: "eu-stack on every rank, by pdsh", row: " eu-stack", command: "eu-stack -p %" },
];

fn main() {
    let asked: Vec<(u16, u16)> = std::env::args()
        .filter_map(|arg| {
            let (nodes, ranks) = arg.split_once('x')?;
            Some((nodes.parse().ok()?, ranks.parse().ok()?))
        })
        .collect();
    let asked = if asked.is_empty() { vec![(16, 4), (64, 8)] } else { asked };
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    println!("command: cargo bench -p gantry-tests --bench stack\nmachine: {cores} cores\n");
    println!(
        "| nodes | ranks | gantry stack | plain way | its time | ratio |\n| ---: | ---: | ---: | --- | ---: | ---: |"
    );
    let program = programs::get("two_paths");
    for (nodes, on_each) in asked {
        let program = program.clone();
        on_cluster_for(LIMIT, Config::with_nodes(nodes), move |cluster| {
            measure(cluster, program, nodes, on_each)
        });
    }
}

fn measure(cluster: &Cluster, program: PathBuf, nodes: u16, on_each: u16) {
    let ranks = nodes * on_each;
    let program = program.to_str().expect("a path");
    let (nodes_word, ranks_word) = (format!("-N{nodes}"), format!("-n{ranks}"));
    let mut srun =
        cluster.run("srun", ["--overcommit", "--mpi=none", &nodes_word, &ranks_word, program, "3600"], &[]);
    let wait = |lines: &[String]| lines.iter().filter(|line| line.contains("waiting")).count();
    let all_wait = becomes_true(LONG, || wait(srun.stdout()) == usize::from(ranks));
    assert!(all_wait, "{:?} {:?}", srun.stdout().len(), srun.stderr().to_vec());
    let job = cluster.said("squeue", ["--me", "--noheader", "--format=%i"]).trim().to_owned();
    let hosts = format!("n[001-{nodes:03}]");
    let mut ours = Vec::new();
    let mut theirs = WAYS.map(|_| Vec::new());
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let done = cluster.gantry(["stack", &job]).wait(LONG);
        ours.push(start.elapsed());
        assert_eq!(done.code(), 0, "{done:?}");
        assert!(done.stdout[0].starts_with(&format!("{ranks} ranks in ")), "{done:?}");
        for (way, times) in WAYS.iter().zip(&mut theirs) {
            let command = format!(
                "pgrep -x two_paths | xargs -P4 -I% {} 2>/dev/null | grep -c '^#.* main'",
                way.command
            );
            let start = Instant::now();
            let done = cluster.run("pdsh", ["-R", "ssh", "-f", "64", "-w", &hosts, &command], &[]).wait(LONG);
            times.push(start.elapsed());
            let seen: u32 =
                done.stdout.iter().filter_map(|line| line.rsplit(' ').next()?.parse::<u32>().ok()).sum();
            assert_eq!(seen, u32::from(ranks), "{done:?}");
        }
    }
    let ours = median(ours);
    for (way, times) in WAYS.iter().zip(theirs) {
        report(nodes, on_each, way, ours, median(times));
    }
    cluster.said("scancel", [job.as_str()]);
    srun.exited(LONG);
}

/// Prints the row, and the line of the table.
fn report(nodes: u16, on_each: u16, way: &Way, ours: Duration, theirs: Duration) {
    let ranks = nodes * on_each;
    println!(
        "{}",
        Measurement {
            bench: "stack",
            row: &format!("{nodes}x{on_each}{}", way.row),
            what: &format!(
                "call paths of {ranks} ranks on {nodes} Slurm nodes, from the command to the answer"
            ),
            gantry: ours.as_secs_f64() * 1e3,
            plain: theirs.as_secs_f64() * 1e3,
            unit: "ms",
            way: way.name,
        }
    );
    println!(
        "| {nodes} | {ranks} | {ours:.2?} | {} | {theirs:.2?} | {:.3} |",
        way.name,
        ours.as_secs_f64() / theirs.as_secs_f64()
    );
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
