//! Shared by several test modules.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::failure::PAUSES;
use crate::process::test_support::turn;
use crate::skip::skip;

/// Runs the named test again as user nobody, in a process of its own, if this process is root. Root may write anywhere,
/// so tests of permissions prove nothing as root.
///
/// Returns `true` if it ran the test, and `false` if the caller is not root.
#[expect(clippy::disallowed_methods, reason = "a test starts itself again")]
pub(crate) fn rerun_without_root(test: &str) -> bool {
    if !nix::unistd::geteuid().is_root() {
        return false;
    }
    let _turn = turn();
    let output = Command::new("/proc/self/exe")
        .args(["--exact", test, "--nocapture"])
        .current_dir("/")
        .uid(65534)
        .gid(65534)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{test} as nobody: {text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    true
}

/// Tells a test that it runs in a mount namespace of its own. The test runner takes it for a filter without matches.
pub(crate) const IN_NAMESPACE: &str = "in-a-namespace-of-its-own";

/// Runs the named test again after `mount` (a shell command) in a mount namespace of its own. Prints why if it cannot.
#[expect(clippy::disallowed_methods, reason = "a test starts itself again")]
pub(crate) fn rerun_with_mount(test: &str, mount: &str) {
    let script = format!("{mount} && echo mounted && exec \"$0\" --exact {test} {IN_NAMESPACE} --nocapture");
    let exe = std::env::current_exe().unwrap();
    let _turn = turn();
    let output = match Command::new("unshare").args(["-m", "sh", "-c", &script]).arg(exe).output() {
        Ok(output) => output,
        Err(error) => return skip(&format!("cannot run unshare: {error}")),
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    if !text.contains("mounted") {
        return skip(&format!("cannot mount in a namespace of its own: {errors}"));
    }
    assert!(output.status.success() && text.contains("1 passed"), "{test}: {text}{errors}");
}

/// Runs the named test again in a process of its own and returns `true`. Returns `false` in that process.
#[expect(clippy::disallowed_methods, reason = "a test starts itself again")]
pub(crate) fn rerun_alone(test: &str) -> bool {
    const ALONE: &str = "in-a-process-of-its-own";
    if std::env::args().any(|arg| arg == ALONE) {
        return false;
    }
    let _turn = turn();
    let output =
        Command::new("/proc/self/exe").args(["--exact", test, ALONE, "--nocapture"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{test}: {text}{errors}");
    print!("{text}");
    true
}

/// The peak memory of this process, in KiB.
pub(crate) fn peak_memory_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Calls `connect` while this process has room for one more descriptor, which `connect` takes. Then waits until there was
/// none to accept the connection, and makes room. For tests that run alone ([`rerun_alone`]).
pub(crate) fn without_descriptors<T>(connect: impl FnOnce() -> T) -> T {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    let open = || File::open("/dev/null");
    let few = open().unwrap().as_raw_fd() + 8;
    setrlimit(Resource::RLIMIT_NOFILE, few.try_into().unwrap(), hard).unwrap();
    let mut all: Vec<File> = std::iter::from_fn(|| open().ok()).collect();
    all.pop();
    let connected = connect();
    let until = Instant::now() + Duration::from_secs(20);
    while PAUSES.load(Ordering::SeqCst) == 0 {
        assert!(Instant::now() < until, "the connection was accepted, or nobody tried");
        std::thread::yield_now();
    }
    setrlimit(Resource::RLIMIT_NOFILE, soft, hard).unwrap();
    connected
}
