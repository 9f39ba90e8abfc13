//! One file per command, and shared functions.

mod attach;
mod background;
mod child;
mod coalloc;
mod common;
mod completions;
mod daemon;
mod dap;
mod deps;
mod doctor;
mod debug_files;
mod gdb;
mod gdbs;
mod input;
mod interrupts;
mod kill;
mod launch;
mod look;
mod man;
mod mpir;
mod notes;
mod owner;
mod pm;
mod ps;
mod queue;
mod release;
mod stack;
mod starts;
mod stay;
mod submit;
mod top;
mod wait;
mod watch;
mod why;
mod wlm;

use std::fs::{File, OpenOptions};

pub(crate) use self::common::name_apps_for;
use self::common::{END, absolute, app_of_process, block_on, close, doubt_about, doubt_of, reach, say};
use crate::args::{Cli, Command};
use crate::exit::{self, Fault, Outcome};
use crate::view;

/// Runs a command and reports its failure. Returns the exit code.
pub(crate) fn run(cli: Cli) -> u8 {
    let json = cli.json;
    match carry_out(cli) {
        Ok(code) => code,
        Err(Fault(failure)) => {
            view::tell_failure(&failure, json);
            exit::of_kind(failure.kind())
        }
    }
}

fn carry_out(cli: Cli) -> Outcome {
    let json = cli.json;
    if cli.group_owner {
        return owner::run();
    }
    if let Some(word) = &cli.complete_query {
        return block_on(completions::complete_query(word));
    }
    let Some(command) = cli.command else {
        return Err(Fault::invalid("no command", "'gantry --help' lists them"));
    };
    if let Some(dir) = &cli.background_in {
        return background::serve(dir, command);
    }
    match command {
        Command::Launch(args) if args.stay.background => background::start(args.stay.output.as_deref(), json),
        Command::Attach(args) if args.stay.background => background::start(args.stay.output.as_deref(), json),
        Command::Submit(args) if args.stay.background => background::start(args.stay.output.as_deref(), json),
        Command::Coalloc(args) if args.background => background::start(args.output.as_deref(), json),
        Command::Launch(args) => block_on(launch::run(args, None, json)),
        Command::Attach(args) => block_on(attach::run(args, None, json)),
        Command::Submit(args) => block_on(submit::run(args, json)),
        Command::Ps(args) => block_on(ps::run(&args, json)),
        Command::Release(args) => block_on(release::run(args, json)),
        Command::Kill(args) => block_on(kill::run(&args.target, args.signal, &args.hit, json)),
        Command::Signal(args) => block_on(kill::run(&args.target, args.signal, &args.hit, json)),
        Command::Pm(args) => block_on(pm::run(args)),
        Command::Wait(args) => block_on(wait::run(args, json)),
        Command::Daemon(args) => block_on(daemon::run(args, json)),
        Command::Coalloc(args) => block_on(coalloc::run(args, json)),
        Command::Gdb(args) => block_on(gdb::run(*args, json)),
        Command::Dap(args) => block_on(dap::run(args)),
        Command::Why(args) => block_on(why::run(*args, json)),
        Command::Top(args) => block_on(top::run(*args, json)),
        Command::Mpir(args) => mpir::run(*args, json),
        Command::Stack(args) => block_on(stack::run(*args, json)),
        Command::Wlm(args) => wlm::run(args, json),
        Command::Deps(args) => deps::run(&args, json),
        Command::Doctor(args) => block_on(doctor::run(&args, json)),
        Command::Completions(args) => completions::run(&args),
        Command::Man(args) => man::run(args),
    }
}

/// The log file of a frontend process in the background: the file of the ranks' output, if there is one.
pub(crate) fn open_log(cli: &Cli) -> Option<File> {
    let stay = match &cli.command {
        Some(Command::Launch(args)) => &args.stay,
        Some(Command::Attach(args)) => &args.stay,
        Some(Command::Submit(args)) => &args.stay,
        _ => return None,
    };
    let path = cli.background_in.as_ref()?.join(stay.output.as_ref()?);
    // The starting process has opened it before.
    OpenOptions::new().create(true).append(true).open(path).ok()
}
