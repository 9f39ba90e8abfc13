//! Task management by `libgantry_tm` and by PBS's own library, on a bed of three nodes that a real PBS manages. The
//! same C program runs with each, in turns. Also a launch by gantry and by PBS's own `pbsdsh`: a process on each host
//! of a job, up to its end.
//!
//! Needs root and an OpenPBS in `/opt/pbs` or at `PBS_EXEC`.
#![expect(clippy::print_stdout, reason = "a bench prints its table")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gantry_tests::measured::Measurement;
use gantry_tests::pbs::{Script, said, submit};
use gantry_tests::testbed::pbs::installation;
use gantry_tests::testbed::{Config, shared};
use gantry_tests::{binaries, programs};

/// For the job; each of its programs has 40 seconds.
const LIMIT: Duration = Duration::from_secs(600);

/// How often each is measured.
const TURNS: usize = 7;

/// The measurements: name, and the program's arguments.
const WAYS: [(&str, &str); 4] = [
    ("a program on each of 6 nodes of 3 hosts, to its end", "each"),
    ("a request to the own host", "near 100"),
    ("a request to another host", "far 100"),
    ("each of 1,000 programs under way at a time", "flight 1000"),
];

fn compiled(made: &str, include: &Path, lib: &Path, library: &str) -> PathBuf {
    let (include, lib) = (include.display(), lib.display());
    let flags =
        [format!("-I{include}"), format!("-L{lib}"), format!("-Wl,-rpath,{lib}"), format!("-l{library}")];
    programs::get_with("tm_bench", made, &flags).unwrap_or_else(|why| panic!("{why}"))
}

/// The comparisons: the measurement, the two ways, and the allowed ratio of ours to theirs.
const GOALS: [(usize, &str, &str, f64); 5] = [
    (0, "ours", "theirs", 1.2),
    (1, "ours", "theirs", 1.2),
    (2, "ours", "theirs", 1.2),
    (3, "ours", "theirs", 1.2),
    (LAUNCH, "gantry", "pbsdsh", 1.2),
];

/// The index of a launch among the measurements.
const LAUNCH: usize = WAYS.len();

/// A job in which the same program is started on each of three hosts by gantry and by `pbsdsh`, in turns.
fn build_launches(pbsdsh: &Path) -> String {
    let timed = |name: &str, command: &str| {
        let took = "$((($(date +%s%N) - begin) / 1000))";
        format!("begin=$(date +%s%N); {command} > /dev/null; echo {LAUNCH} {name} {took}\n")
    };
    let gantry = timed("gantry", "gantry launch -- /bin/true");
    let pbsdsh = timed("pbsdsh", &format!("{} -- /bin/true", pbsdsh.display()));
    // The caches are still empty for the first run of each.
    format!("gantry launch -- /bin/true\nfor turn in $(seq {}); do\n{gantry}{pbsdsh}done", 2 * TURNS)
}

fn main() {
    // cargo test runs benches too, with this argument.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    let installed = match installation() {
        Ok(installed) => installed,
        Err(why) => return println!("nothing measured: {why}"),
    };
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("../wlm/capi/include");
    let ours = compiled("tm_bench_ours", &header, &binaries().dir, "gantry_tm");
    let theirs = compiled("tm_bench_theirs", &installed.join("include"), &installed.join("lib"), "pbs");
    let bed = shared(&Config::with_nodes(3).managed_by_pbs(&installed));
    // A mom also lists ended tasks. So requests for the list come before the part that makes it long.
    let mut script = String::new();
    for (index, (_, arguments)) in WAYS.iter().enumerate() {
        let line = |name: &str, program: &Path| {
            format!("echo {index} {name} $(timeout 40 {} {arguments} || echo failed)\n", program.display())
        };
        // Many programs are many seconds.
        let turns = if arguments.contains("1000") { 2 } else { TURNS };
        let (ours, theirs) = (line("ours", &ours), line("theirs", &theirs));
        script.push_str(&format!("for turn in $(seq {turns}); do\n{ours}{theirs}done\n"));
    }
    submit(&bed, &script);
    let mut all = said(&bed, LIMIT);
    bed.wait_idle(LIMIT).expect("idle nodes");
    let launches = build_launches(&installed.join("bin/pbsdsh"));
    Script::submit_on(&bed, "select=3:ncpus=1:mpiprocs=1", &launches);
    all.push_str(&said(&bed, LIMIT));
    report(&all);
}

fn report(said: &str) {
    let mut times: BTreeMap<(usize, &str), Vec<u64>> = BTreeMap::new();
    for line in said.lines() {
        if let [index, name, time] = line.split_ascii_whitespace().collect::<Vec<_>>()[..]
            && let (Ok(index), Ok(time)) = (index.parse(), time.parse())
        {
            times.entry((index, name)).or_default().push(time);
        }
    }
    println!("medians in microseconds, of the number of turns in brackets");
    let mut medians = BTreeMap::new();
    for (of, mut times) in times {
        let what = WAYS.get(of.0).map_or("a program on each of 3 hosts, to its end", |(what, _)| what);
        times.sort_unstable();
        let (median, turns, most) = (times[times.len() / 2], times.len(), times[times.len() - 1]);
        medians.insert(of, median);
        println!("{what:55} {:8} {median:8} [{turns}] {} to {most}", of.1, times[0]);
    }
    for (index, ours, theirs, goal) in GOALS {
        let what = WAYS.get(index).map_or("a launch", |(what, _)| what);
        match (medians.get(&(index, ours)), medians.get(&(index, theirs))) {
            (Some(ours), Some(theirs)) => {
                let ratio = *ours as f64 / *theirs as f64;
                println!("{what}: {ratio:.2} times as long, the goal is {goal} at most");
                if index == LAUNCH {
                    let (gantry, plain) = (*ours as f64 / 1e3, *theirs as f64 / 1e3);
                    let what = "PBS, 3 hosts: a program on each, to its end";
                    let row = "launch";
                    println!(
                        "{}",
                        Measurement {
                            bench: "pbs_tm",
                            row,
                            what,
                            gantry,
                            plain,
                            unit: "ms",
                            way: "`pbsdsh`"
                        }
                    );
                }
            }
            _ => println!("{what}: not measured"),
        }
    }
    let others: Vec<&str> = said.lines().filter(|line| line.split_ascii_whitespace().count() != 3).collect();
    println!("besides it said: {others:?}");
}
