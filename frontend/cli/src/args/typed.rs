//! Parses the command line.

use std::ffi::OsString;

use clap::Parser;

use super::{Cli, marker};

impl Cli {
    /// The command line of this process.
    ///
    /// # Errors
    /// The line is not valid, or it asks for help.
    pub(crate) fn of_process() -> Result<Self, clap::Error> {
        let line: Vec<OsString> = std::env::args_os().collect();
        Self::read(&line)
    }

    /// As [`Cli::of_process`], for a given line.
    pub(super) fn read(line: &[OsString]) -> Result<Self, clap::Error> {
        let line = &spell_out(line);
        Self::try_parse_from(line).or_else(|error| match marker::put_marker(line, &error) {
            Some(marked) => Self::try_parse_from(marked),
            None => Err(error),
        })
    }
}

/// gdb's own option -ex is one word. Here it becomes a long option.
fn spell_out(line: &[OsString]) -> Vec<OsString> {
    let end = line.iter().position(|word| word == "--").unwrap_or(line.len());
    let is_gdb = line[..end].iter().any(|word| word == "gdb");
    let spelt = |(at, word): (usize, &OsString)| match is_gdb && at < end && word == "-ex" {
        true => "--ex".into(),
        false => word.clone(),
    };
    line.iter().enumerate().map(spelt).collect()
}
