//! The time to find a program's dependencies: the library call and `gantry deps`, compared to ldd and the loader's own
//! list, in one run.
//!
//! ```sh
//! cargo bench -p gantry-tests --bench deps                  # gdb, and the largest dynamic program in PATH
//! cargo bench -p gantry-tests --bench deps -- /path/to/one  # this one
//! ```
//!
//! All columns of a row are measured in turns, so a busy moment of the machine affects all of them. Prints a Markdown
//! table.
#![expect(clippy::print_stdout, reason = "a bench prints its results")]
#![expect(clippy::disallowed_methods, reason = "a bench starts the programs that it compares itself")]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use gantry_frontend::staging::elf::parse_elf;
use gantry_frontend::staging::{Resolver, ResolverConfig};
use gantry_tests::measured::Measurement;
use gantry_tests::{binaries, tool};

const ROUNDS: usize = 100;

fn main() {
    let gantry = &binaries().gantry;
    println!("command: cargo bench -p gantry-tests --bench deps\ngantry: {}\n", gantry.display());
    println!(
        "| program | libraries | library call | the same again | gantry deps | ldd | ld.so --list | call : ldd | process : ldd | process : list |"
    );
    println!("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    let asked: Vec<PathBuf> =
        std::env::args().skip(1).filter(|it| !it.starts_with('-')).map(PathBuf::from).collect();
    let programs =
        if asked.is_empty() { tool("gdb").ok().into_iter().chain(largest()).collect() } else { asked };
    for program in programs {
        measure(gantry, &program);
    }
}

fn measure(gantry: &Path, program: &Path) {
    let Some(loader) = loader_of(program) else { return };
    let call = |resolver: &Resolver| resolver.closure(program).expect("a closure");
    let new = || Resolver::new(ResolverConfig::default());
    let warm = new();
    let libraries = call(&warm).needed.len();
    let mut times: [Vec<Duration>; 5] = Default::default();
    for _ in 0..ROUNDS {
        let ways: [&dyn Fn(); 5] = [
            &|| drop(call(&new())),
            &|| drop(call(&warm)),
            &|| run(Command::new(gantry).arg("deps").arg(program)),
            &|| run(Command::new("ldd").arg(program)),
            &|| run(Command::new(&loader).arg("--list").arg(program)),
        ];
        for (way, times) in ways.iter().zip(&mut times) {
            let start = Instant::now();
            way();
            times.push(start.elapsed());
        }
    }
    let [first, again, process, ldd, list] = times.map(median);
    let name = program.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    for (way, time) in [("library call", first), ("`gantry deps`", process)] {
        let row = format!("{name} {way}");
        let what = format!("what {name} needs ({libraries} libraries): {way}");
        let (gantry, plain) = (time.as_secs_f64() * 1e3, ldd.as_secs_f64() * 1e3);
        println!(
            "{}",
            Measurement { bench: "deps", row: &row, what: &what, gantry, plain, unit: "ms", way: "`ldd`" }
        );
    }
    let ratio = |slow: Duration, fast: Duration| format!("{:.1} x", slow.as_secs_f64() / fast.as_secs_f64());
    let row = [
        program.display().to_string(),
        libraries.to_string(),
        show(first),
        show(again),
        show(process),
        show(ldd),
        show(list),
        ratio(ldd, first),
        ratio(ldd, process),
        ratio(list, process),
    ];
    println!("| {} |", row.join(" | "));
}

/// Runs a command to its end; its output is dropped.
fn run(command: &mut Command) {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    assert!(command.status().expect("it can be started").success(), "{command:?}");
}

/// The largest program in PATH that has a loader and that its loader can list.
fn largest() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let entries =
        std::env::split_paths(&path).filter_map(|folder| folder.read_dir().ok()).flatten().flatten();
    let mut files: Vec<(u64, PathBuf)> = entries
        .filter_map(|entry| {
            let path = entry.path();
            let about = path.metadata().ok().filter(std::fs::Metadata::is_file)?;
            Some((about.len(), path))
        })
        .collect();
    files.sort_unstable();
    files.into_iter().rev().map(|(_, path)| path).find(|path| loader_of(path).is_some())
}

fn loader_of(program: &Path) -> Option<PathBuf> {
    let elf = parse_elf(&File::open(program).ok()?).ok()?;
    elf.interpreter.map(PathBuf::from).filter(|path| path.is_file())
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn show(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1e3)
}
