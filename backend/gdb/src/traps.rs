//! Removes the breakpoints that a killed gdb has left in a rank.
//!
//! gdb writes a trap instruction over the code at each breakpoint, also at those of its own that it does not report.
//! A page of code that a debugger has written to is a copy that belongs to the process, and the kernel says which
//! pages are (proc_pid_pagemap(5)). There, each trap instruction that the file does not have is gdb's.
//!
//! Code without a file, such as that of a just-in-time compiler, is not mended: its original bytes are not known.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, SysconfVar, sysconf};

/// The instruction that gdb writes. Source: the architecture's `sw_breakpoint_from_kind` in gdb.
const TRAP: &[u8] = match cfg!(target_arch = "aarch64") {
    true => &[0x00, 0x00, 0x20, 0xd4],
    false => &[0xcc],
};

/// A page that differs from the file in more bytes, apart from traps, is not that file's, or is the program's own work.
/// gdb itself uses one instruction's room, to step over a breakpoint.
const MAX_OTHER_BYTES: usize = 32;

/// Bits of an entry of the page map.
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
const OF_FILE_OR_SHARED: u64 = 1 << 61;

/// Leaves a rank as it would be without its gdb, which has ended: without its breakpoints, and running unless
/// `is_held`. Does nothing that an orderly end of gdb has not done already.
pub(crate) fn leave_in_order(pid: i32, is_held: bool) {
    // It may have ended. What cannot be written stays as it is.
    remove(pid).unwrap_or_default();
    if !is_held {
        // Takes back the SIGSTOP of a gdb that was killed while it attached.
        kill(Pid::from_raw(pid), Signal::SIGCONT).unwrap_or_default();
    }
}

/// Removes all breakpoints from the code of a process. Returns their number.
///
/// # Errors
/// The process has ended, or may not be changed.
fn remove(pid: i32) -> io::Result<usize> {
    let root = PathBuf::from(format!("/proc/{pid}"));
    let page_bytes = sysconf(SysconfVar::PAGE_SIZE)?.and_then(|bytes| u64::try_from(bytes).ok());
    let page_bytes = page_bytes.unwrap_or(4096);
    let page_map = File::open(root.join("pagemap"))?;
    let memory = OpenOptions::new().read(true).write(true).open(root.join("mem"))?;
    let maps = fs::read(root.join("maps"))?;
    let length = usize::try_from(page_bytes).unwrap_or_default();
    let (mut now, mut original) = (vec![0; length], vec![0; length]);
    let mut removed = 0;
    for code in maps.split(|byte| *byte == b'\n').filter_map(Code::parse) {
        let pages = code.written_pages(&page_map, page_bytes)?;
        let Some(file) = (!pages.is_empty()).then(|| open(&root.join("root"), code.path)).flatten() else {
            continue;
        };
        for page in pages {
            memory.read_exact_at(&mut now, page)?;
            if file.read_exact_at(&mut original, code.offset + (page - code.start)).is_err() {
                continue;
            }
            for at in find_traps(&now, &original) {
                memory.write_all_at(&original[at..at + TRAP.len()], page + at as u64)?;
                removed += 1;
            }
        }
    }
    Ok(removed)
}

/// Code of a file that a process has mapped for itself.
#[derive(Debug, PartialEq, Eq)]
struct Code<'a> {
    start: u64,
    end: u64,
    /// Where it begins in the file.
    offset: u64,
    /// As the process sees it.
    path: &'a Path,
}

impl<'a> Code<'a> {
    /// Reads a line of `maps`. `None`: no code, or not of a file. Source: proc_pid_maps(5).
    fn parse(line: &'a [u8]) -> Option<Self> {
        let mut words = line.splitn(6, |byte| *byte == b' ');
        let mut word = || words.next();
        let number = |text: &str| u64::from_str_radix(text, 16).ok();
        let (start, end) = str::from_utf8(word()?).ok()?.split_once('-')?;
        let is_own_code = matches!(word()?, [_, _, b'x', b'p']);
        let offset = number(str::from_utf8(word()?).ok()?)?;
        let (_device, _inode, path) = (word()?, word()?, word()?.trim_ascii_start());
        let path = Path::new(std::ffi::OsStr::from_bytes(path));
        (is_own_code && path.is_absolute()).then_some(Self {
            start: number(start)?,
            end: number(end)?,
            offset,
            path,
        })
    }

    /// The addresses of the pages that were written to.
    fn written_pages(&self, page_map: &File, page_bytes: u64) -> io::Result<Vec<u64>> {
        let addresses = (self.start..self.end).step_by(usize::try_from(page_bytes).unwrap_or(usize::MAX));
        let mut entries = vec![0; addresses.clone().count() * 8];
        page_map.read_exact_at(&mut entries, self.start / page_bytes * 8)?;
        let (entries, _) = entries.as_chunks();
        let is_written = |entry: &[u8; 8]| {
            let entry = u64::from_ne_bytes(*entry);
            entry & (PRESENT | SWAPPED) != 0 && entry & OF_FILE_OR_SHARED == 0
        };
        Ok(addresses.zip(entries).filter(|(_, entry)| is_written(entry)).map(|(page, _)| page).collect())
    }
}

/// Opens the file that a process has at that path. `None`: there is none, for example because it was removed since.
fn open(root: &Path, path: &Path) -> Option<File> {
    // Who waits at a FIFO waits for ever.
    let flags = OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let inner = path.strip_prefix("/").ok()?;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits()).open(root.join(inner)).ok()?;
    file.metadata().ok()?.is_file().then_some(file)
}

/// Where a page has trap instructions and its file has others.
fn find_traps(now: &[u8], original: &[u8]) -> Vec<usize> {
    let (mut traps, mut others) = (Vec::new(), 0);
    let pairs = now.chunks_exact(TRAP.len()).zip(original.chunks_exact(TRAP.len()));
    for (at, (is, was)) in pairs.enumerate().filter(|(_, (is, was))| is != was) {
        match is == TRAP {
            true => traps.push(at * TRAP.len()),
            false => others += is.iter().zip(was).filter(|(is, was)| is != was).count(),
        }
    }
    if others > MAX_OTHER_BYTES { Vec::new() } else { traps }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_code_are_read() {
        let line = b"55d0a000-55d0c000 r-xp 00001000 fe:00 4711       /opt/an app/x.so";
        let code = Code {
            start: 0x55d0_a000,
            end: 0x55d0_c000,
            offset: 0x1000,
            path: Path::new("/opt/an app/x.so"),
        };
        assert_eq!(Code::parse(line), Some(code));
        for other in [
            &b"55d0a000-55d0c000 r--p 00001000 fe:00 4711       /opt/x"[..],
            b"55d0a000-55d0c000 r-xs 00001000 fe:00 4711       /opt/x",
            b"7ffd1000-7ffd3000 r-xp 00000000 00:00 0          [vdso]",
            b"7f001000-7f003000 r-xp 00000000 00:00 0 ",
            b"",
        ] {
            assert_eq!(Code::parse(other), None, "{}", String::from_utf8_lossy(other));
        }
    }

    #[test]
    fn traps_are_what_the_file_does_not_have() {
        let original: Vec<u8> = (0..4096).map(|at| if at == 8 { TRAP[0] } else { b'a' }).collect();
        let mut now = original.clone();
        now[64..64 + TRAP.len()].copy_from_slice(TRAP);
        assert_eq!(find_traps(&now, &original), [64]);
        // An instruction that gdb has put aside does not hide it.
        now[128..144].fill(b'b');
        assert_eq!(find_traps(&now, &original), [64]);
        // Another file's page is left alone.
        now[2048..].fill(b'c');
        assert_eq!(find_traps(&now, &original), [0; 0]);
        assert_eq!(find_traps(&original, &original), [0; 0]);
    }

    #[test]
    fn a_trap_in_another_process_is_removed_and_it_ends_well() {
        #[expect(clippy::disallowed_methods, reason = "a process to write a trap into")]
        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let maps = loop {
            let maps = fs::read(format!("/proc/{pid}/maps")).unwrap();
            // The C library comes last.
            if String::from_utf8_lossy(&maps).contains("libc.so") {
                break maps;
            }
        };
        let code = maps.split(|byte| *byte == b'\n').find_map(Code::parse).unwrap();
        let memory = OpenOptions::new().read(true).write(true).open(format!("/proc/{pid}/mem")).unwrap();
        let at = code.start + 256;
        let mut was = vec![0; TRAP.len()];
        memory.read_exact_at(&mut was, at).unwrap();
        memory.write_all_at(TRAP, at).unwrap();
        assert_eq!(remove(pid).unwrap(), usize::from(was != TRAP));
        let mut is = vec![0; TRAP.len()];
        memory.read_exact_at(&mut is, at).unwrap();
        assert_eq!(is, was);
        assert_eq!(remove(pid).unwrap(), 0);
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success());
        assert!(remove(pid).is_err());
    }
}
