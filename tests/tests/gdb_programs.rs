//! `gantry gdb` on programs that are not as it would like them: replaced on disk, or ended by MPI.

#![expect(clippy::unwrap_used, reason = "a test that finds something else fails")]

use std::path::Path;
use std::time::Duration;

use gantry_tests::launchers::MPICH_4;
use gantry_tests::{Finished, World, in_a_world, programs, require, tool};
use serde_json::Value;

const SOON: Duration = Duration::from_secs(120);
const LIMIT: Duration = Duration::from_secs(300);

fn gantry(world: &World, args: &[&str]) -> Finished {
    world.gantry(args).wait(SOON)
}

/// Launches a copy of the program in the background, and gives the app's id.
#[track_caller]
fn launched(world: &World, options: &[&str], copy: &Path) -> String {
    std::fs::copy(programs::get("rounds"), copy).unwrap();
    let rest = ["--", "-n", "2", copy.to_str().unwrap(), "250"];
    let done = gantry(world, &[&["launch", "--background"], options, &rest].concat());
    assert_eq!((done.code(), done.stdout.len()), (0, 1), "{done:?}");
    done.stdout[0].clone()
}

#[test]
fn a_program_that_was_deleted_or_replaced_has_its_names() {
    require!(tool("gdb"));
    in_a_world(LIMIT, |world| {
        let copy = world.work_dir().join("rounds");
        for is_replaced in [false, true] {
            let app = launched(world, &[], &copy);
            std::fs::remove_file(&copy).unwrap();
            if is_replaced {
                std::fs::copy("/bin/true", &copy).unwrap();
            }
            let words =
                ["gdb", "--batch", "-ex", "tbreak solve", "-ex", "continue", "-ex", "print limit", &app];
            let done = gantry(world, &words);
            assert_eq!(done.code(), 0, "{done:?}");
            for part in ["solve (n=10) at ", "[0-1] $1 = 10"] {
                assert!(done.stdout.iter().any(|line| line.contains(part)), "{part}: {done:?}");
            }
            assert_eq!(gantry(world, &["kill", "--yes", &app]).code(), 0);
            drop(std::fs::remove_file(&copy));
        }
    });
}

#[test]
fn a_library_that_was_deleted_is_named() {
    require!(tool("gdb"));
    in_a_world(LIMIT, |world| {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let mut of_system = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
        let of_system = of_system.find(|path| path.contains("libgcc_s.so")).expect("a library");
        let library = world.work_dir().join("libextra.so");
        std::fs::copy(of_system, &library).unwrap();
        let preload = format!("LD_PRELOAD={}", library.display());
        let app = launched(world, &["--env", &preload], &world.work_dir().join("rounds"));
        let note = format!("ranks 0-1: {} was deleted or replaced after it was loaded", library.display());
        for is_there in [true, false] {
            let done = gantry(world, &["gdb", "--batch", "-ex", "print rank", &app]);
            let is_said = done.stderr.iter().any(|line| line.contains(&note));
            assert_eq!((done.code(), is_said), (0, !is_there), "{done:?}");
            drop(std::fs::remove_file(&library));
        }
        assert_eq!(gantry(world, &["kill", "--yes", &app]).code(), 0);
    });
}

#[test]
fn numbers_that_all_ranks_have_name_no_odd_rank_wherever_they_stand() {
    require!(tool("gdb"));
    in_a_world(LIMIT, |world| {
        let program = programs::get("rounds");
        // Rank 1 alone goes on.
        let words = ["gdb", "--batch", "-ex", "@1 tbreak main", "-ex", "@1 continue", "-ex", "print 6 * 7"];
        let done = gantry(world, &[&words[..], &["--", "-n", "3", program.to_str().unwrap(), "20"]].concat());
        assert_eq!(done.code(), 0, "{done:?}");
        assert!(done.stdout.iter().any(|line| line.contains("[0-2] $1 = 42")), "{done:?}");
        assert!(!done.stdout.iter().any(|line| line.contains("odd ranks")), "{done:?}");
    });
}

#[test]
fn the_rank_that_ended_mpi_is_named() {
    require!(tool("gdb"));
    let mpich = require!(MPICH_4.install());
    let program = require!(mpich.program("mpi_world"));
    in_a_world(LIMIT, move |world| {
        let left = "rank 1 ended before MPI_Finalize: exit code 5: all ranks are killed";
        let aborted = "rank 0 called MPI_Abort with exit code 3: all ranks are killed";
        for (words, said) in [(["leave", "1", "5"], left), (["abort", "0", "3"], aborted)] {
            let launch = ["gdb", "--batch", "-ex", "continue", "--", "-n", "3", &program];
            let done = gantry(world, &[&launch[..], &words[..]].concat());
            let notes = done.stderr.iter().filter(|line| line.contains(said)).count();
            assert_eq!(notes, 1, "{done:?}");
        }
        // As an object of its own.
        let launch = ["--json", "gdb", "--batch", "-ex", "continue", "--", "-n", "3", &program];
        let done = gantry(world, &[&launch[..], &["leave", "1", "5"]].concat());
        let objects = done.stdout.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        assert_eq!(objects.filter(|it| it["error"] == left).count(), 1, "{done:?}");
        // Leaving is no failure.
        let launch = ["gdb", "--batch", "-ex", "print 1", "--", "-n", "3", &program, "sum"];
        let done = gantry(world, &launch);
        assert!(!done.stderr.iter().any(|line| line.contains("all ranks are killed")), "{done:?}");
    });
}
