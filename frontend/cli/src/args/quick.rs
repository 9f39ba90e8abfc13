//! Reads a command line of which the command is known beforehand, when that takes longer than the command itself.
//!
//! To read a command line all options of all commands are described first, some hundreds. Here only those of one command are. Whatever is not understood
//! that way is read once more with all of them, so that help and what is said of mistakes know the others too.

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

/// None: it is another command, or has to be read with all of them.
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
