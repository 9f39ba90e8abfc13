//! The command line under test in jobs of a real PBS, as the bed's ordinary user.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::Value;

use super::job::{SELECT, submit_as};
use crate::slurm::Cluster;
use crate::testbed::config::HOME;
use crate::testbed::pbs::installation;
use crate::testbed::{Config, Testbed, shared, shared_with_others, usable};
use crate::{SOON, World, becomes_true, binaries, record_skip, within};

/// The limit for a whole test, including a new bed.
const LIMIT: Duration = Duration::from_secs(300);

/// The folder for the sockets of jobs' frontends. In /tmp an empty folder would remain.
const RUNTIME: &str = "GANTRY_RUNTIME_DIR=/run/home/tester/gantry-runtime";

/// How long a job may take from its submission to its first words: the scheduler has its cycles.
pub const STARTS: Duration = Duration::from_secs(90);

/// Runs a test on a bed of three nodes that a real PBS manages. At its end no host may have remains, and PBS no job.
/// Counts a skip if PBS is not installed.
///
/// # Panics
/// As `body` does; and when something is left.
#[track_caller]
pub fn on_pbs(body: impl FnOnce(&mut Cluster) + Send + 'static) {
    on_pbs_with(|config| config, body);
}

/// As [`on_pbs`], on a bed with a changed configuration.
///
/// # Panics
/// As [`on_pbs`].
#[track_caller]
pub fn on_pbs_with(change: impl FnOnce(Config) -> Config, body: impl FnOnce(&mut Cluster) + Send + 'static) {
    let config = installation().map(|installed| change(Config::with_nodes(3).managed_by_pbs(installed)));
    on_bed(config, |cluster| jobs(&cluster.bed), body);
}

/// Runs a test on a bed of this configuration; at its end no host may have remains, and `queued` must be empty. Counts
/// a skip with the given reason if there is no configuration.
#[track_caller]
pub(crate) fn on_bed(
    config: Result<Config, String>,
    queued: fn(&Cluster) -> String,
    body: impl FnOnce(&mut Cluster) + Send + 'static,
) {
    let config = match config.and_then(|config| usable(&config).map(|()| config)) {
        Ok(config) => config,
        Err(why) => return record_skip(&why),
    };
    within(LIMIT, move || {
        let bed = shared(&config);
        bed.wait_idle(2 * SOON).expect("idle nodes");
        let mut cluster = Cluster { world: World::new(), bed, variables: Vec::new() };
        body(&mut cluster);
        let ended = becomes_true(2 * SOON, || queued(&cluster).is_empty());
        assert!(ended, "jobs are left: {}", queued(&cluster));
        let Cluster { world, bed, .. } = cluster;
        world.finish();
        bed.assert_nothing_left(SOON);
    });
}

/// As [`on_pbs`], at the same time as other such tests of this process. The last of the tests that share the bed checks
/// for their common remains.
///
/// # Panics
/// As `body` does; and when something is left.
#[track_caller]
pub fn on_pbs_together(body: impl FnOnce(&mut Cluster) + Send + 'static) {
    let config = installation().map(|installed| Config::with_nodes(3).managed_by_pbs(installed));
    let config = match config.and_then(|config| usable(&config).map(|()| config)) {
        Ok(config) => config,
        Err(why) => return record_skip(&why),
    };
    within(LIMIT, move || {
        let bed = shared_with_others(&config);
        let mut cluster = Cluster { world: World::new(), bed, variables: Vec::new() };
        body(&mut cluster);
        let Cluster { world, bed, .. } = cluster;
        world.finish();
        let Some(bed) = bed.last() else { return };
        let ended = becomes_true(2 * SOON, || jobs(&bed).is_empty());
        assert!(ended, "jobs are left: {}", jobs(&bed));
        bed.assert_nothing_left(SOON);
    });
}

/// The jobs in PBS that have not ended.
#[must_use]
pub fn jobs(bed: &Testbed) -> String {
    said_by(bed, &["qstat"])
}

/// The output of a command of the ordinary user on the login node.
///
/// # Panics
/// When it cannot be started.
#[must_use]
#[track_caller]
pub fn said_by(bed: &Testbed, words: &[&str]) -> String {
    let mut command = bed.login().command("timeout").expect("the login node");
    let output = command.args(["--kill-after=5", "40"]).args(words).stdin(Stdio::null()).output();
    let output = output.expect("nsenter");
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

/// A submitted job, with its script's output so far.
#[derive(Debug)]
pub struct Script {
    /// As PBS calls it.
    pub id: String,
    said: PathBuf,
}

/// The number of the next script.
static NEXT: AtomicUsize = AtomicUsize::new(0);

impl Script {
    /// Submits a script for the hosts that `select` requests. In the script `gantry` is the command line under test.
    ///
    /// # Panics
    /// When PBS refuses it.
    #[track_caller]
    pub fn submit_on(bed: &Testbed, select: &str, script: &str) -> Self {
        let gantry = binaries().gantry.display();
        // Tests that share a bed have scripts at the same time.
        let name = format!("said-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let script = format!("cd /; export {RUNTIME}; gantry() {{ {gantry} \"$@\"; }}; {script}");
        let id = submit_as(bed, select, &script, &name);
        let said = bed.login().path(Path::new(HOME).join(name)).expect("the login node");
        Self { id, said }
    }

    /// As [`submit_on`](Script::submit_on), for three hosts with two places each.
    ///
    /// # Panics
    /// When PBS does not take it.
    #[track_caller]
    pub fn submit(bed: &Testbed, script: &str) -> Self {
        Self::submit_on(bed, SELECT, script)
    }

    /// Its whole output.
    #[must_use]
    pub fn text(&self) -> String {
        fs::read(&self.said).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    /// The events of the command line.
    #[must_use]
    pub fn events(&self) -> Vec<Value> {
        self.text().lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Waits for an event of that name.
    ///
    /// # Panics
    /// When it does not arrive, with the whole output of the script.
    #[track_caller]
    pub fn event(&self, name: &str) -> Value {
        let find = || self.events().into_iter().find(|event| event["event"] == name);
        // A script that has ended prints no more events.
        let _told = becomes_true(STARTS, || find().is_some() || self.code().is_some());
        find().unwrap_or_else(|| panic!("no {name}:\n{}", self.text()))
    }

    /// The script's exit code, when it has ended.
    #[must_use]
    pub fn code(&self) -> Option<i32> {
        self.text().lines().find_map(|line| line.strip_prefix("ended ")?.trim().parse().ok())
    }

    /// Waits for the script's end. Returns its exit code and its whole output.
    ///
    /// # Panics
    /// When it does not end.
    #[track_caller]
    pub fn wait(&self) -> (i32, String) {
        self.wait_for(STARTS)
    }

    /// As [`wait`](Script::wait), with this timeout.
    #[track_caller]
    pub(crate) fn wait_for(&self, patience: Duration) -> (i32, String) {
        assert!(becomes_true(patience, || self.code().is_some()), "it has not ended:\n{}", self.text());
        (self.code().unwrap_or_default(), self.text())
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        drop(fs::remove_file(&self.said));
        drop(fs::remove_file(self.said.with_extension("sh")));
    }
}

/// Runs a command of gantry's on the first node, where a job's script is.
///
/// # Panics
/// When it fails.
#[track_caller]
pub fn ask_there<A: AsRef<OsStr>>(bed: &Testbed, args: impl IntoIterator<Item = A>) -> String {
    let mut command = bed.node(1).command("env").expect("a node");
    command.arg(RUNTIME).arg(&binaries().gantry);
    let output = command.args(args).stdin(Stdio::null()).output().expect("nsenter");
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{said}");
    said
}
