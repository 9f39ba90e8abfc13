//! From an errno to a cause.
//!
//! `execve` returns ENOENT for a missing program and for a missing interpreter, and EACCES for five causes. This module
//! finds out which cause it was.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

use gantry_shared::elf::{self, Machine};
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::{AccessFlags, access};

use super::error::StartError;

/// The kernel follows at most this many `#!` lines.
const INTERPRETERS_AT_MOST: usize = 5;
/// The kernel reads this much to detect the format of a file.
const HEAD_BYTES: usize = 256;

/// Says why `execve` of `program` failed with `errno`, seen from `cwd`, by looking at the files.
pub(crate) fn explain_exec(program: &Path, cwd: Option<&Path>, errno: i32) -> StartError {
    let program = program.to_path_buf();
    let found = match errno {
        libc::ENOENT | libc::ENOTDIR => explain_missing(&program, cwd),
        libc::EACCES | libc::EPERM => explain_denied(&program, cwd),
        libc::ENOEXEC | libc::ELIBBAD => explain_format(&program, cwd),
        libc::ETXTBSY => Some(StartError::Busy { program: program.clone() }),
        libc::E2BIG => Some(StartError::TooLong { program: program.clone() }),
        _ => None,
    };
    found.unwrap_or_else(|| StartError::Exec { program, source: io::Error::from_raw_os_error(errno) })
}

fn explain_missing(program: &Path, cwd: Option<&Path>) -> Option<StartError> {
    for (depth, path) in chain(program, cwd).into_iter().enumerate() {
        if std::fs::metadata(from(&path, cwd)).is_err() {
            let program = program.to_path_buf();
            return Some(match depth {
                0 => StartError::ProgramMissing { program },
                _ => StartError::InterpreterMissing { program, interpreter: path },
            });
        }
    }
    None
}

fn explain_denied(program: &Path, cwd: Option<&Path>) -> Option<StartError> {
    let name = program.to_path_buf();
    for path in chain(program, cwd) {
        let full = from(&path, cwd);
        let Ok(metadata) = std::fs::metadata(&full) else {
            let closed = |folder: &&Path| folder.is_dir() && access(*folder, AccessFlags::X_OK).is_err();
            let directory = full.ancestors().skip(1).find(closed)?.to_path_buf();
            return Some(StartError::NoSearch { program: name, directory });
        };
        if metadata.is_dir() {
            return Some(StartError::Directory { program: name, path });
        }
        if is_special(&metadata) {
            return Some(StartError::NotRegular { program: name, path });
        }
        if metadata.permissions().mode() & 0o111 == 0 {
            return Some(StartError::NotExecutable { program: name, path });
        }
        // access(2) returns EACCES for a noexec mount as well, so check the mount first.
        if statvfs(&full).is_ok_and(|fs| fs.flags().contains(FsFlags::ST_NOEXEC)) {
            return Some(StartError::NoexecMount { program: name, path });
        }
        if access(&full, AccessFlags::X_OK).is_err() {
            return Some(StartError::NotExecutable { program: name, path });
        }
    }
    None
}

fn explain_format(program: &Path, cwd: Option<&Path>) -> Option<StartError> {
    for path in chain(program, cwd) {
        let head = read_head(&from(&path, cwd))?;
        let program = program.to_path_buf();
        match parse_head(&head) {
            Head::Script(_) => {}
            Head::Elf => {
                let machine = elf::read_machine(&File::open(from(&path, cwd)).ok()?).ok()?;
                let what = match machine.map(Machine::processor) {
                    Some(NODE_MACHINE) => "an ELF file that this kernel does not load",
                    Some(other) => {
                        let (built_for, node) = (machine_name(other), std::env::consts::ARCH);
                        return Some(StartError::WrongArchitecture { program, path, built_for, node });
                    }
                    None => "a damaged ELF file",
                };
                return Some(StartError::WrongFormat { program, path, what });
            }
            Head::Other(what) => return Some(StartError::WrongFormat { program, path, what }),
        }
    }
    None
}

/// The program, its interpreter, that one's interpreter, and so on. Ends at a file that cannot be read.
fn chain(program: &Path, cwd: Option<&Path>) -> Vec<PathBuf> {
    let mut all = vec![program.to_path_buf()];
    while let Some(next) = all.last().and_then(|path| interpreter(&from(path, cwd))) {
        all.push(next);
        if all.len() > INTERPRETERS_AT_MOST {
            break;
        }
    }
    all
}

/// What the kernel starts instead of `path`: the program after `#!`, or the ELF loader.
fn interpreter(path: &Path) -> Option<PathBuf> {
    match parse_head(&read_head(path)?) {
        Head::Script(interpreter) => Some(interpreter),
        Head::Elf => {
            let loader = elf::read_interpreter(&File::open(path).ok()?).ok()??;
            Some(PathBuf::from(OsString::from_vec(loader)))
        }
        Head::Other(_) => None,
    }
}

fn from(path: &Path, cwd: Option<&Path>) -> PathBuf {
    cwd.map_or_else(|| path.to_path_buf(), |cwd| cwd.join(path))
}

fn read_head(path: &Path) -> Option<Vec<u8>> {
    // Skip anything but a regular file: opening a pipe would wait for its other end.
    std::fs::metadata(path).ok().filter(Metadata::is_file)?;
    let mut head = Vec::new();
    File::open(path).ok()?.take(HEAD_BYTES as u64).read_to_end(&mut head).ok()?;
    Some(head)
}

fn is_special(metadata: &Metadata) -> bool {
    let kind = metadata.file_type();
    kind.is_fifo() || kind.is_socket() || kind.is_char_device() || kind.is_block_device()
}

/// Format of a file, from its first bytes.
#[derive(Debug, PartialEq, Eq)]
enum Head {
    Script(PathBuf),
    Elf,
    Other(&'static str),
}

fn parse_head(head: &[u8]) -> Head {
    if head.is_empty() {
        return Head::Other("an empty file");
    }
    if let Some(line) = head.strip_prefix(b"#!") {
        let line = line.split(|&byte| byte == b'\n').next().unwrap_or_default();
        let mut words = line.split(|&byte| byte == b' ' || byte == b'\t');
        return match words.find(|word| !word.is_empty()) {
            Some(word) => Head::Script(PathBuf::from(OsStr::from_bytes(word))),
            None => Head::Other("a script whose #! names no interpreter"),
        };
    }
    if head.starts_with(b"\x7fELF") {
        return Head::Elf;
    }
    Head::Other("neither an ELF file nor a script that starts with #!")
}

#[cfg(target_arch = "x86_64")]
const NODE_MACHINE: u64 = 62;
#[cfg(target_arch = "aarch64")]
const NODE_MACHINE: u64 = 183;

fn machine_name(machine: u64) -> String {
    let name = match machine {
        3 => "x86 (32 bit)",
        8 => "mips",
        20 => "powerpc",
        21 => "powerpc64",
        22 => "s390x",
        40 => "arm (32 bit)",
        43 => "sparc64",
        62 => "x86_64",
        183 => "aarch64",
        243 => "riscv",
        258 => "loongarch",
        other => return format!("machine type {other}"),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests;
