//! `gantry why --watch` with Python programs whose library spins while it waits. It must not report a hang as long as one
//! variable changes.

use std::path::Path;
use std::time::Duration;

use gantry_tests::programs::{get_library, sources};
use gantry_tests::pythons::python;
use gantry_tests::watched::check_hang_after_progress;
use gantry_tests::{in_a_world, proc, require, skip, tool};

const LIMIT: Duration = Duration::from_secs(240);

macro_rules! versions {
    ($($name:ident: $minor:literal;)*) => {
        $(
            #[test]
            fn $name() {
                let library = require!(get_library("spinning"));
                let Some(python) = python($minor) else { skip!("Python 3.{} is not here", $minor) };
                in_a_world(LIMIT, move |world| {
                    let script = sources().join("spins.py");
                    let words = [script.to_str().expect("a path"), library.to_str().expect("a path"), "1.8"];
                    let run = world.start(&python, words);
                    check_hang_after_progress(world, run, |pid| runs(*pid, &script), "waits in MPIX_Spin");
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
            check_hang_after_progress(
                world,
                run,
                |pid| runs(*pid, &script),
                "waits in MPI_Recv called at mpi_steps.py:",
            );
        }
    });
}

fn runs(pid: i32, script: &Path) -> bool {
    let words = proc::command_line(pid);
    words.contains(script.to_str().expect("a path")) && !words.contains("mpirun")
}
