//! Commands that make a bed, and the error text when one fails.

use std::ffi::OsStr;
use std::fmt::Display;
use std::io::Write;
use std::process::{Command, Stdio};

/// The error says why a bed could not be made or queried. It is a text for the person who runs the tests.
pub type Result<T> = std::result::Result<T, String>;

/// Prefixes an error with the attempted action.
pub(crate) fn err<W: Display, E: Display>(what: W) -> impl FnOnce(E) -> String {
    move |error| format!("{what}: {error}")
}

/// Runs a command to its end. Any status but success is an error.
pub(crate) fn complete(command: Command) -> Result<()> {
    complete_output(command).map(drop)
}

/// As [`complete`]; returns its standard output.
pub(crate) fn complete_output(mut command: Command) -> Result<String> {
    command.stdin(Stdio::null());
    let output = command.output().map_err(|error| format!("{}: {error}", line_of(&command)))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        return Ok(text(&output.stdout));
    }
    Err(format!("{}: {}\n{}", line_of(&command), output.status, text(&output.stderr).trim()))
}

/// As [`complete`], with something to read.
pub(crate) fn complete_with(mut command: Command, input: &str) -> Result<()> {
    command.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("{}: {error}", line_of(&command)))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A command that ends before it has read everything fails below with its own message.
        drop(stdin.write_all(input.as_bytes()));
    }
    let output = child.wait_with_output().map_err(err(line_of(&command)))?;
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    output
        .status
        .success()
        .then_some(())
        .ok_or_else(|| format!("{}: {}\n{said}", line_of(&command), output.status))
}

fn line_of(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}
