//! Tasks of this repository:
//!
//! - `cargo xtask docs`: writes the pages of the reference that follow from the code.
//! - `cargo xtask api`: writes the public API of the libraries, so that reviewers see a change of it.
//! - `cargo xtask licences`: writes the notices of the crates that are linked.
//! - `cargo xtask install --prefix DIR`: builds gantry and installs it below a prefix.
//! - `cargo xtask package --format FORMAT`: makes a package of that.
//!
//! ```text
//! bin/gantry, bin/gantry-mpir    the command line, and the program that it becomes for debuggers
//! bin/gantry-agent               a link to the agent, for scripts of ranks
//! libexec/gantry/                gantry-guard, gantry-agent, gantry-stackd, gantry-gdbd
//! libexec/gantry/launchers/      the guard under launchers' names, for scripts whose launch is held
//! lib/                           libcommontools_fe.so.2, libcommontools_be.so.2, libgantry_tm.so.0
//! lib/pkgconfig/                 common_tools_fe.pc, common_tools_be.pc, gantry_tm.pc
//! include/                       headers
//! share/                         completions for bash, zsh and fish; man/man1 has a page for each command;
//!                                doc/gantry has the licences
//! ```
//!
//! Installed programs find their parts relative to their own path, so a prefix may be moved. Only the pkg-config files
//! contain it, and not those of an archive.

mod api;
mod args;
mod build;
mod docs;
mod layout;
mod licences;
mod library;
mod package;
mod pkg_config;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

use args::{Api, Args, Docs, Install, Licences, Result, Task};

fn main() -> ExitCode {
    if let Some(error) = api::become_rustdoc() {
        drop(writeln!(std::io::stderr(), "cargo xtask api: rustdoc cannot be started: {error}"));
        return ExitCode::FAILURE;
    }
    let done = match Args::parse().task {
        Task::Install(install) => {
            layout::install(&install).map(|root| format!("installed below {}", root.display()))
        }
        Task::Package(asked) => package::package(&asked),
        Task::Docs(docs) => docs::write(&docs),
        Task::Api(api) => api::write(&api),
        Task::Licences(licences) => licences::write(&licences),
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
