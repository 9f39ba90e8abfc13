//! The arguments of tasks, and their errors.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};

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
    /// Builds gantry and makes a package of it: an archive that runs where it is unpacked, or one for dpkg or rpm.
    Package(Package),
    /// Writes the pages of docs/src/reference that follow from the code.
    Docs(Docs),
    /// Writes docs/api: the public API of the libraries for Rust, an item a line.
    Api(Api),
    /// Writes THIRD-PARTY.txt: the notices of the crates that are linked into gantry's programs and libraries.
    Licences(Licences),
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

/// How to write the notices.
#[derive(Debug, clap::Args)]
pub(crate) struct Licences {
    /// Writes nothing, and fails if THIRD-PARTY.txt differs from Cargo.lock.
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
    /// The pkg-config files name no prefix but their own place.
    #[arg(skip)]
    pub(crate) relocatable: bool,
    #[command(flatten)]
    pub(crate) building: Building,
}

/// How to build what is installed.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Building {
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
    /// Builds for machines that have this version of glibc or a later one. It needs the PyPI packages cargo-zigbuild and
    /// ziglang. Default: this machine's version.
    #[arg(long, value_name = "VERSION", conflicts_with = "with_ssh")]
    pub(crate) glibc: Option<String>,
}

impl Building {
    /// As developers build, with cargo's profile for them.
    pub(crate) fn for_development() -> Self {
        Self { with_ssh: false, profile: "dev".to_owned(), no_build: false, cc: "cc".into(), glibc: None }
    }
}

/// How to make a package.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Package {
    /// What it is for.
    #[arg(long, value_enum)]
    pub(crate) format: Format,
    /// Where it is put. Default: the folder `package` where cargo puts its results.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Distinguishes packages of one version. Raise it when you build one again.
    #[arg(long, default_value = "1", value_name = "NUMBER")]
    pub(crate) revision: u32,
    /// The maintainer of the package: a name and an address.
    #[arg(long, default_value = "the administrator <root@localhost>", value_name = "NAME <ADDRESS>")]
    pub(crate) maintainer: String,
    /// The time of all files, in seconds since 1970. Default: that of the last commit.
    #[arg(long, env = "SOURCE_DATE_EPOCH", value_name = "SECONDS")]
    pub(crate) date: Option<u64>,
    #[command(flatten)]
    pub(crate) building: Building,
}

const EXAMPLES: &str = "\
Examples:
  cargo xtask package --format tar                  an archive for users without rights
  cargo xtask package --format deb                  for Debian and Ubuntu
  cargo xtask package --format rpm --glibc 2.28     for RHEL and Rocky 8, SLES 15 SP3, and later";

/// The kinds of packages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// An archive that runs where it is unpacked.
    Tar,
    /// For dpkg and apt. It needs dpkg-dev.
    Deb,
    /// For rpm, dnf and zypper. It needs rpmbuild.
    Rpm,
}

/// The error of a task.
pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;
