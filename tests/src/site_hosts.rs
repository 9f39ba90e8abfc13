//! A test whose body is a tool, on hosts that are reached by ssh.

use std::time::Duration;

use crate::binaries;
use crate::site::{INNER, Site, assert_passed, on_every_wlm, test_name, words};
use crate::ssh::on_hosts;
use crate::testbed::Config;

/// As [`on_every_wlm`], and then with two hosts of a testbed that are reached by ssh. Each host takes two ranks. The test's process is on the login node.
/// Pids of ranks mean nothing there.
///
/// # Panics
/// As there.
#[track_caller]
pub fn on_every_wlm_and_hosts<F: AsyncFnOnce(&mut Site)>(limit: Duration, body: F) {
    on_every_wlm(limit, body);
    if std::env::var_os(INNER).is_some() {
        return;
    }
    let test = test_name::<F>();
    on_hosts(Config::with_nodes(2), move |cluster| {
        let hosts = cluster.world.work_dir().join("hosts");
        std::fs::write(&hosts, "n001\nn001\nn002\nn002\n").expect("a list of hosts");
        let (hosts, programs) = (hosts.display().to_string(), binaries().dir.display().to_string());
        let exe = std::env::current_exe().expect("this test binary").display().to_string();
        // Every host has this directory.
        let words =
            ["-c", "cd / && exec \"$@\"", "sh", &exe].map(str::to_owned).into_iter().chain(words(&test));
        let variables = [(INNER, "ssh"), ("GANTRY_BIN_DIR", &programs), ("PBS_NODEFILE", &hosts)];
        let finished = cluster.run("/bin/sh", words, &variables).wait(limit);
        assert_passed(&test, "hosts", &finished);
    });
}
