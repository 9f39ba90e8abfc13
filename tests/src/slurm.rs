//! The command line under test on a bed with Slurm, as its ordinary user. The nodes' own `/proc` shows the ranks.

use std::ffi::OsStr;
use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::fault::{Tool, is_keeper};
use crate::testbed::config::HOME;
use crate::testbed::{Config, Process, Shared, Testbed, shared, shared_with_others, turn_of, usable};
use crate::{Finished, Run, SOON, World, becomes_true, binaries, proc, record_skip, within};

/// The limit for a whole test, including a new bed.
const LIMIT: Duration = Duration::from_secs(240);

/// The beginning of every launch: nodes have no folder of a world, so ranks start in a directory that every host has.
const LAUNCH: [&str; 4] = ["launch", "--json", "--cwd", "/"];

/// A bed for one test, and the test's world.
#[derive(Debug)]
pub struct Cluster {
    /// The world on the login node; it is dropped first.
    pub world: World,
    /// The bed.
    pub bed: Shared,
    /// Variables of programs on the login node, besides the world's.
    pub variables: Vec<(&'static str, &'static str)>,
}

/// Runs a test on a bed of this configuration. At its end no host may have remains, and Slurm no job. Counts a skip if
/// no bed can be made.
///
/// # Panics
/// As `body` does; and when something is left.
#[track_caller]
pub fn on_cluster(config: Config, body: impl FnOnce(&mut Cluster) + Send + 'static) {
    on_cluster_for(LIMIT, config, body);
}

/// As [`on_cluster`], for a test that may take that long.
///
/// # Panics
/// As there.
#[track_caller]
pub fn on_cluster_for(limit: Duration, config: Config, body: impl FnOnce(&mut Cluster) + Send + 'static) {
    if let Err(why) = usable(&config) {
        return record_skip(&why);
    }
    within(limit + turn_of(&config), move || {
        let bed = shared(&config);
        // The previous test may have killed nodes. Their jobs take some time to complete.
        bed.wait_idle(2 * SOON).expect("idle nodes");
        let mut cluster = Cluster { world: World::new(), bed, variables: Vec::new() };
        body(&mut cluster);
        let Cluster { world, bed, .. } = cluster;
        world.finish();
        assert_nothing_left(&bed);
    });
}

/// As [`on_cluster`], at the same time as other such tests of this process with the same configuration. The last of the
/// tests that share the bed checks for their common remains.
///
/// # Panics
/// As `body` does; and when something is left.
#[track_caller]
pub fn on_cluster_together(config: Config, body: impl FnOnce(&mut Cluster) + Send + 'static) {
    if let Err(why) = usable(&config) {
        return record_skip(&why);
    }
    within(LIMIT + turn_of(&config), move || {
        let bed = shared_with_others(&config);
        let mut cluster = Cluster { world: World::new(), bed, variables: Vec::new() };
        body(&mut cluster);
        let Cluster { world, bed, .. } = cluster;
        world.finish();
        if let Some(bed) = bed.last() {
            assert_nothing_left(&bed);
        }
    });
}

#[track_caller]
fn assert_nothing_left(bed: &Testbed) {
    bed.assert_nothing_left(SOON);
    let jobs = said(bed, "squeue", ["--noheader", "--format=%A %j %T %R"]);
    let ended = becomes_true(SOON, || said(bed, "squeue", ["--noheader"]).is_empty());
    assert!(ended, "jobs are left: {jobs}");
}

/// The output of a command of the ordinary user on the login node.
#[track_caller]
fn said<const N: usize>(bed: &Testbed, program: &str, args: [&str; N]) -> String {
    let mut command = bed.login().command("timeout").expect("the login node");
    let output = command.args(["--kill-after=5", "40", program]).args(args).stdin(Stdio::null()).output();
    let output = output.expect("nsenter");
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

impl Cluster {
    /// The output of a command of the ordinary user on the login node.
    #[track_caller]
    pub fn said<const N: usize>(&self, program: &str, args: [&str; N]) -> String {
        said(&self.bed, program, args)
    }

    /// Starts the command line under test on the login node.
    ///
    /// # Panics
    /// When it cannot be started.
    #[track_caller]
    pub fn gantry<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Run {
        self.run(&binaries().gantry, args, &[])
    }

    /// Starts a program on the login node, with variables in its environment.
    ///
    /// # Panics
    /// When it cannot be started.
    #[track_caller]
    pub fn run<A: AsRef<OsStr>>(
        &self,
        program: impl AsRef<OsStr>,
        args: impl IntoIterator<Item = A>,
        variables: &[(&str, &str)],
    ) -> Run {
        let mut command = self.bed.login().command_of(&self.world, program).expect("the login node");
        // Nodes lack the world's folders. So sessions are in their default folder, which the bed's leak check covers.
        command
            .args(args)
            .env_remove("GANTRY_STAGE_DIR")
            .env_remove("TMPDIR")
            .envs(self.variables.iter().copied())
            .envs(variables.iter().copied());
        self.world.spawn(command)
    }

    /// A command of the ordinary user in a folder of the home. The caller adds a program and its arguments.
    ///
    /// # Panics
    /// When the login node is off.
    #[must_use]
    #[track_caller]
    pub fn user_command(&self, folder: &str, variables: &[&str]) -> Command {
        let mut command = self.bed.login().command_of(&self.world, "env").expect("the login node");
        command.env_remove("GANTRY_STAGE_DIR").env_remove("TMPDIR");
        command.args(["-C", &format!("{HOME}/{folder}")]).args(variables);
        command
    }

    /// Starts the scriptable tool on the login node, where every host has a folder.
    ///
    /// # Panics
    /// When it cannot be started.
    #[track_caller]
    pub fn tool(&self, variables: &[(&str, &str)]) -> Tool {
        let tool = binaries().dir.join("fault_tool").display().to_string();
        Tool::of(self.run("/bin/sh", ["-c", "cd / && exec \"$0\"", &tool], variables))
    }

    /// Begins a launch: options of the command line, `--`, arguments of the launcher.
    ///
    /// # Panics
    /// When it cannot be started.
    #[track_caller]
    pub fn launch(&self, args: &[&str]) -> Run {
        self.gantry(LAUNCH.iter().chain(args))
    }

    /// Launches held and waits until the command line reports it. Returns the app's id, too.
    ///
    /// # Panics
    /// When it is not held in time.
    #[track_caller]
    pub fn held(&self, args: &[&str]) -> (Run, String) {
        let mut run = self.gantry(LAUNCH.iter().chain(&["--hold"]).chain(args));
        let event = run.next_event("held", SOON);
        (run, event["app"].as_str().expect("an id").to_owned())
    }

    /// Runs a command that must succeed.
    ///
    /// # Panics
    /// When it fails.
    #[track_caller]
    pub fn ask(&self, args: &[&str]) -> Finished {
        let done = self.gantry(args).wait(SOON);
        assert_eq!(done.code(), 0, "{args:?}: {done:?}");
        done
    }

    /// A daemon that prints `answer 42`. It uses a library that is next to it on the login node only.
    ///
    /// # Panics
    /// Without a compiler.
    #[must_use]
    pub fn make_daemon(&self) -> String {
        let folder = self.world.work_dir();
        let made = |words: &[&str]| {
            let done = Command::new("cc").current_dir(&folder).args(words).output().expect("a compiler");
            assert!(done.status.success(), "{done:?}");
        };
        fs::write(folder.join("lib.c"), "int answer(void) { return 42; }\n").expect("a file");
        let text = "#include <stdio.h>\nint answer(void);\nint main(void) { printf(\"answer %d\\n\", answer()); return 0; }\n";
        fs::write(folder.join("main.c"), text).expect("a file");
        made(&["-shared", "-fPIC", "-o", "libanswer.so", "lib.c"]);
        made(&["-o", "asks", "main.c", "-L.", "-lanswer", "-Wl,--enable-new-dtags,-rpath,$ORIGIN"]);
        folder.join("asks").display().to_string()
    }

    /// The user's processes on all nodes with a command line of this end, node by node.
    #[must_use]
    pub fn find(&self, line: &str) -> Vec<(String, Process)> {
        let nodes = self.bed.nodes();
        let all = nodes.iter().flat_map(|node| {
            let name = node.name().to_owned();
            node.user_processes().into_iter().map(move |process| (name.clone(), process))
        });
        all.filter(|(_, process)| process.line.ends_with(line) && !is_keeper(process.pid)).collect()
    }

    /// Fails unless that many processes with that command line are on the nodes, and `/proc` shows all of them as held.
    ///
    /// # Panics
    /// With the actual processes.
    #[track_caller]
    pub fn assert_held(&self, line: &str, count: usize) {
        let found = self.find(line);
        assert_eq!(found.len(), count, "'{line}': {found:?}; all: {:?}", self.bed.leftovers());
        for (node, process) in found {
            assert_eq!(proc::why_not_held(process.pid), None, "{node}: {process:?}");
        }
    }
}

/// The output of ranks, or of daemons, in the order in which it came.
#[must_use]
pub fn text_of(done: &Finished) -> String {
    done.events().iter().filter_map(|event| event["text"].as_str()).collect()
}

/// The lines of [`text_of`], sorted.
#[must_use]
pub fn lines_of(done: &Finished) -> Vec<String> {
    let mut lines: Vec<String> = text_of(done).lines().map(str::to_owned).collect();
    lines.sort_unstable();
    lines
}

/// The reported reason why the workload manager has ended an app.
///
/// # Panics
/// When there was no such report.
#[must_use]
#[track_caller]
pub fn cause_of(done: &Finished) -> Value {
    let cause = done.events().into_iter().find(|event| event["event"] == "ended_by");
    cause.unwrap_or_else(|| panic!("no cause in {done:?}"))
}

/// The error of the command line.
///
/// # Panics
/// When there is none.
#[must_use]
#[track_caller]
pub fn error_of(done: &Finished) -> Value {
    let error = done.events().into_iter().find(|event| event["event"] == "error");
    error.unwrap_or_else(|| panic!("no error in {done:?}"))
}
