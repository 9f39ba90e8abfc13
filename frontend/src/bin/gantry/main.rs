//! The command line: parses, calls the library, maps to an exit code.

mod args;
mod cmd;
mod exit;
mod view;
mod words;

use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = match args::Cli::of_process() {
        Ok(cli) => cli,
        Err(said) => {
            // Help on a closed pipe is nobody's loss.
            drop(said.print());
            return ExitCode::from(if said.use_stderr() { exit::USAGE } else { exit::SUCCESS });
        }
    };
    view::start_tracing(cli.verbose, cmd::open_log(&cli));
    ExitCode::from(cmd::run(cli))
}
