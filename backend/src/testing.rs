//! What tests of the library need on top of what the agent's need.

use std::process::Command;

#[path = "agent/testing.rs"]
mod shared;

pub(crate) use shared::{IN_NAMESPACE, rerun_with_mount, rerun_without_root};

/// Runs the named test again in a process of its own, and says `true`: it is done. Says `false` in that process.
#[expect(clippy::disallowed_methods, reason = "a test starts itself again")]
pub(crate) fn rerun_alone(test: &str) -> bool {
    const ALONE: &str = "in-a-process-of-its-own";
    if std::env::args().any(|arg| arg == ALONE) {
        return false;
    }
    let output =
        Command::new("/proc/self/exe").args(["--exact", test, ALONE, "--nocapture"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{test}: {text}{errors}");
    print!("{text}");
    true
}

/// The most memory that this process has had at once, in KiB.
pub(crate) fn peak_memory_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
