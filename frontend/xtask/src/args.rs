//! The arguments of tasks, and their errors.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Parser, Subcommand};

/// Chores of this repository.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask")]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) task: Task,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Task {
    /// Builds gantry and installs it below a prefix: programs, helpers, C libraries and headers, pkg-config files,
    /// completions, manual.
    Install(Install),
    /// Writes the pages of docs/src/reference that follow from the code.
    Docs(Docs),
    /// Writes docs/api: the public API of the libraries for Rust, an item a line.
    Api(Api),
}

/// How to write the reference.
#[derive(Debug, clap::Args)]
pub(crate) struct Docs {
    /// Writes nothing, and fails if a page differs from the code.
    #[arg(long)]
    pub(crate) check: bool,
    /// The output of a bench. Its rows are first copied into docs/measurements.jsonl. /dev/stdin for a pipe.
    #[arg(long, value_name = "FILE", conflicts_with = "check")]
    pub(crate) measured: Option<PathBuf>,
    /// The command line, already built. Default: builds it.
    #[arg(long, value_name = "FILE")]
    pub(crate) gantry: Option<PathBuf>,
}

/// How to write the API.
#[derive(Debug, clap::Args)]
pub(crate) struct Api {
    /// Writes nothing, and fails if the API differs from docs/api.
    #[arg(long)]
    pub(crate) check: bool,
}

/// How to install.
#[derive(Debug, clap::Args)]
pub(crate) struct Install {
    /// Where it will be used.
    #[arg(long, default_value = "/usr/local", value_name = "DIR")]
    pub(crate) prefix: PathBuf,
    /// Where it is put instead, as if this were the root: for packages.
    #[arg(long, env = "DESTDIR", value_name = "DIR")]
    pub(crate) destdir: Option<PathBuf>,
    /// Folder of the libraries: relative to the prefix, or a path beneath it.
    #[arg(long, default_value = "lib", value_name = "DIR")]
    pub(crate) libdir: PathBuf,
    /// Adds gantry-ssh, which reaches hosts by libssh2. It needs libssl-dev and pkg-config.
    #[arg(long)]
    pub(crate) with_ssh: bool,
    /// Cargo's profile.
    #[arg(long, default_value = "dist")]
    pub(crate) profile: String,
    /// Takes what was built before. All of it must be there.
    #[arg(long)]
    pub(crate) no_build: bool,
    /// The C compiler, which links the libraries.
    #[arg(long, env = "CC", default_value = "cc", value_name = "PROGRAM")]
    pub(crate) cc: OsString,
}

/// The error of a task.
pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;
