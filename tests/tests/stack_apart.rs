//! `gantry why` on a program with separate debug information, as in distributions. Only those files have the
//! program's lines and its inlined functions.

#![expect(clippy::unwrap_used, reason = "a test that finds something else fails")]
#![expect(clippy::disallowed_methods, reason = "a test looks for tools of its own machine, and runs them")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use gantry_tests::programs::get_source;
use gantry_tests::{World, in_a_world, require, tool};

const SOON: Duration = Duration::from_secs(60);
const LIMIT: Duration = Duration::from_secs(240);

/// The report about the waiting rank, if lines are known.
const WITH_LINES: &str = "rank 1 waits in std::mutex::lock called at std_mutex.cpp:";

/// The report if only the names of functions are known.
const WITH_NAMES: &str = "rank 1 waits in pthread_mutex_lock called by `bank::Account::withdraw`";

fn run(program: &str, args: &[&str]) {
    let done = Command::new(program).args(args).stdin(Stdio::null()).output().unwrap();
    assert!(done.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&done.stderr));
}

/// A program with all debug information. With `other`, another program of the same source.
fn made(other: bool) -> Result<PathBuf, String> {
    let more = if other { "-DOTHER" } else { "-DFIRST" };
    get_source("hung/std_mutex.cpp", "c++", &["-O2", more])
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// The report of `gantry why` once it begins like this. Otherwise its last report.
fn why(world: &World, program: &Path, begins: &str) -> String {
    let mut run = world.gantry(["launch", "--", "-n", "3", text(program)]);
    let until = Instant::now() + SOON;
    let said = loop {
        let app = world.gantry(["ps", "--json"]).wait(SOON).stdout.concat();
        let app =
            app.split("\"app\":\"").nth(1).map(|rest| rest.split('"').next().unwrap_or_default().to_owned());
        let done = app.map(|app| world.gantry(["why", &app]).wait(SOON));
        let line = done.and_then(|done| done.stdout.first().cloned()).unwrap_or_default();
        if line.starts_with(begins) || Instant::now() > until {
            break line;
        }
    };
    run.signal(nix::sys::signal::Signal::SIGTERM);
    run.exited(SOON);
    said
}

/// Moves the debug information of `program` to `debug`, and the rest to `stripped`, which names the debug file.
fn take_apart(program: &Path, debug: &Path, stripped: &Path) {
    run("objcopy", &["--only-keep-debug", text(program), text(debug)]);
    let link = format!("--add-gnu-debuglink={}", text(debug));
    run("objcopy", &["--strip-all", &link, text(program), text(stripped)]);
}

#[test]
fn a_file_that_is_linked_by_name_tells_lines() {
    require!(tool("objcopy"));
    let program = require!(made(false));
    let other = require!(made(true));
    in_a_world(LIMIT, move |world| {
        let folder = world.work_dir();
        let (debug, stripped) = (folder.join("app.debug"), folder.join("app"));
        take_apart(&program, &debug, &stripped);
        assert!(why(world, &stripped, WITH_LINES).starts_with(WITH_LINES));
        // gantry also searches the folder `.debug` beside the program.
        std::fs::create_dir(folder.join(".debug")).unwrap();
        std::fs::rename(&debug, folder.join(".debug/app.debug")).unwrap();
        assert!(why(world, &stripped, WITH_LINES).starts_with(WITH_LINES));
        // A debug file of another build does not fit and must not be used.
        std::fs::remove_file(folder.join(".debug/app.debug")).unwrap();
        run("objcopy", &["--only-keep-debug", text(&other), text(&debug)]);
        let expected = "rank 1 waits in pthread_mutex_lock called by `app+0x";
        let said = why(world, &stripped, expected);
        assert!(said.starts_with(expected), "{said}");
    });
}

#[test]
fn parts_that_dwz_moved_to_a_common_file_are_found() {
    require!(tool("objcopy"));
    require!(tool("dwz"));
    let programs = [require!(made(false)), require!(made(true))];
    in_a_world(LIMIT, move |world| {
        let folder = world.work_dir();
        let debug = ["app.debug", "other.debug"].map(|name| folder.join(name));
        let common = folder.join("common.debug");
        let stripped = folder.join("app");
        for (program, debug) in programs.iter().zip(&debug) {
            run("objcopy", &["--only-keep-debug", text(program), text(debug)]);
        }
        run("dwz", &["-m", text(&common), "-M", "common.debug", text(&debug[0]), text(&debug[1])]);
        let link = format!("--add-gnu-debuglink={}", text(&debug[0]));
        run("objcopy", &["--strip-all", &link, text(&programs[0]), text(&stripped)]);
        let said = why(world, &stripped, WITH_LINES);
        assert!(said.starts_with(WITH_LINES), "{said}");
    });
}

#[test]
fn names_that_are_packed_into_a_program_are_shown() {
    require!(tool("objcopy"));
    require!(tool("xz"));
    let program = require!(made(false));
    in_a_world(LIMIT, move |world| {
        let folder = world.work_dir();
        let (names, stripped) = (folder.join("names"), folder.join("app"));
        run("objcopy", &["-S", "--keep-symbol=_ZN4bank7Account8withdrawEv", text(&program), text(&names)]);
        run("xz", &[text(&names)]);
        let section = format!("--add-section=.gnu_debugdata={}.xz", text(&names));
        run("objcopy", &["--strip-all", &section, text(&program), text(&stripped)]);
        let said = why(world, &stripped, WITH_NAMES);
        assert!(said.starts_with(WITH_NAMES), "{said}");
    });
}
