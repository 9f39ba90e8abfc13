//! `gantry-mpir`: the starter of MPIR, in which debuggers find the ranks of any launcher and workload manager.
//!
//! `gantry mpir` becomes this program. It has MPIR's symbols and only fills them. A child process `gantry` does all
//! other work. So a debugger that stops this process does not stop links, output and agents.

mod find;
mod serve;
mod sys;

use std::io::Write;
use std::process::ExitCode;

/// The exit code of `gantry` for a refusal of the operating system.
const SYSTEM: u8 = 73;

fn main() -> ExitCode {
    let code = serve::run().unwrap_or_else(|why| {
        // Ignore a closed pipe.
        drop(writeln!(std::io::stderr(), "gantry-mpir: {why}"));
        SYSTEM
    });
    ExitCode::from(code)
}
