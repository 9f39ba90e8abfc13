//! `gantry-gdbd`: started by `gantry gdb` on every node. Its only argument is the debugger.

use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    let program = std::env::args_os().nth(1).unwrap_or_else(|| "gdb".into());
    match gantry_gdbd::daemon::run(&program) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            drop(writeln!(std::io::stderr(), "gantry-gdbd: {error}"));
            ExitCode::FAILURE
        }
    }
}
