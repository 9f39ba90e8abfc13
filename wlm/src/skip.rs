//! Visible skips: a test that cannot run here reports that, and the test command counts it.

use std::io::Write;

/// Reports that the running test is skipped, and why. The caller then returns.
#[expect(clippy::disallowed_methods, reason = "the environment tells tests where to count skips")]
pub(crate) fn skip(reason: &str) {
    let test = std::thread::current().name().unwrap_or("?").to_owned();
    let line = format!("{}::{test}\t{}\n", env!("CARGO_PKG_NAME"), reason.replace(['\n', '\t'], " "));
    print!("skipped: {line}");
    if let Some(log) = std::env::var_os("GANTRY_SKIP_LOG") {
        let file = std::fs::OpenOptions::new().append(true).create(true).open(log);
        file.and_then(|mut file| file.write_all(line.as_bytes())).expect("the log of skips can be written");
    }
}
