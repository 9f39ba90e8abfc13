//! From an errno to a cause.
//!
//! `execve` returns ENOENT for a missing program and for a missing interpreter, and EACCES for five causes. This module
//! finds out which cause it was.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

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
            Head::Elf(elf) if elf.machine != NODE_MACHINE => {
                let built_for = machine_name(elf.machine);
                let node = std::env::consts::ARCH;
                return Some(StartError::WrongArchitecture { program, path, built_for, node });
            }
            Head::Elf(_) => {
                let what = "an ELF file that this kernel does not load";
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
        Head::Elf(elf) => elf_loader(&File::open(path).ok()?, elf),
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
    Elf(ElfHead),
    Other(&'static str),
}

/// The fields of an ELF header that matter here (elf(5)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ElfHead {
    wide: bool,
    big_endian: bool,
    machine: u16,
    program_headers: u64,
    header_size: u16,
    header_count: u16,
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
        return parse_elf(head).map_or(Head::Other("a damaged ELF file"), Head::Elf);
    }
    Head::Other("neither an ELF file nor a script that starts with #!")
}

fn parse_elf(head: &[u8]) -> Option<ElfHead> {
    let wide = match head.get(4)? {
        1 => false,
        2 => true,
        _ => return None,
    };
    let big_endian = match head.get(5)? {
        1 => false,
        2 => true,
        _ => return None,
    };
    let number = |at: usize, size: usize| read_number(head, at, size, big_endian);
    let half = |at: usize| number(at, 2).and_then(|value| u16::try_from(value).ok());
    Some(ElfHead {
        wide,
        big_endian,
        machine: half(18)?,
        program_headers: if wide { number(32, 8)? } else { number(28, 4)? },
        header_size: half(if wide { 54 } else { 42 })?,
        header_count: half(if wide { 56 } else { 44 })?,
    })
}

/// Reads PT_INTERP.
fn elf_loader(file: &File, elf: ElfHead) -> Option<PathBuf> {
    const PT_INTERP: u64 = 3;
    const PATH_BYTES_AT_MOST: u64 = 4096;
    for index in 0..u64::from(elf.header_count) {
        let mut header = vec![0; usize::from(elf.header_size)];
        let at = elf.program_headers.checked_add(index * u64::from(elf.header_size))?;
        file.read_exact_at(&mut header, at).ok()?;
        let number = |at: usize, size: usize| read_number(&header, at, size, elf.big_endian);
        if number(0, 4)? == PT_INTERP {
            let (offset, length) =
                if elf.wide { (number(8, 8)?, number(32, 8)?) } else { (number(4, 4)?, number(16, 4)?) };
            let mut path = vec![0; usize::try_from(length.min(PATH_BYTES_AT_MOST)).ok()?];
            file.read_exact_at(&mut path, offset).ok()?;
            let path = path.split(|&byte| byte == 0).next()?;
            return Some(PathBuf::from(OsStr::from_bytes(path)));
        }
    }
    None
}

fn read_number(bytes: &[u8], at: usize, size: usize, big_endian: bool) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(size)?)?;
    let push = |value: u64, &byte: &u8| (value << 8) | u64::from(byte);
    Some(if big_endian { bytes.iter().fold(0, push) } else { bytes.iter().rev().fold(0, push) })
}

#[cfg(target_arch = "x86_64")]
const NODE_MACHINE: u16 = 62;
#[cfg(target_arch = "aarch64")]
const NODE_MACHINE: u16 = 183;

fn machine_name(machine: u16) -> String {
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
