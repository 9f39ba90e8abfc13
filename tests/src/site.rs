//! A test whose body is a tool. It runs in a separate process and a separate world, once for every workload manager.
//! `site_beds` has the workload managers with nodes elsewhere.
//! [`on_every_wlm_and_hosts`](crate::on_every_wlm_and_hosts) also runs it on other hosts.
//!
//! The frontend library uses the environment of its process. So do the guard and the agents that it starts. A separate
//! process gives all of them the world's folders and tag, so the leak check finds every one of them.

use std::ffi::{OsStr, OsString};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use gantry_frontend::{App, AppHandle, Config, Daemon, Frontend, LaunchRequest};
use gantry_types::id::NodeId;
use gantry_types::launch::HoldMethod;
use gantry_wlm::host::Machine;
use gantry_wlm::{Reach, WLMS, Wlm, has_job_names, reach};

use serde_json::Value;

use crate::fault::{Tool, agents, is_keeper, numbers};
use crate::places::{INNER, PLACES, Place, assert_passed, words};
use crate::proc::SOON;
use crate::site_beds::on_beds;
use crate::{Finished, World, binaries, outside, proc};

/// The workload manager that plays a cluster.
const PLAYED: &str = "fake";

/// Where a test's body is: a world, a workload manager, and the test's own process as the tool.
#[derive(Debug)]
pub struct Site {
    /// The folders, and the processes that were started in them.
    pub world: World,
    place: Place,
}

/// Runs `body` once for every workload manager, each time in a separate process and world. At the end of the body,
/// everything that it has dropped must be gone while its process lives, and also after the process's end.
///
/// The members of [`WLMS`] whose nodes are this machine run it here. The others run it on a bed, as an ordinary user:
/// Slurm, with both ways to hold its ranks; hosts that are reached by ssh from the login node; and PBS on the first
/// host of a job. There the leak check covers every host. Each has at least four nodes.
///
/// Bodies see ranks through [`pids`] and [`proc`], and files of nodes through [`outside`](crate::outside). So they are
/// the same everywhere. Every node has the folder for work.
///
/// The process is this test binary again, with the argument to run this one test. So the test may contain besides this
/// call only code that may run in both processes. Missing WLMs are left out; `conformance::pbs_is_here` and its
/// neighbours count that.
///
/// # Panics
/// As `body` does, with all of its output; and when something is left, or `limit` expires.
#[track_caller]
pub fn on_every_wlm<F: AsyncFnOnce(&mut Site)>(limit: Duration, body: F) {
    on_each(|_| true, &PLACES, limit, body);
}

/// As [`on_every_wlm`], without one place. Each test that uses it says why.
///
/// # Panics
/// As there.
#[track_caller]
pub fn on_every_wlm_but<F: AsyncFnOnce(&mut Site)>(place: &str, limit: Duration, body: F) {
    let places: Vec<Place> = PLACES.into_iter().filter(|it| it.name != place).collect();
    on_each(|wlm| wlm.name() != place, &places, limit, body);
}

/// As [`on_every_wlm`], without the bed: for tests that take too long there, or that need this machine. Each test
/// that uses it says which.
///
/// # Panics
/// As there.
#[track_caller]
pub fn on_this_machine<F: AsyncFnOnce(&mut Site)>(limit: Duration, body: F) {
    on_each(|_| true, &[], limit, body);
}

/// As [`on_this_machine`], for workload managers whose ranks are plain processes of this machine: a tool can attach to
/// their app by its pids.
///
/// # Panics
/// As there.
#[track_caller]
pub fn on_processes<F: AsyncFnOnce(&mut Site)>(limit: Duration, body: F) {
    on_each(|wlm| !has_job_names(wlm), &[], limit, body);
}

#[track_caller]
fn on_each<F: AsyncFnOnce(&mut Site)>(
    is_meant: impl Fn(&dyn Wlm) -> bool,
    places: &[Place],
    limit: Duration,
    body: F,
) {
    if let Some(name) = std::env::var_os(INNER) {
        return run_inside(name, body);
    }
    let (test, places) = (test_name::<F>(), places.to_vec());
    thread::scope(|scope| {
        let name = thread::current().name().unwrap_or("a test").to_owned();
        let thread = || thread::Builder::new().name(name.clone());
        let on_bed = || on_beds(&test, limit, places);
        let mut running = vec![thread().spawn_scoped(scope, on_bed).expect("a thread")];
        for place in here(is_meant) {
            let test = &test;
            let run = move || run_outside(test, place, limit);
            running.push(thread().spawn_scoped(scope, run).expect("a thread"));
        }
        let ended: Vec<_> = running.into_iter().map(|it| it.join()).collect();
        if let Some(panic) = ended.into_iter().find_map(Result::err) {
            resume_unwind(panic);
        }
    });
}

/// The places of this machine.
fn here(is_meant: impl Fn(&dyn Wlm) -> bool) -> Vec<Place> {
    let meant = WLMS.iter().filter(|wlm| reach(**wlm) == Reach::ThisMachine && is_meant(**wlm));
    // The played cluster needs no detection: the world names its folder.
    let found = meant.filter(|wlm| wlm.detect(&Machine).is_some() || wlm.name() == PLAYED);
    found.map(|wlm| Place::new(wlm.name(), wlm.name(), HoldMethod::Detect)).collect()
}

#[track_caller]
fn run_outside(test: &str, place: Place, limit: Duration) {
    let world = World::new();
    let mut command = world.command(std::env::current_exe().expect("this test binary"));
    command.args(words(test));
    let played = world.path().join("site");
    std::fs::create_dir(&played).expect("a folder");
    command.env("GANTRY_FAKE_SITE", played);
    command.env(INNER, place.name).env("GANTRY_BIN_DIR", &binaries().dir).env("RUST_BACKTRACE", "0");
    let mut run = world.spawn(command);
    run.close_stdin();
    let Finished { status, stdout, stderr } = run.wait(limit);
    let text = format!("{status}\n{}\n{}", stdout.join("\n"), stderr.join("\n"));
    assert_passed(test, place.name, status.success(), &text);
    // Shown by the harness when it is asked to show output.
    #[expect(clippy::print_stdout, reason = "numbers that a test measures are for its reader")]
    for line in stdout.iter().filter(|line| line.starts_with("measured: ")) {
        println!("{line}");
    }
    world.finish();
}

fn run_inside<F: AsyncFnOnce(&mut Site)>(name: OsString, body: F) {
    let all = here(|_| true).into_iter().chain(PLACES);
    let place = all.into_iter().find(|place| name == *place.name).expect("a place");
    let world = World::around_us().expect("a world around this process");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    // The library's own tasks continue while the leak check waits: it blocks this thread, which is not one of the
    // runtime's workers.
    runtime.block_on(async {
        let mut site = Site { world, place };
        body(&mut site).await;
        site.world.finish();
    });
}

/// The harness's name of the test that contains a closure: its path without the crate.
pub(crate) fn test_name<F>() -> String {
    let path = std::any::type_name::<F>();
    let path = path.split("::{{closure}}").next().unwrap_or(path);
    path.split_once("::").map_or(path, |(_crate, name)| name).to_owned()
}

impl Site {
    /// The choices of a tool here: this workload manager, everything else by the environment.
    #[must_use]
    pub fn config(&self) -> Config {
        Config { wlm: Some(self.place.wlm.to_owned()), ..Config::default() }
    }

    /// A frontend with these choices.
    #[must_use]
    pub fn frontend(&self) -> Frontend {
        Frontend::new(self.config())
    }

    /// Launches, and fails the test on an error. Held ranks are held by this place's method.
    ///
    /// # Panics
    /// With the error and its hint.
    #[track_caller]
    pub fn launch(&self, request: LaunchRequest) -> impl Future<Output = App> {
        let frontend = self.frontend();
        let request = request.hold_method(self.place.hold);
        async move {
            let launched = frontend.launch(request, 2 * SOON).await;
            launched.unwrap_or_else(|error| {
                panic!("launch: {error} ({:?}), hint {:?}", error.kind(), error.hint())
            })
        }
    }

    /// Launches held, with these arguments.
    ///
    /// # Panics
    /// As [`launch`](Site::launch), and when `/proc` shows a rank as not held.
    pub async fn held<A: Into<OsString>>(&self, args: impl IntoIterator<Item = A>) -> App {
        let app = self.launch(LaunchRequest::new(args).hold(true)).await;
        pids(&app).into_iter().for_each(|pid| assert_eq!(proc::why_not_held(pid), None));
        app
    }

    /// The arguments of a launch with the same number of ranks on each of these nodes. Slots alone would put all of
    /// them on the first node.
    #[must_use]
    pub fn spread(&self, nodes: u32, ranks: u32, program: &[&str]) -> Vec<String> {
        let mut words = vec![format!("--nodes={nodes}"), format!("--ntasks={ranks}")];
        // Flux spreads ranks evenly itself.
        if self.wlm() != "flux" && PLACES.iter().any(|place| place.name == self.place.name) {
            words.push(format!("--ntasks-per-node={}", ranks.div_ceil(nodes)));
        }
        words.extend(program.iter().map(|word| (*word).to_owned()));
        words
    }

    /// Removes control sockets of dead owners, as the user's next command does.
    ///
    /// # Panics
    /// When that command fails.
    #[track_caller]
    pub fn sweep_sockets(&self) {
        let mut command = self.command(&binaries().gantry);
        command.args(["ps", "--json"]);
        assert!(self.world.spawn(command).wait(SOON).status.success());
    }

    /// A tool in a separate process, at the same place as this one.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    #[track_caller]
    pub fn tool(&self) -> Tool {
        let mut command = self.command(binaries().dir.join("fault_tool"));
        command.env("FAULT_TOOL_WLM", self.place.wlm);
        Tool::spawn(&self.world, command)
    }

    /// A command in this site's world, at the same place as this process.
    #[must_use]
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = self.world.command(program);
        // A world removes variables that would change its tests. Here they are needed: the job of this process, or the
        // list of hosts.
        let is_needed = |name: &str| {
            name.starts_with("PBS_")
                || matches!(name, "GANTRY_FAKE_SITE" | "GANTRY_SSH" | "FLUX_CLI_PLUGINPATH")
        };
        let ours = std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_needed));
        command.envs(ours);
        command
    }

    /// The name of the workload manager.
    #[must_use]
    pub fn wlm(&self) -> &'static str {
        self.place.wlm
    }

    /// The processes that such a tool's answer names, in its order, for [`proc`].
    ///
    /// # Panics
    /// When it names none.
    #[must_use]
    #[track_caller]
    pub fn seen(&self, answer: &Value) -> Vec<i32> {
        let hosts = answer["hosts"].as_array().expect("hosts").iter();
        let hosts = hosts.map(|host| host.as_str().expect("a host"));
        seen(hosts.zip(numbers(&answer["pids"])))
    }

    /// The agents of these ranks, for [`proc`]. An agent is above its ranks, or began as one of them.
    #[must_use]
    pub fn agents(&self, ranks: &[i32]) -> Vec<i32> {
        let parent = |pid: &i32| proc::stat(*pid).map(|stat| stat.parent).filter(|parent| *parent > 1);
        let is_agent =
            |pid: &i32| !is_keeper(*pid) && proc::exe(*pid).is_some_and(|exe| exe.ends_with("gantry-agent"));
        let above = |rank: &i32| std::iter::successors(parent(rank), parent).find(is_agent);
        let mut all: Vec<i32> = ranks.iter().filter_map(above).collect();
        if all.is_empty() {
            all = agents(&self.world);
        }
        all.sort_unstable();
        all.dedup();
        all
    }
}

/// The ranks' processes, in rank order, for [`proc`].
///
/// # Panics
/// When a rank has none.
#[must_use]
pub fn pids(app: &AppHandle) -> Vec<i32> {
    let info = app.info();
    seen(info.ranks.iter().map(|rank| (rank.host.as_str(), rank.pid.expect("a rank with a process").get())))
}

/// A daemon's processes, in the order of nodes, for [`proc`].
///
/// # Panics
/// When there is no such node.
#[must_use]
pub fn daemon_pids(app: &AppHandle, daemon: &Daemon) -> Vec<i32> {
    let placement = app.placement();
    let host = |node: NodeId| placement.host(node).expect("a node of the app");
    seen(daemon.processes().iter().map(|(node, pid)| (host(*node), pid.get())))
}

fn seen<'a>(processes: impl Iterator<Item = (&'a str, i32)>) -> Vec<i32> {
    let all: Vec<_> = processes.collect();
    let of_host = |all: &[(&str, i32)]| {
        let numbers: Vec<i32> = all.iter().map(|(_, number)| *number).collect();
        outside::pids_on(all[0].0, &numbers)
    };
    all.chunk_by(|one, other| one.0 == other.0).flat_map(of_host).collect()
}

/// The path through which [`outside`](crate::outside) reads a file of a node.
///
/// # Panics
/// When there is no such node.
#[must_use]
pub fn path_on(app: &AppHandle, node: NodeId, path: impl AsRef<Path>) -> PathBuf {
    outside::path_on(app.placement().host(node).expect("a node of the app"), path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_knows_its_name() {
        fn name_of<F>(_: F) -> String {
            test_name::<F>()
        }
        assert_eq!(name_of(async || {}), "site::tests::a_test_knows_its_name");
    }
}
