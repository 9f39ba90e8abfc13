//! The Python packages gantry and gantry_backend: each test of `tests/python/test_packages.py` in a world of its own, a
//! tool on a real Slurm, and what `pip install` makes.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gantry_tests::pythons::packages;
use gantry_tests::slurm::{Cluster, on_cluster};
use gantry_tests::testbed::Config;
use gantry_tests::wheels::wheel;
use gantry_tests::{World, becomes_true, binaries, in_a_world, require, tool};

const LIMIT: Duration = Duration::from_secs(240);
const LONG: Duration = Duration::from_secs(120);

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("python")
}

/// Runs a test of Python's.
fn check(world: &World, python: &Path, name: &str) {
    let mut command = world.command(python);
    command.args(["-B", "-m", "unittest", "--quiet", &format!("test_packages.Packages.test_{name}")]);
    command.env("PYTHONPATH", packages()).current_dir(scripts());
    let done = world.spawn(command).wait(LONG);
    let said = [done.stdout.clone(), done.stderr.clone()].concat().join("\n");
    assert!(done.code() == 0 && said.contains("Ran 1 test"), "{said}");
}

macro_rules! tests {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                let python = require!(tool("python3"));
                in_a_world(LIMIT, move |world| check(world, &python, stringify!($name)));
            }
        )*

        const TESTS: &[&str] = &[$(stringify!($name)),*];
    };
}

tests! {
    ranks_are_held_until_their_release
    output_goes_where_it_is_asked_to_go
    daemons_in_python_contribute_through_every_filter
    tool_and_daemons_send_messages_both_ways
    filters_of_the_tools_own_merge_in_daemons_and_in_the_tool
    files_arguments_and_variables_reach_a_daemon
    a_daemon_that_fails_shows_its_traceback
    a_script_imports_what_lies_beside_it_in_the_session
    a_daemon_runs_by_an_interpreter_that_was_moved
    a_daemon_keeps_its_session
    a_session_may_end_with_its_app
    daemons_that_have_all_ended_are_an_error
    a_daemon_saves_what_it_has_before_its_session_ends
    an_app_ends_with_its_owner
    attached_programs_go_on
    ctrl_c_ends_a_wait_and_nothing_else
    a_signals_handler_may_use_the_app_that_is_waited_for
    other_threads_run_while_one_waits
    a_forked_child_neither_uses_nor_ends_an_app
    errors_say_what_and_why_and_the_remedy
    the_choice_of_a_workload_manager_is_told
    apps_of_other_tools_are_found_and_reached
    asyncio_waits_for_several_apps_at_once
    a_close_does_not_wait_for_a_reader_that_does_not_come
    every_option_is_in_the_signature_and_calls_that_share_options_agree
}

#[test]
fn no_test_of_pythons_is_left_out() {
    let text = std::fs::read_to_string(scripts().join("test_packages.py")).expect("the tests");
    let names = text.lines().filter_map(|line| line.trim().strip_prefix("def test_")?.split('(').next());
    assert_eq!(names.collect::<BTreeSet<_>>(), TESTS.iter().copied().collect());
}

/// Runs a tool of these tests on a cluster, to its end.
fn run_on(cluster: &Cluster, tool: &str, args: &[&str]) -> Vec<String> {
    let script = scripts().join(tool);
    let words = [&["-B", script.to_str().expect("a path")], args].concat();
    // The Python that all users of the testbed see.
    let python = "/usr/bin/python3";
    let done = cluster.run(python, words, &[("PYTHONPATH", packages().to_str().expect("a path"))]).wait(LONG);
    assert_eq!(done.code(), 0, "{done:?}");
    done.stdout
}

#[test]
fn a_tool_holds_a_step_of_slurm_and_its_daemons_are_on_every_node() {
    require!(tool("srun"));
    on_cluster(Config::with_nodes(3), |cluster| {
        let said = run_on(cluster, "sum_of_ranks.py", &["-N3", "-n6", "/bin/sleep", "1000"]);
        assert_eq!(said, ["slurm: 6 ranks on 3 nodes are held", "their sum is 15, told by 3 daemons"]);
    });
}

#[test]
fn a_tool_hears_what_its_launch_waits_for_and_may_give_up() {
    require!(tool("srun"));
    on_cluster(Config::with_nodes(2), |cluster| {
        let said = run_on(cluster, "impatient.py", &["--hold", "-N2", "/bin/true"]);
        assert!(said.len() == 2 && said[0].starts_with("slurm: ") && said[1] == "given up", "{said:?}");
        let jobs = || cluster.said("squeue", ["--me", "--noheader"]);
        assert!(becomes_true(LONG, || jobs().is_empty()), "{}", jobs());
    });
}

#[test]
fn a_tool_submits_a_job_and_attaches_to_it_or_cancels_it() {
    require!(tool("srun"));
    on_cluster(Config::with_nodes(2), |cluster| {
        let states = || cluster.said("squeue", ["--me", "--noheader", "--format=%T"]);
        let job = ["-N2", "-n4", "--output=/dev/null", "--wrap=srun sleep 704"];
        let said = run_on(cluster, "submitter.py", &[&["attach"][..], &job].concat());
        assert!(said[0].starts_with("slurm: job "), "{said:?}");
        assert_eq!(said.last().map(String::as_str), Some("4 ranks on 2 nodes are running"));
        assert_eq!(states().trim(), "RUNNING");
        cluster.said("scancel", ["--me"]);
        cluster.bed.wait_idle(LONG).expect("idle");
        let waits = ["cancel", "--hold", "--output=/dev/null", "--wrap=srun sleep 705"];
        assert_eq!(run_on(cluster, "submitter.py", &waits).len(), 1);
        assert!(becomes_true(LONG, || states().trim().is_empty()), "{}", states());
    });
}

/// Runs a program to its end, which is to be a good one.
#[track_caller]
fn run(world: &World, program: &Path, args: &[&str], variables: &[(&str, &str)]) -> Vec<String> {
    let mut command = world.command(program);
    command.args(args).envs(variables.iter().copied());
    let done = world.spawn(command).wait(LONG);
    assert_eq!(done.code(), 0, "{done:?}");
    done.stdout
}

/// A virtual environment whose pip builds the packages, with what has been built already instead of by cargo.
struct Pip<'a> {
    world: &'a World,
    venv: PathBuf,
    variables: [(&'static str, String); 3],
}

impl<'a> Pip<'a> {
    fn new(world: &'a World, python: &Path) -> Self {
        let folder = world.work_dir();
        let stand_in = scripts().join("cargo_stand_in.py");
        let stand_in = format!("#!/bin/sh\nexec {} {} \"$@\"\n", text(python), text(&stand_in));
        let stand_in = world.executable("cargo", stand_in.as_bytes());
        // What setuptools writes beside the sources.
        let config = folder.join("setup.cfg");
        let places = format!("[build]\nbuild_base={0}/build\n[egg_info]\negg_base={0}\n", text(&folder));
        std::fs::write(&config, places).expect("a file");
        let venv = folder.join("venv");
        run(world, python, &["-m", "venv", &text(&venv)], &[]);
        let variables = [
            ("CARGO", text(&stand_in)),
            ("GANTRY_BIN_DIR", text(&binaries().dir)),
            ("DIST_EXTRA_CONFIG", text(&config)),
        ];
        Self { world, venv, variables }
    }

    fn python(&self, args: &[&str]) -> Vec<String> {
        let variables = self.variables.each_ref().map(|(name, value)| (*name, &**value));
        run(self.world, &self.venv.join("bin/python"), args, &variables)
    }

    fn install(&self, what: &[&str]) {
        let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
        self.python(&[&pip, what].concat());
    }

    /// Launches from Python and by the command that is installed.
    fn check_launches(&self) {
        let script = "import gantry; print(gantry.launch(['-n', '2', 'echo', 'said']).wait().code)";
        let python = self.venv.join("bin/python");
        assert_eq!(run(self.world, &python, &["-c", script], &[]), ["said", "said", "0"]);
        let command = self.venv.join("bin/gantry");
        assert_eq!(run(self.world, &command, &["launch", "-n", "2", "echo", "said"], &[]), ["said", "said"]);
    }
}

fn text(path: &Path) -> String {
    path.to_str().expect("a path").to_owned()
}

/// Makes a source distribution, and unpacks it, too.
fn make_sdist(pip: &Pip<'_>) -> (PathBuf, PathBuf) {
    let folder = pip.world.work_dir();
    pip.python(&["-m", "build", "--sdist", "--outdir", &text(&folder), &text(&clone())]);
    let [sdist] = &*list(&folder, "gz") else { panic!("not one source distribution") };
    let unpacked = PathBuf::from(text(sdist).trim_end_matches(".tar.gz"));
    pip.python(&["-m", "tarfile", "--extract", &text(sdist), &text(&folder)]);
    (sdist.clone(), unpacked)
}

/// The files below a folder with this extension.
fn list(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let files = walkdir::WalkDir::new(folder).into_iter().flatten().map(walkdir::DirEntry::into_path);
    files.filter(|file| file.extension().is_some_and(|it| it == extension)).collect()
}

fn clone() -> PathBuf {
    scripts().parent().and_then(Path::parent).expect("the clone").to_path_buf()
}

/// All sources of the crates are in a source distribution. pip has cargo read them, but a stand-in builds nothing.
fn check_sources(unpacked: &Path) {
    let clone = clone();
    let kinds = ["rs", "h", "c", "toml", "py", "pyi", "typed"];
    for folder in ["shared", "wlm", "frontend", "backend"].map(|it| clone.join(it)) {
        for file in kinds.iter().flat_map(|extension| list(&folder, extension)) {
            let inside = file.strip_prefix(&clone).expect("a file of the clone");
            assert!(unpacked.join(inside).is_file(), "{} is missing", inside.display());
        }
    }
    let mut above = ["Cargo.toml", "Cargo.lock", "LICENSE-MIT", "LICENSE-APACHE", "README.md"].iter();
    assert!(above.all(|file| unpacked.join(file).is_file()));
    assert!(!unpacked.join("target").exists() && !unpacked.join("tests/tests").exists());
}

#[test]
fn what_pip_installs_finds_its_programs() {
    let python = require!(tool("python3"));
    // pip needs the same network for what builds the packages.
    require!(wheel("setuptools-rust"));
    in_a_world(LIMIT, move |world| {
        let pip = Pip::new(world, &python);
        pip.install(&["build", "mypy"]);
        let (sdist, unpacked) = make_sdist(&pip);
        check_sources(&unpacked);
        pip.install(&[&text(&sdist)]);
        pip.check_launches();
        let licences = "import importlib.metadata as it; print([f.name for f in it.files('gantry-launch') if 'licenses' in f.parts])";
        let licences = pip.python(&["-I", "-c", licences]).concat();
        assert!(licences.contains("THIRD-PARTY.txt") && licences.contains("LICENSE-MIT"), "{licences}");
        // The types of both packages are those that a type checker sees.
        let example = text(&clone().join("examples/python/rank_status.py"));
        let mypy = ["-m", "mypy", "--strict", "--cache-dir", "/dev/null"];
        pip.python(&[&mypy[..], &["-p", "gantry", "-p", "gantry_backend"]].concat());
        pip.python(&[&mypy[..], &[&*example]].concat());
        // They describe the native parts as these are.
        pip.python(&["-m", "mypy.stubtest", "gantry._native", "gantry_backend._native"]);
        // With --editable the packages are not where pip puts the programs.
        pip.install(&["--editable", &text(&unpacked)]);
        let file = pip.python(&["-c", "import gantry; print(gantry.__file__)"]);
        assert_eq!(file, [text(&unpacked.join("frontend/python/gantry/__init__.py"))]);
        pip.check_launches();
    });
}
