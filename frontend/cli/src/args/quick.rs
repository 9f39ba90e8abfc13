//! Parses a command line quickly when its command is known.
//!
//! A full parse first describes all options of all commands, some hundreds, and that takes longer than many commands.
//! This one describes one command only. A line that it does not understand is parsed again in full, so that help and
//! error messages know all commands.

use std::ffi::OsString;

use clap::{ArgAction, Parser, Subcommand};

use super::{Cli, Command, Deps};

#[derive(Debug, Parser)]
#[command(name = "gantry")]
struct Quick {
    #[arg(short, long, global = true, action = ArgAction::Count)]
    verbose: u8,
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Only,
}

#[derive(Debug, Subcommand)]
enum Only {
    Deps(Deps),
}

/// None: the line needs the full parser.
pub(super) fn parse_quickly(line: &[OsString]) -> Option<Cli> {
    if line.get(1)? != "deps" {
        return None;
    }
    let Quick { verbose, json, command: Only::Deps(deps) } = Quick::try_parse_from(line).ok()?;
    Some(Cli {
        verbose,
        json,
        background_in: None,
        group_owner: false,
        complete_query: None,
        command: Some(Command::Deps(deps)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_to_the_same_as_with_all_commands() {
        for line in [
            "gantry deps a",
            "gantry deps --json -vv --tree a",
            "gantry deps -v --sysroot / --optional -- -a",
            "gantry deps ./a --json",
        ] {
            let line: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            let quick = parse_quickly(&line).map(|cli| format!("{cli:?}"));
            assert_eq!(quick, Cli::try_parse_from(&line).ok().map(|cli| format!("{cli:?}")), "{line:?}");
            assert!(quick.is_some(), "{line:?}");
        }
    }

    #[test]
    fn help_mistakes_and_other_commands_are_left_to_all_of_them() {
        for line in [
            "gantry",
            "gantry ps",
            "gantry deps",
            "gantry deps --help",
            "gantry deps --no a",
            "gantry -v deps a",
        ] {
            let line: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            assert!(parse_quickly(&line).is_none(), "{line:?}");
        }
    }
}
