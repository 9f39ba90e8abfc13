//! Task management by `libgantry_tm` and by PBS's own library, on a bed of three nodes that a real PBS manages: the same C program with each, in turns.
//!
//! Needs root and an OpenPBS in `/opt/pbs` or where `PBS_EXEC` says.
#![expect(clippy::print_stdout, reason = "a bench prints its table")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gantry_tests::pbs::{said, submit};
use gantry_tests::testbed::pbs::installation;
use gantry_tests::testbed::{Config, shared};
use gantry_tests::{programs, tm_library};

/// For the job; each of its programs has 40 seconds.
const LIMIT: Duration = Duration::from_secs(600);

/// How often each is measured.
const TURNS: usize = 7;

/// What is measured: its name, and the program's arguments.
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
    let ours = compiled("tm_bench_ours", &header, &tm_library(), "gantry_tm");
    let theirs = compiled("tm_bench_theirs", &installed.join("include"), &installed.join("lib"), "pbs");
    let bed = shared(&Config::with_nodes(3).managed_by_pbs(&installed));
    // A mom lists tasks that have ended too: what asks for the list comes before what makes it long.
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
    script.push_str(&format!("for turn in $(seq {TURNS}); do\n"));
    let pbsdsh = installed.join("bin/pbsdsh");
    script.push_str(&format!(
        "begin=$(date +%s%N); {} -- /bin/true; echo 0 pbsdsh $((($(date +%s%N) - begin) / 1000))\n",
        pbsdsh.display()
    ));
    script.push_str(&format!(
        "begin=$(date +%s%N); {} each > /dev/null; echo 0 process $((($(date +%s%N) - begin) / 1000))\ndone",
        ours.display()
    ));
    submit(&bed, &script);
    report(&said(&bed, LIMIT));
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
    for ((index, name), mut of) in times {
        of.sort_unstable();
        let what = WAYS.get(index).map_or("", |(what, _)| what);
        println!(
            "{what:55} {name:8} {:8} [{}] {} to {}",
            of[of.len() / 2],
            of.len(),
            of[0],
            of[of.len() - 1]
        );
    }
    let others: Vec<&str> = said.lines().filter(|line| line.split_ascii_whitespace().count() != 3).collect();
    println!("besides it said: {others:?}");
}
