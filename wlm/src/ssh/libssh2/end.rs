//! How this program ends, and what it says until then.

use std::ffi::OsStr;
use std::io::Write;
use std::time::Duration;

use gantry_types::foreign::ForeignText;
use gantry_wlm::Host;
use gantry_wlm::host::{Machine, run};

/// What the OpenSSH client ends with when it is not the command that has ended.
pub(crate) const FAILED: u8 = 255;

/// What ends the way to the command.
#[derive(Debug)]
pub(crate) enum End {
    /// The host cannot be had; these are the OpenSSH client's words for it.
    Failed(Vec<String>),
    /// The OpenSSH client may do better, and this is why.
    Openssh(String),
}

/// What a step on the way gives.
pub(crate) type Way<T> = Result<T, End>;

/// Writes a line on standard error. What the host has said is in it.
pub(crate) fn say(line: &str) {
    // A reader that is gone is no reason to end.
    drop(std::io::stderr().write_all(format!("{}\n", ForeignText::from(line)).as_bytes()));
}

/// Whether a program in PATH ends well, and what it prints.
pub(crate) fn run_found<A: AsRef<OsStr>>(name: &str, args: &[A], timeout: Duration) -> Way<(bool, Vec<u8>)> {
    let no = |why: String| End::Openssh(format!("{name} cannot be used: {why}"));
    let program = Machine.find_in_path(name).ok_or_else(|| no("it is not in PATH".to_owned()))?;
    let (status, said) = run(&program, args, timeout).map_err(|error| no(error.to_string()))?;
    Ok((status.success(), said))
}
