//! The ways in which this program ends, and its messages until then.

use std::ffi::OsStr;
use std::io::Write;
use std::time::Duration;

use gantry_types::foreign::ForeignText;
use gantry_wlm::Host;
use gantry_wlm::host::{Machine, run};

/// The exit code of the OpenSSH client if the command did not run or end.
pub(crate) const FAILED: u8 = 255;

/// The end of an attempt to reach the command.
#[derive(Debug)]
pub(crate) enum End {
    /// The host cannot be reached; with the OpenSSH client's messages for it.
    Failed(Vec<String>),
    /// The OpenSSH client may succeed, for this reason.
    Openssh(String),
}

/// The result of a step.
pub(crate) type Way<T> = Result<T, End>;

/// Writes a line on standard error. It may contain text of the host.
pub(crate) fn say(line: &str) {
    // A closed pipe is no reason to end.
    drop(std::io::stderr().write_all(format!("{}\n", ForeignText::from(line)).as_bytes()));
}

/// Whether a program in PATH succeeds, and its output.
pub(crate) fn run_found<A: AsRef<OsStr>>(name: &str, args: &[A], timeout: Duration) -> Way<(bool, Vec<u8>)> {
    let no = |why: String| End::Openssh(format!("{name} cannot be used: {why}"));
    let program = Machine.find_in_path(name).ok_or_else(|| no("it is not in PATH".to_owned()))?;
    let (status, said) = run(&program, args, timeout).map_err(|error| no(error.to_string()))?;
    Ok((status.success(), said))
}
