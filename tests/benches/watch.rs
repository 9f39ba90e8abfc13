//! `gantry why --watch` beside programs that are healthy: how often it raises an alarm, which is to be never.
//!
//! ```sh
//! cargo bench -p gantry-tests --bench watch           # 100 runs
//! cargo bench -p gantry-tests --bench watch -- 20     # so many
//! ```
//!
//! A third of the runs each: MPI ranks that are nearly always in an MPI_Allreduce, ranks that sleep for a second again and again, ranks that write and read a
//! little between breaks. All are looked at five times a second, and an alarm comes after one and a half seconds of standstill. Four runs go on at a time.
#![expect(clippy::print_stdout, reason = "a bench prints its results")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use gantry_tests::{World, eventually, programs, tool};

const LONG: Duration = Duration::from_secs(120);
const AT_A_TIME: usize = 4;

/// How long each program goes on.
const SECONDS: u32 = 8;

fn main() {
    let count = std::env::args().find_map(|arg| arg.parse().ok()).unwrap_or(100);
    let mpi = programs::get_mpi("mpi_steps", "mpicc.mpich")
        .and_then(|program| Ok((program, tool("mpiexec.mpich").or_else(|_| tool("mpiexec.hydra"))?)));
    let steps = programs::get("steps");
    let (next, alarms, runs) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                loop {
                    let run = next.fetch_add(1, Ordering::SeqCst);
                    if run >= count {
                        return;
                    }
                    let world = World::new();
                    let seconds = SECONDS.to_string();
                    let turns = (SECONDS * 10).to_string();
                    let steps = steps.to_str().expect("a path");
                    let mut program = match (run % 3, &mpi) {
                        (0, Ok((program, mpiexec))) => {
                            world.start(mpiexec, ["-n", "3", program.to_str().expect("a path"), &seconds])
                        }
                        (1, _) | (0, Err(_)) => world.start(steps.as_ref(), ["sleep", &seconds]),
                        _ => world.start(steps.as_ref(), ["files", &turns]),
                    };
                    eventually(LONG, "it has begun", || {
                        program.stdout().iter().any(|line| line.contains("begun"))
                    });
                    let words =
                        ["why", "--watch=1.5s", "--every", "0.2", "--exit", &program.pid().to_string()];
                    let done = world.gantry(words).wait(LONG);
                    match done.code() {
                        0 => {}
                        75 => {
                            alarms.fetch_add(1, Ordering::SeqCst);
                            println!("run {run}: {done:?}");
                        }
                        code => panic!("run {run} ended with {code}: {done:?}"),
                    }
                    runs.fetch_add(1, Ordering::SeqCst);
                    program.wait(LONG);
                    world.finish();
                }
            });
        }
    });
    if let Err(why) = &mpi {
        println!("without MPI: {why}");
    }
    println!("{} alarms in {} healthy runs", alarms.into_inner(), runs.into_inner());
}
