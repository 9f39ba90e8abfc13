//! The cost of a query over process groups: ten thousand groups of ten thousand processes, in memory.
//!
//! Prints a table. For each query it has the time for all groups and for a million processes, the number of groups
//! found, and the time to write an answer of a million processes as XML. Processes are as a launcher starts them: 32 in
//! a row on a node, with consecutive pids. In the second table the pids are not consecutive.

use std::io::Write;
use std::time::{Duration, Instant};

use gantry_frontend::event::StateName;
use gantry_frontend::info::AppState;
use gantry_frontend::procgroup::text::parse_query;
use gantry_frontend::procgroup::xml::write_answer;
use gantry_frontend::procgroup::{Answer, GroupFacts, Groups, Numbers, Run, Told, find};

const PROCESSES: u32 = 10_000;
const PER_NODE: u32 = 32;
const NODES: u32 = 4_096;
const RUNS: usize = 5;

/// The questions of the notebook and of the published interface, and some that must look at every process.
const QUERIES: [&str; 8] = [
    "pgid=4521",
    "submitter=lusk pgid=* totalprocs=* pid=* exec=* host=ccn-70 and pid=* exec=* host=ccn-230 or submitter=desai pgid=*",
    "exec=b.out host=ccn-%d:20-21",
    "submitter=* host=ccn-56",
    "submitter=lusk pgid=*",
    "host=nowhere",
    "exec=a.out and exec=b.out and exec=c.out",
    "pid=999999999 rank=9999",
];

fn main() {
    let mut out = std::io::stdout().lock();
    let mut line = |text: String| drop(writeln!(out, "{text}"));
    for (title, row, groups) in [("pids in rows", PER_NODE, 10_000), ("pids in no order", 1, 1_000)] {
        let begun = Instant::now();
        let before = resident_bytes();
        let told = build(groups, row);
        let memory = (resident_bytes().saturating_sub(before)) >> 20;
        let millions = f64::from(groups) * f64::from(PROCESSES) / 1e6;
        line(format!(
            "{title}: {groups} groups of {PROCESSES}, {memory} MiB, made in {:.1?}",
            begun.elapsed()
        ));
        line(format!("{:>10}  {:>12}  {:>7}  query", "time", "per million", "found"));
        for text in QUERIES {
            let query = parse_query(text).expect("a query");
            let mut times: Vec<(Duration, usize)> = (0..RUNS)
                .map(|_| {
                    let begun = Instant::now();
                    let found = find(&told, &query).found.len();
                    (begun.elapsed(), found)
                })
                .collect();
            times.sort_unstable();
            let (time, found) = times[RUNS / 2];
            line(format!("{time:>10.1?}  {:>12.1?}  {found:>7}  {text}", time.div_f64(millions)));
        }
        let mut answer = find(&told, &parse_query("pgid=1-100 pid=* exec=* host=*").expect("a query")).found;
        answer.truncate(100);
        let told = Told { groups: told, found: answer, ..Told::default() };
        let begun = Instant::now();
        let mut text = Vec::new();
        write_answer(&mut text, &Answer::Groups(told)).expect("memory");
        line(format!("a million processes as XML: {:.1?}, {} MB\n", begun.elapsed(), text.len() / 1_000_000));
    }
}

/// Groups of several users and programs, each on nodes in a row.
fn build(groups: u32, row: u32) -> Groups {
    let mut built = Groups::default();
    for pgid in 1..=groups {
        let nodes = PROCESSES.div_ceil(PER_NODE);
        let hosts = (0..nodes).map(|node| format!("ccn-{}", (pgid * 37 + node) % NODES)).collect();
        let runs = (0..PROCESSES.div_ceil(row)).map(|at| {
            let rank = at * row;
            let pid = if row == 1 { 1000 + (rank * 7919) % 30_000 } else { 1000 + pgid };
            Run {
                rank,
                count: row.min(PROCESSES - rank),
                pid,
                host: rank / PER_NODE,
                exec: u32::from(rank > 0),
                state: StateName::Running,
            }
        });
        let facts = GroupFacts {
            pgid,
            app: "3kx9w0fz".parse().expect("an id"),
            submitter: ["lusk", "desai", "narayan", "butler"][pgid as usize % 4].to_owned(),
            totalprocs: PROCESSES,
            state: AppState::Running,
            wlm: "none".to_owned(),
            sessions: Numbers::new(),
            exit_code: None,
            hosts,
            execs: vec![
                "/home/bin/master".to_owned(),
                format!("/home/bin/{}.out", ["a", "b", "c"][pgid as usize % 3]),
            ],
            runs: runs.collect(),
        };
        built.push(&facts).expect("facts");
    }
    built
}

/// Memory of this process, from its status.
fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4096
}
