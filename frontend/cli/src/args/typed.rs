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
        let line = &turn_help(spell_out(line));
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

/// `help COMMAND` becomes `COMMAND --help`. clap's own command would appear in every listing, and repeat all commands
/// in the completions and the manual pages.
fn turn_help(mut line: Vec<OsString>) -> Vec<OsString> {
    let is_option = |word: &OsString| word.as_encoded_bytes().starts_with(b"-");
    let Some(at) = (1..line.len()).find(|at| !is_option(&line[*at])).filter(|at| line[*at] == "help") else {
        return line;
    };
    line[at] = "--help".into();
    match line.get(at + 1) {
        Some(topic) if topic == "help" => drop(line.remove(at + 1)),
        // The option stands directly behind the command: later words may be a launcher's.
        Some(_) => line.swap(at, at + 1),
        None => {}
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_is_a_command_too() {
        let said = |line: &str| {
            let words: Vec<OsString> = line.split_whitespace().map(Into::into).collect();
            let error = Cli::read(&words).map(|_| "a command").unwrap_err();
            (error.kind(), error.to_string())
        };
        for (line, same) in [
            ("gantry help", "gantry --help"),
            ("gantry help help", "gantry --help"),
            ("gantry help launch", "gantry launch --help"),
            ("gantry -v help ps", "gantry ps --help"),
            ("gantry help launch --hold -n 4 ./app", "gantry launch --help"),
            ("gantry help lunch", "gantry lunch --help"),
        ] {
            assert_eq!(said(line), said(same), "{line}");
        }
        // It may be the name of a program or an app.
        let words = ["gantry", "launch", "help"].map(OsString::from);
        assert!(Cli::read(&words).is_ok());
    }
}
