//! The small C programs under test, compiled on first use.
//!
//! The result is kept under `target/test-programs`. Its name depends on the source's content and the flags. So it is
//! built once for all test processes, and is never out of date. The sources are in `tests/programs`; each explains its
//! purpose.

use std::ffi::OsStr;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::binaries::target_dir;
use crate::executable::write_executable;
use crate::preparing::lock;
use crate::{becomes_true, outside};

/// How long a compiler may take.
const MAKING: Duration = Duration::from_secs(30);

/// How a program is linked: three ways to a first instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Link {
    /// Position-independent, with a loader: the default of today's compilers.
    Pie,
    /// At a fixed address, with a loader.
    NoPie,
    /// Without a loader.
    Static,
}

impl Link {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Pie, Self::NoPie, Self::Static];

    fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Pie => &["-fPIE", "-pie"],
            Self::NoPie => &["-fno-pie", "-no-pie"],
            Self::Static => &["-fno-pie", "-static"],
        }
    }
}

/// Frame pointers, symbols and no inlined tails: stack tools are tested on these.
const FLAGS: [&str; 7] =
    ["-O1", "-g", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls", "-Wall", "-Wextra", "-Werror"];

/// The same for Rust, which compiles without frame pointers.
const RUST_FLAGS: [&str; 3] = ["-g", "-Copt-level=1", "--edition=2024"];

/// Go needs only this.
const GO_FLAGS: [&str; 1] = ["build"];

/// The path of a compiled program of `tests/programs`, by its name without `.c`.
///
/// # Panics
/// When there is no such source or it does not compile.
#[must_use]
#[track_caller]
pub fn get(name: &str) -> PathBuf {
    get_as(name, Link::Pie).unwrap_or_else(|reason| panic!("{reason}"))
}

/// As [`get`], linked in a certain way.
///
/// # Errors
/// The compiler's words, as the reason of a skip: not every machine has a static C library.
pub fn get_as(name: &str, link: Link) -> Result<PathBuf, String> {
    get_with(name, name, link.flags())
}

/// As [`get`], of an MPI program: by the compiler of an MPI library, such as `mpicc.mpich`.
///
/// # Errors
/// The compiler's words, as the reason of a skip: that library may not be here.
pub fn get_mpi(name: &str, compiler: &str) -> Result<PathBuf, String> {
    get_source(&format!("{name}.c"), compiler, &[])
}

/// As [`get`], with other flags, under another name.
///
/// # Errors
/// The compiler's message, as the reason of a skip.
pub fn get_with<F: AsRef<OsStr> + Hash>(name: &str, made_name: &str, flags: &[F]) -> Result<PathBuf, String> {
    compile(name, made_name, "cc", flags)
}

/// As [`get`], a library that a program loads by its path.
///
/// # Errors
/// The compiler's words, as the reason of a skip.
pub fn get_library(name: &str) -> Result<PathBuf, String> {
    get_with(name, &format!("lib{name}.so"), &["-shared", "-fPIC"])
}

/// A program in any language, by its file below `tests/programs`, made by a compiler of that language.
///
/// # Errors
/// The compiler's words, as the reason of a skip.
pub fn get_source(file: &str, compiler: &str, flags: &[&str]) -> Result<PathBuf, String> {
    let made_name = Path::new(file).file_stem().and_then(OsStr::to_str).unwrap_or(file);
    compile_source(file, made_name, compiler, flags)
}

/// Where the sources are.
#[must_use]
pub fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("programs")
}

fn compile<F: AsRef<OsStr> + Hash>(
    name: &str,
    made_name: &str,
    compiler: &str,
    flags: &[F],
) -> Result<PathBuf, String> {
    compile_source(&format!("{name}.c"), made_name, compiler, flags)
}

fn compile_source<F: AsRef<OsStr> + Hash>(
    file: &str,
    made_name: &str,
    compiler: &str,
    flags: &[F],
) -> Result<PathBuf, String> {
    let source = sources().join(file);
    let beside = source.parent().unwrap_or(Path::new("")).to_path_buf();
    let text = fs::read(&source).map_err(|error| format!("{}: {error}", source.display()))?;
    let common = match source.extension().and_then(OsStr::to_str) {
        Some("rs") => &RUST_FLAGS[..],
        Some("go") => &GO_FLAGS[..],
        _ => &FLAGS[..],
    };
    let mut hasher = DefaultHasher::new();
    (&text, compiler, common, flags).hash(&mut hasher);
    included(&text).map(|file| fs::read(beside.join(file)).ok()).for_each(|text| text.hash(&mut hasher));
    let folder = folder().join(format!("{:016x}", hasher.finish()));
    // The file's own name is the program's, so that it looks right in lists of processes.
    let made = folder.join(made_name);
    if made.is_file() {
        return Ok(made);
    }
    if outside::is_asked() {
        // Another user makes it: the same body runs on this machine, too.
        return becomes_true(MAKING, || made.is_file())
            .then_some(made)
            .ok_or_else(|| format!("no rule makes {made_name}"));
    }
    let _locked = lock(&self::folder().join("lock"));
    if made.is_file() {
        return Ok(made);
    }
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let fresh = folder.join(format!("{made_name}.new"));
    let mut command = Command::new(compiler);
    command.args(common).arg("-o").arg(&fresh).arg(&source).args(flags).stdin(Stdio::null());
    // Fortran's compiler writes module files into its current directory.
    command.current_dir(&folder);
    // Go's default cache is in the user's folder.
    command.env("GOCACHE", target_dir().join("go-cache"));
    let output = command.output().map_err(|error| format!("{compiler} cannot be started: {error}"))?;
    if !output.status.success() {
        let flags: Vec<_> = flags.iter().map(|flag| flag.as_ref().to_string_lossy()).collect();
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{compiler} {} cannot make {made_name}: {said}", flags.join(" ")));
    }
    fs::rename(&fresh, &made).map_err(|error| format!("{}: {error}", made.display()))?;
    Ok(made)
}

/// The source files that a source includes from its own folder.
fn included(text: &[u8]) -> impl Iterator<Item = String> {
    let lines = text.split(|byte| *byte == b'\n').map(|line| String::from_utf8_lossy(line).into_owned());
    lines.filter_map(|line| Some(line.strip_prefix("#include \"")?.split('"').next()?.to_owned()))
}

/// A program for another machine: an ELF file whose header names another architecture.
///
/// # Panics
/// When it cannot be written.
#[must_use]
#[track_caller]
pub fn wrong_architecture() -> PathBuf {
    const E_MACHINE: usize = 18;
    const X86_64: u16 = 62;
    const AARCH64: u16 = 183;
    let made = folder().join("wrong_architecture");
    let _locked = lock(&folder().join("lock-wrong"));
    if !made.is_file() {
        let mut bytes = fs::read(get("say")).expect("the compiled program");
        let other = if cfg!(target_arch = "aarch64") { X86_64 } else { AARCH64 };
        bytes[E_MACHINE..E_MACHINE + 2].copy_from_slice(&other.to_ne_bytes());
        let fresh = made.with_extension("new");
        write_executable(&fresh, &bytes);
        fs::rename(&fresh, &made).expect("rename in one folder");
    }
    made
}

fn folder() -> PathBuf {
    let folder = target_dir().join("test-programs");
    fs::create_dir_all(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    folder
}
