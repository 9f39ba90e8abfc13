//! `gantry why --watch` with healthy programs: the number of its alarms, which must be zero. An alarm fails the bench.
//!
//! ```sh
//! cargo bench -p gantry-tests --bench watch           # 100 runs
//! cargo bench -p gantry-tests --bench watch -- 20     # so many
//! ```
//!
//! There are seven kinds of programs, each in a seventh of the runs:
//!
//! - MPI ranks that are nearly always in an MPI_Allreduce
//! - ranks that repeatedly sleep for a second
//! - ranks that write and read a little between breaks
//! - ranks that compute
//! - a Python program that computes with short breaks
//! - MPI ranks that wait for a thread of their own that computes
//! - a Python program that is nearly always in a function that spins while it waits
//!
//! Each is checked five times a second. An alarm comes after one and a half seconds without progress. Four runs are
//! active at a time.
#![expect(clippy::print_stdout, reason = "a bench prints its results")]

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use gantry_tests::{Run, World, eventually, programs, tool};

const LONG: Duration = Duration::from_secs(120);
const AT_A_TIME: usize = 4;

/// How long each program runs.
const SECONDS: u32 = 8;

/// The exit code of an alarm.
const STALLED: i32 = 75;

/// The programs. Those that are not here are left out.
struct Programs {
    steps: PathBuf,
    /// The launcher and its program.
    mpi: Result<(PathBuf, PathBuf), String>,
    threads: Result<(PathBuf, PathBuf), String>,
    python: Result<PathBuf, String>,
    spinning: Result<PathBuf, String>,
}

fn main() -> ExitCode {
    let count = std::env::args().find_map(|arg| arg.parse().ok()).unwrap_or(100);
    let programs = Programs::find();
    let (next, alarms, runs) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                loop {
                    let run = next.fetch_add(1, Ordering::SeqCst);
                    if run >= count {
                        return;
                    }
                    if has_alarm(run, &programs) {
                        alarms.fetch_add(1, Ordering::SeqCst);
                    }
                    runs.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
    });
    let missing =
        [programs.mpi.err(), programs.threads.err(), programs.python.err(), programs.spinning.err()];
    for why in missing.into_iter().flatten() {
        println!("without some programs: {why}");
    }
    let alarms = alarms.into_inner();
    println!("{alarms} alarms in {} healthy runs", runs.into_inner());
    if alarms == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Watches a program until it ends.
fn has_alarm(run: usize, programs: &Programs) -> bool {
    let world = World::new();
    let mut program = programs.start(run, &world);
    eventually(LONG, "it has begun", || program.stdout().iter().any(|line| line.contains("begun")));
    let words = ["why", "--watch=1.5s", "--every", "0.2", "--exit", &program.pid().to_string()];
    let done = world.gantry(words).wait(LONG);
    match done.code() {
        0 => {}
        STALLED => println!("run {run}: {done:?}"),
        code => panic!("run {run} ended with {code}: {done:?}"),
    }
    program.wait(LONG);
    world.finish();
    done.code() == STALLED
}

impl Programs {
    fn find() -> Self {
        let mpi = tool("mpiexec.mpich").or_else(|_| tool("mpiexec.hydra"));
        let made = |name| {
            let mpiexec = mpi.clone()?;
            Ok((mpiexec, programs::get_mpi(name, "mpicc.mpich")?))
        };
        let (mpi, threads) = (made("mpi_steps"), made("mpi_threads"));
        let python = std::fs::canonicalize("/usr/bin/python3").map_err(|error| format!("python3: {error}"));
        let spinning = programs::get_library("spinning");
        Self { steps: programs::get("steps"), mpi, threads, python, spinning }
    }

    fn start(&self, run: usize, world: &World) -> Run {
        let seconds = SECONDS.to_string();
        let script = |name: &str| text(&programs::sources().join(name)).to_owned();
        match (run % 7, self) {
            (0, Self { mpi: Ok((mpiexec, program)), .. }) => {
                world.start(mpiexec, ["-n", "3", text(program), &seconds])
            }
            (1, Self { python: Ok(python), .. }) => world.start(python, [script("steps.py"), seconds]),
            (2, _) => world.start(&self.steps, ["files", &(SECONDS * 10).to_string()]),
            // Some eight seconds on a machine of today.
            (3, _) => world.start(&self.steps, ["work", &(SECONDS * 40).to_string()]),
            (4, Self { threads: Ok((mpiexec, program)), .. }) => {
                world.start(mpiexec, ["-n", "2", text(program), "compute", &seconds])
            }
            (5, Self { python: Ok(python), spinning: Ok(library), .. }) => {
                // Sixteen loops, and no hang at the end.
                let words =
                    [script("spins.py"), text(library).to_owned(), "0.5".to_owned(), "end".to_owned()];
                world.start(python, words)
            }
            _ => world.start(&self.steps, ["sleep", &seconds]),
        }
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path")
}
