//! The program `gantry-agent`. See the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    gantry_agent::run()
}
