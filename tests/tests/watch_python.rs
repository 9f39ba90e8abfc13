//! `gantry why --watch` with programs of Python whose library turns while it waits. It must not report a hang as long as
//! one variable changes.

use std::path::Path;
use std::time::Duration;

use gantry_tests::programs::{get_library, sources};
use gantry_tests::pythons::python;
use gantry_tests::{Run, World, becomes_true, eventually, in_a_world, proc, require, skip, tool};
use nix::sys::signal::Signal;

const SOON: Duration = Duration::from_secs(120);
const LIMIT: Duration = Duration::from_secs(240);

macro_rules! versions {
    ($($name:ident: $minor:literal;)*) => {
        $(
            #[test]
            fn $name() {
                let library = require!(get_library("turning"));
                let Some(python) = python($minor) else { skip!("Python 3.{} is not here", $minor) };
                in_a_world(LIMIT, move |world| {
                    let script = sources().join("turns.py");
                    let words = [script.to_str().expect("a path"), library.to_str().expect("a path"), "1.8"];
                    let run = world.start(&python, words);
                    hangs_after_progress(world, run, &script, "waits in MPIX_Turn");
                });
            }
        )*
    };
}

versions! {
    each_kind_of_variable_is_progress_in_python_3_9: 9;
    each_kind_of_variable_is_progress_in_python_3_10: 10;
    each_kind_of_variable_is_progress_in_python_3_11: 11;
    each_kind_of_variable_is_progress_in_python_3_12: 12;
    each_kind_of_variable_is_progress_in_python_3_13: 13;
    each_kind_of_variable_is_progress_in_python_3_14: 14;
}

#[test]
fn a_program_of_mpi4py_moves_until_it_hangs() {
    let mpirun = require!(tool("mpirun.openmpi"));
    // The Python that Debian's packages are built for.
    let python = Path::new("/usr/bin/python3");
    if !Path::new("/usr/lib/python3/dist-packages/mpi4py").exists() {
        skip!("python3-mpi4py is not installed");
    }
    in_a_world(LIMIT, move |world| {
        let script = sources().join("mpi_steps.py");
        for kind in ["local", "attribute", "global"] {
            // Tests may be run as root, and with more ranks than processors.
            let before = ["--allow-run-as-root", "--oversubscribe", "-n", "2"];
            let program = [python.to_str().expect("a path"), script.to_str().expect("a path"), kind, "5"];
            let run = world.start(&mpirun, [&before[..], &program].concat());
            hangs_after_progress(world, run, &script, "waits in MPI_Recv called at mpi_steps.py:");
        }
    });
}

fn says(run: &mut Run, part: &str) -> bool {
    run.stdout().iter().any(|line| line.contains(part))
}

/// Watches a program that first makes progress and then hangs as the words say.
fn hangs_after_progress(world: &World, mut run: Run, script: &Path, says_why: &str) {
    eventually(SOON, "it has begun", || says(&mut run, "begun"));
    let mut watch = world.gantry(["why", "--watch=1s", "--every", "0.2", &run.pid().to_string()]);
    eventually(SOON, "it hangs", || says(&mut run, "hangs"));
    assert!(!says(&mut watch, "nothing has moved"), "{:?} after {:?}", watch.stdout(), run.stdout());
    eventually(SOON, "the hang is told", || says(&mut watch, "nothing has moved"));
    assert!(becomes_true(SOON, || says(&mut watch, says_why)), "{:?}", watch.stdout());
    let is_rank = |pid: &i32| {
        let words = proc::command_line(*pid);
        words.contains(script.to_str().expect("a path")) && !words.contains("mpirun")
    };
    let ranks: Vec<i32> = world.processes().into_iter().filter(is_rank).collect();
    proc::send_those_left(ranks, Signal::SIGKILL);
    let done = watch.wait(SOON);
    assert_eq!(done.code(), 0, "{done:?}");
    run.exited(SOON);
}
