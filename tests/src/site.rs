//! A test whose body is a tool: it runs in a process of its own, in a world of its own, once for every workload manager whose nodes are
//! this machine. [`on_every_wlm_and_hosts`](crate::on_every_wlm_and_hosts) runs it on other hosts, too.
//!
//! The frontend library takes the environment of its process, and so do the guard and the agents that it starts. A process of the
//! test's own is what gives all of them the world's folders and tag, so that the leak check finds every one of them.

use std::ffi::OsString;
use std::time::Duration;

use gantry_frontend::{App, Config, Frontend, LaunchRequest};
use gantry_wlm::host::Machine;
use gantry_wlm::{Reach, WLMS, Wlm, has_job_names, reach};

use crate::{Finished, World, binaries, proc, record_skip};

/// How long anything may take that takes no time: far more than that, since tests share a busy machine.
pub const SOON: Duration = Duration::from_secs(30);

/// In the environment of a test's own process: the name of the workload manager.
pub(crate) const INNER: &str = "GANTRY_TEST_INNER_WLM";

/// The workload manager that plays a cluster.
const PLAYED: &str = "fake";

/// Where a test's body is: a world, a workload manager, and the test's own process as the tool.
#[derive(Debug)]
pub struct Site {
    /// The folders and what was started in them.
    pub world: World,
    wlm: &'static str,
}

/// Runs `body` once for every workload manager of [`WLMS`] whose nodes are this machine, each time in a process and a world of its own. One that
/// is not here is a skip. Those with nodes elsewhere have suites of their own on the testbed, where the leak check looks at every node. At the end of the body everything that it has dropped must be gone while its process lives, and after the process' end too.
///
/// The process is this test binary again, told to run this one test: so nothing may stand in the test beside this call but what both
/// processes may do.
///
/// # Panics
/// As `body` does, with all that it printed; and when something is left, or `limit` passes.
#[track_caller]
pub fn on_every_wlm<F: AsyncFnOnce(&mut Site)>(limit: Duration, body: F) {
    on_each(|_| true, limit, body);
}

/// As [`on_every_wlm`], for those to which everything that runs is just processes of this machine.
///
/// # Panics
/// As there.
#[track_caller]
pub fn on_processes<F: AsyncFnOnce(&mut Site)>(limit: Duration, body: F) {
    on_each(|wlm| !has_job_names(wlm), limit, body);
}

#[track_caller]
fn on_each<F: AsyncFnOnce(&mut Site)>(is_meant: impl Fn(&dyn Wlm) -> bool, limit: Duration, body: F) {
    if let Some(name) = std::env::var_os(INNER) {
        return run_inside(name, body);
    }
    for wlm in WLMS.iter().filter(|wlm| reach(**wlm) == Reach::ThisMachine && is_meant(**wlm)) {
        // The played cluster needs no detection: the world names its folder.
        if wlm.detect(&Machine).is_none() && wlm.name() != PLAYED {
            record_skip(&format!("{} is not here", wlm.name()));
            continue;
        }
        run_outside::<F>(*wlm, limit);
    }
}

/// What makes a test binary run one test.
pub(crate) fn words(test: &str) -> [String; 4] {
    ["--exact", test, "--nocapture", "--test-threads=1"].map(str::to_owned)
}

#[track_caller]
pub(crate) fn assert_passed(test: &str, place: &str, Finished { status, stdout, stderr }: &Finished) {
    let text = || format!("{}\n{}", stdout.join("\n"), stderr.join("\n"));
    assert!(status.success(), "{test} on {place}: {status}\n{}", text());
    assert!(stdout.iter().any(|line| line.contains("1 passed")), "no test is named {test}\n{}", text());
}

#[track_caller]
fn run_outside<F>(wlm: &dyn Wlm, limit: Duration) {
    let test = test_name::<F>();
    let world = World::new();
    let mut command = world.command(std::env::current_exe().expect("this test binary"));
    command.args(words(&test));
    let played = world.path().join("site");
    std::fs::create_dir(&played).expect("a folder");
    command.env("GANTRY_FAKE_SITE", played);
    command.env(INNER, wlm.name()).env("GANTRY_BIN_DIR", &binaries().dir).env("RUST_BACKTRACE", "0");
    let mut run = world.spawn(command);
    run.close_stdin();
    let finished = run.wait(limit);
    assert_passed(&test, wlm.name(), &finished);
    // Shown by the harness when it is asked to show output.
    #[expect(clippy::print_stdout, reason = "numbers that a test measures are for its reader")]
    for line in finished.stdout.iter().filter(|line| line.starts_with("measured: ")) {
        println!("{line}");
    }
    world.finish();
}

fn run_inside<F: AsyncFnOnce(&mut Site)>(wlm: OsString, body: F) {
    let wlm = WLMS.iter().map(|wlm| wlm.name()).find(|name| wlm == *name).expect("a workload manager");
    let world = World::around_us().expect("a world around this process");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    // The library's own tasks go on while the leak check waits: it blocks this thread, which is none of the runtime's workers.
    runtime.block_on(async {
        let mut site = Site { world, wlm };
        body(&mut site).await;
        site.world.finish();
    });
}

/// The test that a closure stands in, as the harness names it: its path without the crate.
pub(crate) fn test_name<F>() -> String {
    let path = std::any::type_name::<F>();
    let path = path.split("::{{closure}}").next().unwrap_or(path);
    path.split_once("::").map_or(path, |(_crate, name)| name).to_owned()
}

impl Site {
    /// The choices of a tool here: this workload manager, everything else by the environment.
    #[must_use]
    pub fn config(&self) -> Config {
        Config { wlm: Some(self.wlm.to_owned()), ..Config::default() }
    }

    /// A frontend with these choices.
    #[must_use]
    pub fn frontend(&self) -> Frontend {
        Frontend::new(self.config())
    }

    /// Launches, and fails the test when that fails.
    ///
    /// # Panics
    /// With the error and its hint.
    #[track_caller]
    pub fn launch(&self, request: LaunchRequest) -> impl Future<Output = App> {
        let frontend = self.frontend();
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
    /// As [`launch`](Site::launch), and when a rank of this machine is not held as `/proc` has it.
    pub async fn held<A: Into<OsString>>(&self, args: impl IntoIterator<Item = A>) -> App {
        let app = self.launch(LaunchRequest::new(args).hold(true)).await;
        let is_here = |wlm: &dyn Wlm| wlm.name() == self.wlm && reach(wlm) == Reach::ThisMachine;
        if WLMS.iter().any(|wlm| is_here(*wlm)) {
            pids(&app).into_iter().for_each(|pid| assert_eq!(proc::why_not_held(pid), None));
        }
        app
    }
}

/// The ranks' processes, in rank order.
///
/// # Panics
/// When a rank has none.
#[must_use]
pub fn pids(app: &gantry_frontend::AppHandle) -> Vec<i32> {
    app.info().ranks.iter().map(|rank| rank.pid.expect("a rank with a process").get()).collect()
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
