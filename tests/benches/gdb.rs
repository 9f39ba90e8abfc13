//! The time of commands of `gantry gdb` for all ranks of a Slurm job that are held at first, and the length of what it
//! shows.
//!
//! ```sh
//! cargo bench -p gantry-tests --bench gdb                  # 8 nodes of 8 ranks, 16 nodes of 16
//! cargo bench -p gantry-tests --bench gdb -- 2x4           # these numbers of nodes and ranks on each
//! ```
//!
//! Each rank has its gdb, and all share this machine's cores: the start of the gdbs takes nearly all of the time. One
//! gdb has about 35 MB of its own. It needs root, and prints a Markdown table.
#![expect(clippy::print_stdout, reason = "a bench prints its results")]

use std::time::{Duration, Instant};

use gantry_tests::Run;
use gantry_tests::programs;
use gantry_tests::slurm::{Cluster, on_cluster_for};
use gantry_tests::testbed::Config;
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(3600);
const PATIENCE: Duration = Duration::from_secs(900);
const ROUNDS: usize = 5;

fn main() {
    let asked: Vec<(u16, u16)> = std::env::args()
        .filter_map(|arg| {
            let (nodes, ranks) = arg.split_once('x')?;
            Some((nodes.parse().ok()?, ranks.parse().ok()?))
        })
        .collect();
    let asked = if asked.is_empty() { vec![(8, 8), (16, 16)] } else { asked };
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    println!("command: cargo bench -p gantry-tests --bench gdb\nmachine: {cores} cores\n");
    println!("| nodes | ranks | command | time | lines |\n| ---: | ---: | --- | ---: | ---: |");
    for (nodes, on_each) in asked {
        on_cluster_for(LIMIT, Config::with_nodes(nodes), move |cluster| measure(cluster, nodes, on_each));
    }
}

fn measure(cluster: &Cluster, nodes: u16, on_each: u16) {
    let ranks = nodes * on_each;
    let program = programs::get("rounds");
    let (nodes_word, ranks_word) = (format!("-N{nodes}"), format!("-n{ranks}"));
    let launch = ["--", "--overcommit", &nodes_word, &ranks_word, program.to_str().expect("a path"), "3600"];
    let start = Instant::now();
    let words = [&["--json", "gdb", "--timeout", "900", "--patience", "60"], &launch[..]].concat();
    let mut gdb = cluster.gantry(words);
    let show = |command: &str, times: Vec<Duration>, answer: &Value| {
        let texts = answer["classes"].as_array().into_iter().flatten().filter_map(|it| it["text"].as_str());
        let lines: usize = texts.map(|text| text.lines().count()).sum();
        println!("| {nodes} | {ranks} | {command} | {:.2?} | {lines} |", median(times));
    };
    let compare = format!("compare 0 1-{} limit", ranks - 1);
    let begun = ask(&mut gdb, "tbreak main").1;
    show("launch, and `tbreak main` with the start of the gdbs", vec![start.elapsed()], &begun);
    for command in ["continue", "tbreak solve", "continue"] {
        let (time, answer) = ask(&mut gdb, command);
        show(&format!("`{command}`"), vec![time], &answer);
    }
    for command in ["bt", "print rank", &compare] {
        let (times, mut answers): (Vec<_>, Vec<_>) = (0..ROUNDS).map(|_| ask(&mut gdb, command)).unzip();
        let answer = answers.pop().unwrap_or_default();
        show(&format!("`{command}`"), times, &answer);
    }
    gdb.write(b"quit\n");
    gdb.exited(PATIENCE);
}

/// Types a command and waits for its answer.
fn ask(gdb: &mut Run, command: &str) -> (Duration, Value) {
    let start = Instant::now();
    gdb.write(format!("{command}\n").as_bytes());
    loop {
        let line = gdb.next_line(PATIENCE);
        let answer: Value = serde_json::from_str(&line).unwrap_or_default();
        assert!(answer.get("error").is_none(), "{line}");
        if answer["command"] == command {
            return (start.elapsed(), answer);
        }
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
