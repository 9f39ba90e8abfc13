//! `gantry-mpir`: the starter of MPIR, in which debuggers find the ranks of any launcher and workload manager.
//!
//! `gantry mpir` becomes this program. It has MPIR's symbols, and no more work than to fill them: everything else is done by a `gantry` that it
//! starts. A debugger that stops this process stops nothing else: links, output and agents go on.

mod find;
mod serve;
mod sys;

use std::io::Write;
use std::process::ExitCode;

/// What `gantry` ends with where the operating system refuses.
const SYSTEM: u8 = 73;

fn main() -> ExitCode {
    let code = serve::run().unwrap_or_else(|why| {
        // Nobody may be reading there.
        drop(writeln!(std::io::stderr(), "gantry-mpir: {why}"));
        SYSTEM
    });
    ExitCode::from(code)
}
