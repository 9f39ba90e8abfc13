//! The command line: parses, calls the library, maps to an exit code.

mod args;
mod cmd;
mod exit;
mod stack;
mod starter;
mod top;
mod view;
mod words;

use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = match args::Cli::of_process() {
        Ok(cli) => cli,
        Err(said) => {
            view::tell_usage(&said);
            cmd::name_apps_for(&said);
            return ExitCode::from(if said.use_stderr() { exit::USAGE } else { exit::SUCCESS });
        }
    };
    // A launch on many nodes needs more than the soft limit that most users have.
    gantry_wlm::host::raise_open_files();
    view::start_tracing(cli.verbose, cmd::open_log(&cli));
    ExitCode::from(cmd::run(cli))
}
