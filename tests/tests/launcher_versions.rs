//! Launchers whose file name does not identify them, but whose answer to `--version` does. `launcher_matrix` tests
//! other such launchers.

use std::path::Path;
use std::time::{Duration, Instant};

use gantry_tests::{SOON, World, copy_program, in_a_world, proc, require, tool};
use nix::sys::signal::Signal;

const LIMIT: Duration = Duration::from_secs(180);

/// Holds two ranks by this launcher, checks them from outside and releases them. Returns their output, sorted.
#[track_caller]
fn held_by(world: &World, launcher: &Path, options: &[&str]) -> Vec<String> {
    let launcher = launcher.display().to_string();
    let launch = ["launch", "--hold", "--json", "--hold-method=exec", "--launcher", &launcher, "--"];
    let rest = ["-n", "2", "/bin/echo", "here"];
    let command = world.gantry_command(launch.iter().chain(options).chain(&rest));
    let mut run = world.spawn(command);
    let held = run.next_event("held", 2 * SOON);
    let ranks = held["ranks"].as_array().expect("ranks");
    assert_eq!(ranks.len(), 2, "{held}");
    for rank in ranks {
        let pid = i32::try_from(rank["pid"].as_i64().expect("a pid")).expect("a pid");
        assert_eq!(proc::why_not_held(pid), None, "{rank}");
    }
    assert_eq!(world.gantry(["release", held["app"].as_str().expect("an id")]).wait(SOON).code(), 0);
    let done = run.wait(2 * SOON);
    assert_eq!(done.code(), 0, "{done:?}");
    let events = done.events();
    let text: String = events.iter().filter_map(|event| event["text"].as_str()).collect();
    text.lines().map(str::to_owned).collect()
}

const OPEN_MPI: [&str; 2] = ["--allow-run-as-root", "--oversubscribe"];

#[test]
fn a_copy_of_a_launcher_under_a_neutral_name_is_recognized_by_its_version() {
    let orterun = require!(tool("orterun"));
    in_a_world(LIMIT, move |world| {
        let copy = world.work_dir().join("start");
        copy_program(&orterun, &copy);
        assert_eq!(held_by(world, &copy, &OPEN_MPI), ["here", "here"]);
        let mut wlm = world.gantry_command(["wlm"]);
        wlm.env("GANTRY_LAUNCHER", &copy);
        let said = world.spawn(wlm).wait(SOON);
        let told = format!(
            "the options of {} are understood (recognized as mpirun by its answer to --version, 'start (OpenRTE)",
            copy.display()
        );
        assert!(said.stdout.concat().contains(&told), "{said:?}");
    });
}

#[test]
fn a_script_that_runs_a_launcher_is_identified_as_that_launcher() {
    require!(tool("mpiexec.hydra"));
    in_a_world(LIMIT, |world| {
        let script = world.executable("mpiexec", b"#!/bin/sh\nexec mpiexec.hydra \"$@\"\n");
        assert_eq!(held_by(world, &script, &[]), ["here", "here"]);
    });
}

#[test]
fn a_launcher_that_does_not_answer_holds_up_neither_the_launchs_timeout_nor_an_interrupt() {
    in_a_world(LIMIT, |world| {
        let asked = world.work_dir().join("asked");
        let script = format!("#!/bin/sh\necho > {}\nsleep 1000 & sleep 1000\n", asked.display());
        // Its name does not tell which launcher of MPI it is.
        let launcher = world.executable("mpiexec", script.as_bytes()).display().to_string();
        let launch = |timeout: &str| {
            let options = ["launch", "--json", "--timeout", timeout, "--launcher", &launcher, "--"];
            world.gantry(options.into_iter().chain(["-n", "2", "/bin/true"]))
        };
        let begun = Instant::now();
        let error = gantry_tests::slurm::error_of(&launch("1").wait(SOON)).to_string();
        assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
        let expected = format!("while planning the launch; no answer from '{launcher} --version'");
        assert!(error.contains(&expected), "{error}");
        std::fs::remove_file(&asked).expect("the script was asked");
        let mut run = launch("60");
        proc::eventually(SOON, "the question", || asked.exists());
        let begun = Instant::now();
        run.signal(Signal::SIGINT);
        let ended = run.wait(SOON);
        assert!(begun.elapsed() < Duration::from_secs(3), "{:?} {ended:?}", begun.elapsed());
        assert_ne!(ended.code(), 0, "{ended:?}");
        // The leak check sees the script and its child if they are left.
    });
}

#[test]
fn an_unknown_launchers_answer_is_in_the_error_and_a_hanging_one_is_killed() {
    in_a_world(LIMIT, |world| {
        let error_of = |launcher: &Path| {
            let launcher = launcher.display().to_string();
            let launch = [
                "launch",
                "--json",
                "--hold-method=exec",
                "--launcher",
                &launcher,
                "--",
                "-n",
                "2",
                "/bin/true",
            ];
            gantry_tests::slurm::error_of(&world.gantry(launch).wait(SOON)).to_string()
        };
        let other = world.executable("mpirun", b"#!/bin/sh\necho; echo 'abacus 7 '; read line && echo got\n");
        let error = error_of(&other);
        assert!(error.contains("its answer to --version is 'abacus 7'"), "{error}");
        // Both processes would fail the leak check if they were left.
        let hangs = world.executable("mpiexec", b"#!/bin/sh\nsleep 1000 & sleep 1000\n");
        let error = error_of(&hangs);
        assert!(error.contains("did not end within 5 s"), "{error}");
    });
}
