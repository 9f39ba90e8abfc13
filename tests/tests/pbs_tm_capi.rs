//! `libgantry_tm`: a C program that was written for PBS's own library is compiled with ours, and must do the same.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use gantry_tests::pbs::{StandIn, said, submit};
use gantry_tests::testbed::pbs::installation;
use gantry_tests::testbed::{Config, shared, usable};
use gantry_tests::{SOON, World, capi, programs, require, within};

/// The timeout of a whole test.
const LIMIT: Duration = Duration::from_secs(240);

/// The program's output with PBS's own library in a job of a real PBS. The test with a real PBS proves it.
const EXPECTED: &str = include_str!("../fixtures/pbs/23.06.06/tm_calls.expected");

/// Compiles a program with a header from one folder and a library from another.
fn compile(name: &str, made: &str, include: &Path, lib: &Path, library: &str) -> PathBuf {
    let flags = [
        format!("-I{}", include.display()),
        format!("-L{}", lib.display()),
        format!("-Wl,-rpath,{}", lib.display()),
        format!("-l{library}"),
    ];
    programs::get_with(name, made, &flags).unwrap_or_else(|why| panic!("{why}"))
}

/// Compiles a program with the installed library.
fn with_ours(name: &str) -> PathBuf {
    let prefix = capi::prefix();
    compile(name, &format!("{name}_ours"), &prefix.join("include"), &prefix.join("lib"), "gantry_tm")
}

fn ours() -> PathBuf {
    with_ours("tm_calls")
}

#[test]
fn a_program_for_the_library_of_pbs_runs_with_ours_against_the_stand_in() {
    within(LIMIT, || {
        let world = World::new();
        let mom = StandIn::start(&world, &[]);
        let output = mom.script(&world, ours()).stdin(Stdio::null()).output().expect("the program");
        assert_eq!(String::from_utf8_lossy(&output.stdout), EXPECTED);
        drop(mom);
        world.finish();
    });
}

#[test]
fn a_thread_that_waits_lets_others_begin_requests() {
    within(LIMIT, || {
        let world = World::new();
        let mom = StandIn::start(&world, &[]);
        let output =
            mom.script(&world, with_ours("tm_threads")).stdin(Stdio::null()).output().expect("the program");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(said, "init 0\nspawn 0\npoll 0\nobit 0\nkill 0\nboth 1\nfinalize 0\n");
        drop(mom);
        world.finish();
    });
}

#[test]
fn outside_of_a_job_the_environment_is_refused() {
    within(LIMIT, || {
        let world = World::new();
        let output = world.command(ours()).env("PBS_MOMPORT", "1").output().expect("the program");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(said.ends_with("init: 17005\n"), "{said}");
        // No mom runs here. The first request reports that.
        assert!(said.contains("\nattach: 17000\n"), "{said}");
        world.finish();
    });
}

#[test]
fn in_a_real_job_it_says_the_same_with_either_library() {
    let installed = require!(installation());
    let config = Config::with_nodes(3).managed_by_pbs(&installed);
    require!(usable(&config));
    within(LIMIT, move || {
        let bed = shared(&config);
        let theirs =
            compile("tm_calls", "tm_calls_theirs", &installed.join("include"), &installed.join("lib"), "pbs");
        submit(&bed, &theirs.display().to_string());
        let with_theirs = said(&bed, SOON * 3);
        submit(&bed, &ours().display().to_string());
        assert_eq!(said(&bed, SOON * 3), with_theirs);
        assert_eq!(with_theirs, format!("{EXPECTED}ended 0\n"));
        bed.assert_nothing_left(SOON);
    });
}
