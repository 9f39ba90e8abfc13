//! `cargo xtask docs`: writes the pages of the reference that follow from the code.
//! `cargo xtask install --prefix DIR`: builds gantry and lays it out below a prefix.
//!
//! ```text
//! bin/gantry                     the command line
//! libexec/gantry/                gantry-guard, gantry-agent
//! libexec/gantry/launchers/      the guard under launchers' names, for scripts whose launch is held
//! lib/                           libcommontools_fe.so.2, libcommontools_be.so.2
//! lib/pkgconfig/                 common_tools_fe.pc, common_tools_be.pc
//! include/                       headers
//! share/man/man1/gantry.1        the manual
//! ```
//!
//! What is installed finds its parts from where it lies, so a prefix may be moved; only the pkg-config files name it.

mod args;
mod build;
mod docs;
mod layout;
mod library;
mod pkg_config;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

use args::{Args, Docs, Install, Result, Task};

fn main() -> ExitCode {
    let done = match Args::parse().task {
        Task::Install(install) => {
            layout::install(&install).map(|root| format!("installed below {}", root.display()))
        }
        Task::Docs(docs) => docs::write(&docs),
    };
    match done {
        Ok(text) => {
            let said = writeln!(std::io::stdout(), "{text}");
            if said.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            drop(writeln!(std::io::stderr(), "cargo xtask: {error}"));
            ExitCode::FAILURE
        }
    }
}
