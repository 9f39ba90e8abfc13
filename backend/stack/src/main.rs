//! `gantry-stackd`: started by `gantry stack` on every node. Its only argument is the first order.

use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    let orders = std::env::args().nth(1).unwrap_or_default();
    match gantry_stackd::daemon::run(&orders) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            drop(writeln!(std::io::stderr(), "gantry-stackd: {error}"));
            ExitCode::FAILURE
        }
    }
}
