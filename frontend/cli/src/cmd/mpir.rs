//! `gantry mpir`.

use std::env::args_os;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;

use gantry_guard::helpers::find_helper;
use gantry_wlm::host::{Machine, restore_open_files};

use super::{attach, block_on, launch};
use crate::args::{Attach, Launch, Mpir};
use crate::exit::{Fault, Outcome};
use crate::starter::{Debugger, Starter};

/// The program that defines the MPIR symbols.
const STARTER: &str = "gantry-mpir";

pub(super) fn run(args: Mpir, json: bool) -> Outcome {
    if args.launch.stay.background {
        return Err(Fault::invalid(
            "'gantry mpir' does not go to the background",
            "a debugger starts it, or attaches to it: let the shell put it there, by '&'",
        ));
    }
    let Some(descriptor) = args.starter else { return Err(become_starter()) };
    let failed = |e| Fault::io("cannot speak with gantry-mpir", &e);
    let (starter, heard) = Starter::connect(descriptor, args.debugged).map_err(failed)?;
    let starter = Arc::new(starter);
    let debugger = Debugger { starter: Arc::clone(&starter), heard };
    let outcome = match choose(args) {
        Ok(Task::Launch(args)) => block_on(launch::run(args, Some(debugger), json)),
        Ok(Task::Attach(args)) => block_on(attach::run(args, Some(debugger), json)),
        Err(fault) => Err(fault),
    };
    if let Err(Fault(failure)) = &outcome {
        starter.fail(failure.message());
    }
    starter.finish();
    outcome
}

/// Replaces this process by the program with the MPIR symbols. Returns only on failure.
fn become_starter() -> Fault {
    let program = match find_helper(STARTER, &Machine) {
        Ok(program) => program,
        Err(failure) => return Fault(failure),
    };
    #[expect(
        clippy::disallowed_methods,
        reason = "this process execs another program of ours; it starts no child"
    )]
    let mut command = Command::new(program);
    // Global options may stand before the command's name.
    let mut words: Vec<_> = args_os().skip(1).collect();
    if let Some(own) = words.iter().position(|word| word == "mpir") {
        words.remove(own);
    }
    command.args(words);
    restore_open_files(&mut command);
    Fault::io(&format!("cannot become {STARTER}"), &command.exec())
}

#[derive(Debug)]
enum Task {
    Launch(Launch),
    Attach(Attach),
}

/// Chooses between launch and attach. A target with a slash is a program: neither jobs nor processes have one.
fn choose(args: Mpir) -> Result<Task, Fault> {
    let Mpir { target, mut launch, .. } = args;
    match target {
        None if launch.launcher_args.is_empty() => {
            Err(Fault::invalid("nothing to launch, and nothing to attach to", "see 'gantry mpir --help'"))
        }
        None => Ok(Task::Launch(launch)),
        Some(program) if program.contains('/') => {
            if !launch.launcher_args.is_empty() {
                launch.launcher_args.insert(0, "--".into());
            }
            launch.launcher_args.insert(0, program.into());
            Ok(Task::Launch(launch))
        }
        Some(target) => Ok(Task::Attach(Attach {
            target,
            wait: false,
            wlm: launch.wlm,
            hosts: launch.hosts,
            daemons: launch.daemons,
            stay: launch.stay,
            reach_args: launch.launcher_args,
        })),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};

    fn check(line: &str, expected: Option<(&str, &str)>) {
        let cli = Cli::try_parse_from(line.split(' ')).unwrap();
        let Some(Command::Mpir(args)) = cli.command else { panic!("{line}") };
        let text = |args: &[std::ffi::OsString]| args.join(std::ffi::OsStr::new(" ")).into_string().unwrap();
        let chosen = choose(*args).ok().map(|task| match task {
            Task::Launch(launch) => ("launch".to_owned(), text(&launch.launcher_args)),
            Task::Attach(attach) => (attach.target, text(&attach.reach_args)),
        });
        let expected = expected.map(|(what, args)| (what.to_owned(), args.to_owned()));
        assert_eq!(chosen, expected, "{line}");
    }

    #[test]
    fn a_program_is_launched_and_anything_else_attached_to() {
        check("gantry mpir -- -n 4 app", Some(("launch", "-n 4 app")));
        check("gantry mpir ./app", Some(("launch", "./app")));
        check("gantry mpir ./app -- a", Some(("launch", "./app -- a")));
        check("gantry mpir 1234.0", Some(("1234.0", "")));
        check("gantry mpir n1:4711 -- --window 8", Some(("n1:4711", "--window 8")));
        check("gantry mpir -q", None);
    }
}
