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

mod build;
mod docs;
mod layout;
mod library;
mod pkg_config;

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Chores of this repository.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask")]
struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Builds gantry and installs it below a prefix: programs, helpers, C libraries and headers, pkg-config files, manual.
    Install(Install),
    /// Writes the pages of docs/src/reference that follow from the code.
    Docs(Docs),
}

/// How to write the reference.
#[derive(Debug, clap::Args)]
struct Docs {
    /// Writes nothing, and fails where a page is not as the code has it.
    #[arg(long)]
    check: bool,
    /// The command line, already built. Default: builds it.
    #[arg(long, value_name = "FILE")]
    gantry: Option<PathBuf>,
}

/// How to install.
#[derive(Debug, clap::Args)]
struct Install {
    /// Where it will be used.
    #[arg(long, default_value = "/usr/local", value_name = "DIR")]
    prefix: PathBuf,
    /// Where it is put instead, as if this were the root: for packages.
    #[arg(long, env = "DESTDIR", value_name = "DIR")]
    destdir: Option<PathBuf>,
    /// Folder of the libraries below the prefix.
    #[arg(long, default_value = "lib", value_name = "DIR")]
    libdir: PathBuf,
    /// Cargo's profile.
    #[arg(long, default_value = "dist")]
    profile: String,
    /// Takes what was built before. All of it must be there.
    #[arg(long)]
    no_build: bool,
    /// The C compiler, which links the libraries.
    #[arg(long, env = "CC", default_value = "cc", value_name = "PROGRAM")]
    cc: OsString,
}

/// What a chore fails with.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

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
