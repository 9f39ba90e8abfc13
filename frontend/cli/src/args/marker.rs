//! `gantry launch` and `gantry mpir` without `--`. The launcher's arguments begin at the first word that is not an
//! option of gantry.

use std::ffi::{OsStr, OsString};

use clap::error::{ContextKind, ErrorKind};
use clap::{ArgAction, Command, CommandFactory};
use gantry_wlm::launcher::is_launcher_option;

use super::Cli;

/// The commands that take a launcher's arguments.
const COMMANDS: [&str; 2] = ["launch", "mpir"];

/// Inserts `--` before the first word that is not an option of gantry. None: a marker does not repair this error.
pub(super) fn put_marker(line: &[OsString], error: &clap::Error) -> Option<Vec<OsString>> {
    // clap reads the `h` of `-hosts` as a request for help.
    // An option of a launch before the word shows that the word is a program, not a target.
    if !matches!(
        error.kind(),
        ErrorKind::UnknownArgument | ErrorKind::DisplayHelp | ErrorKind::ArgumentConflict
    ) {
        return None;
    }
    let command = line.iter().position(|word| COMMANDS.iter().any(|command| word == command))?;
    let mut cli = Cli::command();
    // Copies the global options into each command.
    cli.build();
    let launch = cli.find_subcommand(&line[command])?;
    let at = find_first_foreign(line, command, launch)?;
    if line[..at].iter().any(|word| word == "-h" || word == "--help") {
        return None;
    }
    let word = line.get(at)?.to_str().unwrap_or_default();
    // An option that resembles one of gantry's, and that no launcher knows, is a typing error.
    if error.get(ContextKind::SuggestedArg).is_some() && !is_launcher_option(word) {
        return None;
    }
    let mut marked = line.to_vec();
    marked.insert(at, "--".into());
    Some(marked)
}

/// The index of the first word after the command that gantry does not know.
fn find_first_foreign(line: &[OsString], command: usize, launch: &Command) -> Option<usize> {
    let mut at = command + 1;
    while let Some(word) = line.get(at) {
        match words_taken(word, launch) {
            Some(words) => at += words,
            None => return Some(at),
        }
    }
    None
}

/// How many words this option takes, itself included. None: it is not an option of gantry.
fn words_taken(word: &OsStr, launch: &Command) -> Option<usize> {
    let word = word.to_str()?;
    let takes_value = |action: &ArgAction| matches!(action, ArgAction::Set | ArgAction::Append);
    if let Some(long) = word.strip_prefix("--") {
        let (name, attached) = match long.split_once('=') {
            Some((name, _)) => (name, true),
            None => (long, false),
        };
        let arg = launch.get_arguments().find(|arg| arg.get_long() == Some(name))?;
        return Some(if takes_value(arg.get_action()) && !attached { 2 } else { 1 });
    }
    // All short options of gantry are flags, so `-vq` is two of them.
    let letters = word.strip_prefix('-').filter(|letters| !letters.is_empty())?;
    let is_flag = |letter| {
        let arg = launch.get_arguments().find(|arg| arg.get_short() == Some(letter));
        arg.is_some_and(|arg| !takes_value(arg.get_action()))
    };
    letters.chars().all(is_flag).then_some(1)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::{Cli, Command};

    /// What the launcher gets, or the error.
    fn read(line: &str) -> Result<Vec<String>, String> {
        let line: Vec<_> = line.split_whitespace().map(Into::into).collect();
        match Cli::read(&line).map_err(|error| error.to_string())?.command {
            Some(Command::Launch(launch)) => Ok(words(&launch)),
            Some(Command::Mpir(mpir)) => Ok(mpir
                .target
                .iter()
                .map(|target| format!("<{target}>"))
                .chain(words(&mpir.launch))
                .collect()),
            _ => Err("no launch".to_owned()),
        }
    }

    fn words(launch: &super::super::Launch) -> Vec<String> {
        launch.launcher_args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect()
    }

    #[track_caller]
    fn check(line: &str, expected: &str) {
        assert_eq!(read(line).map(|args| args.join(" ")).as_deref(), Ok(expected), "{line}");
    }

    #[test]
    fn the_first_word_that_is_not_gantrys_begins_the_launchers_arguments() {
        check("gantry launch --hold -n 4 ./app", "-n 4 ./app");
        check("gantry launch -n 4 ./app --hold -v", "-n 4 ./app --hold -v");
        check("gantry launch ./app", "./app");
        check("gantry launch --timeout 5 --label ./app -- x", "./app -- x");
        check("gantry launch --timeout=5 -vq -N2 ./app", "-N2 ./app");
        check("gantry --json launch --hold -n 4 ./app", "-n 4 ./app");
        check("gantry launch --hold --ntasks=4 ./app", "--ntasks=4 ./app");
        check("gantry launch --hold --time 5 ./app", "--time 5 ./app");
        check("gantry launch --hosts n1 ./app", "--hosts n1 ./app");
        check("gantry launch -hosts n1 -n 2 ./app", "-hosts n1 -n 2 ./app");
        check("gantry launch -q --daemon ps -l select=2 ./app", "-l select=2 ./app");
        // As before.
        check("gantry launch --hold -- -n 4 ./app", "-n 4 ./app");
    }

    #[test]
    fn one_word_alone_is_a_target_of_mpir_and_more_are_a_launch() {
        check("gantry mpir -n 4 ./app", "-n 4 ./app");
        check("gantry mpir -- -n 4 ./app", "-n 4 ./app");
        check("gantry mpir --starter=7 --debugged -q --timeout 5 -n 4 ./app -q", "-n 4 ./app -q");
        check("gantry mpir sleep 5", "sleep 5");
        check("gantry mpir --label sleep", "sleep");
        check("gantry mpir --launcher mpirun -np 4 sleep 5", "-np 4 sleep 5");
        check("gantry mpir 1234.0", "<1234.0>");
        check("gantry --json mpir --timeout 5 1234.0 -- --window 8", "<1234.0> --window 8");
        check("gantry mpir --daemon ps 4711,4712", "<4711,4712>");
    }

    #[test]
    fn a_mistyped_option_is_told() {
        for (line, meant) in [
            ("gantry launch --hodl -n 4 ./app", "--hold"),
            ("gantry launch --labl ./app", "--label"),
            ("gantry launch --hold-metod exec ./app", "--hold-method"),
        ] {
            let error = read(line).unwrap_err();
            assert!(error.contains(meant), "{error}");
        }
    }

    #[test]
    fn other_mistakes_are_told_as_ever() {
        for line in [
            "gantry launch",
            "gantry launch --hold",
            "gantry launch -h",
            "gantry launch --help -n 4 a",
            "gantry lunch -n 4 a",
            "gantry ps --y",
            "gantry kill --x",
        ] {
            let words: Vec<std::ffi::OsString> = line.split_whitespace().map(Into::into).collect();
            let told = Cli::try_parse_from(&words).unwrap_err().to_string();
            assert_eq!(Cli::read(&words).unwrap_err().to_string(), told, "{line}");
        }
    }
}
