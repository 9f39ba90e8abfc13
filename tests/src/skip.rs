//! Visible skips: a test that cannot run here prints the reason and is counted. CI fails on an unexpected skip.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Writes down that the running test is skipped. Use [`skip!`](crate::skip!), which also returns from the test.
///
/// The line `suite::test<TAB>reason` is appended to the file that `GANTRY_SKIP_LOG` names.
pub fn record_skip(reason: &str) {
    let line = skip_line(&suite(), std::thread::current().name().unwrap_or("?"), reason);
    // To the harness's own capture. Also, in one write, to the log that the test command reads.
    #[expect(
        clippy::print_stderr,
        reason = "the reader of a single test's output wants to see why it did nothing"
    )]
    {
        eprint!("skipped: {line}");
    }
    if let Some(log) = std::env::var_os("GANTRY_SKIP_LOG") {
        let file = OpenOptions::new().append(true).create(true).open(&log);
        let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
        written.unwrap_or_else(|error| {
            panic!("cannot write the skip to {}: {error}", Path::new(&log).display())
        });
    }
}

fn skip_line(suite: &str, test: &str, reason: &str) -> String {
    format!("{suite}::{test}\t{}\n", reason.replace(['\n', '\t'], " "))
}

/// The test binary's name without cargo's hash.
pub(crate) fn suite() -> String {
    let exe = std::env::current_exe().unwrap_or_default();
    let stem = exe.file_stem().and_then(|stem| stem.to_str()).unwrap_or("?");
    stem.rsplit_once('-').map_or(stem, |(name, _hash)| name).to_owned()
}

/// Finds a program in `PATH`, or says that it is missing: for [`require!`](crate::require!).
///
/// # Errors
/// The reason for the skip.
pub fn tool(name: &str) -> Result<PathBuf, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| is_executable(file));
    found.ok_or_else(|| format!("{name} is not installed"))
}

fn is_executable(file: &Path) -> bool {
    file.is_file() && nix::unistd::access(file, nix::unistd::AccessFlags::X_OK).is_ok()
}

/// Skips the running test for a reason: prints it, counts it and returns. Use it in the test's own body, outside of
/// [`within`](crate::within).
#[macro_export]
macro_rules! skip {
    ($($reason:tt)+) => {{
        $crate::record_skip(&format!($($reason)+));
        return;
    }};
}

/// Takes the value out of a `Result<T, reason>`, or skips the running test for that reason: `let gdb =
/// require!(tool("gdb"));`.
#[macro_export]
macro_rules! require {
    ($what:expr) => {
        match $what {
            Ok(found) => found,
            Err(reason) => $crate::skip!("{reason}"),
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skip_is_one_line_with_the_suite_the_test_and_the_reason() {
        assert_eq!(skip_line("faults", "a::b", "no\tgdb\nhere"), "faults::a::b\tno gdb here\n");
        assert_eq!(suite(), "gantry_tests");
    }

    #[test]
    fn a_tool_is_found_or_named() {
        assert!(tool("sh").unwrap().is_absolute());
        assert_eq!(tool("no-such-tool").unwrap_err(), "no-such-tool is not installed");
    }

    /// The next test runs this in a separate process, with a separate log. In an ordinary run it does nothing.
    #[test]
    fn a_test_with_a_missing_requirement() {
        if std::env::var_os("GANTRY_TEST_INNER").is_some() {
            let _missing = require!(tool("no-such-tool"));
            panic!("require! did not return");
        }
    }

    #[test]
    fn require_returns_from_the_test_and_writes_the_skip_down() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("skips");
        let status = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "skip::tests::a_test_with_a_missing_requirement"])
            .env("GANTRY_TEST_INNER", "1")
            .env("GANTRY_SKIP_LOG", &log)
            .output()
            .unwrap();
        assert!(status.status.success(), "{status:?}");
        let written = std::fs::read_to_string(log).unwrap();
        let expected =
            "gantry_tests::skip::tests::a_test_with_a_missing_requirement\tno-such-tool is not installed\n";
        assert_eq!(written, expected);
    }
}
