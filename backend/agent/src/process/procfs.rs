//! What `/proc` says of a process. The parsers are pure; the readers only read (proc(5)).

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::str::FromStr;

/// The fields of `/proc/PID/stat` that the agent uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) pid: i32,
    /// `R`, `S`, `D`, `T` (stopped), `t` (stopped by its tracer), `Z` (ended, not collected), ...
    pub(crate) state: char,
    pub(crate) parent: i32,
    pub(crate) group: i32,
    /// Clock ticks since boot. Together with the pid it identifies a process.
    pub(crate) start_time: u64,
    /// The wait status of a process in state `Z`; 0 for readers without permission.
    pub(crate) exit_status: Option<i32>,
}

/// The fields of `/proc/PID/status` that the agent uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Status {
    /// The process that this thread belongs to; its own pid for a process.
    pub(crate) thread_group: i32,
    /// The thread that traces it; 0 for none.
    pub(crate) tracer: i32,
    pub(crate) real_uid: u32,
    pub(crate) effective_uid: u32,
}

/// Width of an address of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Width {
    /// 4 bytes.
    Bits32,
    /// 8 bytes.
    Bits64,
}

/// Where the kernel put the parts of a new program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Auxv {
    /// Base address of the loader; `None` for a static program.
    pub(crate) loader_base: Option<u64>,
    /// The program's own entry.
    pub(crate) entry: u64,
}

/// Where the name in `/proc/PID/stat` has ended: a pid and a kernel thread's name of 64 bytes stand before that.
const NAME_ENDS_WITHIN: usize = 96;

/// Splits the fields of `/proc/PID/stat` after the name, from field 3 of proc(5) on. The name may contain any byte,
/// also brackets and newlines.
fn split_stat(bytes: &[u8]) -> Option<impl Iterator<Item = &[u8]>> {
    let beginning = bytes.get(..NAME_ENDS_WITHIN).unwrap_or(bytes);
    let close = beginning.iter().rposition(|&byte| byte == b')')?;
    // Between the fields is one blank, and behind the last a newline.
    Some(bytes.get(close + 2..)?.trim_ascii_end().split(|&byte| byte == b' '))
}

fn number<T: FromStr>(field: &[u8]) -> Option<T> {
    str::from_utf8(field).ok()?.parse().ok()
}

/// Parses `/proc/PID/stat`.
pub(crate) fn parse_stat(bytes: &[u8]) -> Option<Stat> {
    let open = bytes.iter().position(|&byte| byte == b'(')?;
    let mut fields = split_stat(bytes)?;
    Some(Stat {
        pid: number(bytes.get(..open)?.trim_ascii())?,
        state: fields.next()?.first().copied()?.into(),
        parent: number(fields.next()?)?,
        group: number(fields.next()?)?,
        // The fields 22 and 52.
        start_time: number(fields.nth(16)?)?,
        exit_status: fields.nth(29).and_then(number),
    })
}

/// The value of a field in `/proc/PID/status`.
fn find_in_status<'a>(bytes: &'a [u8], name: &str) -> Option<&'a str> {
    let mut lines = bytes.split(|&byte| byte == b'\n');
    let value = lines.find_map(|line| line.strip_prefix(name.as_bytes())?.strip_prefix(b":"))?;
    str::from_utf8(value).ok().map(str::trim)
}

/// Parses `/proc/PID/status`.
pub(crate) fn parse_status(bytes: &[u8]) -> Option<Status> {
    let mut uids = find_in_status(bytes, "Uid")?.split_ascii_whitespace();
    Some(Status {
        thread_group: find_in_status(bytes, "Tgid")?.parse().ok()?,
        tracer: find_in_status(bytes, "TracerPid")?.parse().ok()?,
        real_uid: uids.next()?.parse().ok()?,
        effective_uid: uids.next()?.parse().ok()?,
    })
}

/// Parses `/proc/PID/auxv`.
pub(crate) fn parse_auxv(bytes: &[u8], width: Width) -> Option<Auxv> {
    const AT_BASE: u64 = 7;
    const AT_ENTRY: u64 = 9;
    let size = match width {
        Width::Bits32 => 4,
        Width::Bits64 => 8,
    };
    let (mut base, mut entry) = (None, None);
    for pair in bytes.chunks_exact(2 * size) {
        let (key, value) = pair.split_at(size);
        match (word(key)?, word(value)?) {
            (0, _) => break,
            (AT_BASE, value) => base = Some(value),
            (AT_ENTRY, value) => entry = Some(value),
            _ => {}
        }
    }
    Some(Auxv { loader_base: base.filter(|&base| base != 0), entry: entry? })
}

/// Parses the program counter out of `/proc/PID/syscall`; `None` for a process that runs.
pub(crate) fn parse_syscall_pc(text: &str) -> Option<u64> {
    let mut fields = text.split_ascii_whitespace().rev();
    let counter = fields.next()?.strip_prefix("0x")?;
    fields.next()?;
    u64::from_str_radix(counter, 16).ok()
}

/// Reads `/proc/PID/stat`.
///
/// # Errors
/// Not found when there is no such process.
pub(crate) fn read_stat(pid: i32) -> io::Result<Stat> {
    let bytes = read_small(format!("/proc/{pid}/stat")).map_err(gone)?;
    parse_stat(&bytes).ok_or_else(|| malformed(pid, "stat"))
}

/// As [`read_stat`], in a search of all processes. `None` for a process that has ended, or is hidden from this user.
///
/// # Errors
/// It cannot be looked at: no descriptor is left, say.
pub(crate) fn find_stat(pid: i32) -> io::Result<Option<Stat>> {
    match read_stat(pid) {
        Ok(stat) => Ok(Some(stat)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Where the process's initial environment is: its first address, and the one after its last.
///
/// # Errors
/// Not found when there is no such process; permission denied for one that may not be traced.
pub(crate) fn read_environment_range(pid: i32) -> io::Result<(u64, u64)> {
    read_range(pid, 50)
}

/// The same of the process's arguments.
///
/// # Errors
/// As [`read_environment_range`].
pub(crate) fn read_arguments_range(pid: i32) -> io::Result<(u64, u64)> {
    read_range(pid, 48)
}

/// The range of addresses in the field of that number and in the next one.
fn read_range(pid: i32, field: usize) -> io::Result<(u64, u64)> {
    let bytes = read_small(format!("/proc/{pid}/stat")).map_err(gone)?;
    let fields = split_stat(&bytes).ok_or_else(|| malformed(pid, "stat"))?;
    let mut addresses = fields.skip(field - 3).map(number::<u64>);
    match (addresses.next().flatten(), addresses.next().flatten()) {
        // The kernel shows zeros to readers without permission.
        (Some(start @ 1..), Some(end)) => Ok((start, end)),
        (Some(0), Some(_)) => Err(io::ErrorKind::PermissionDenied.into()),
        _ => Err(malformed(pid, "stat")),
    }
}

/// Reads `/proc/PID/status`.
///
/// # Errors
/// Not found when there is no such process.
pub(crate) fn read_status(pid: i32) -> io::Result<Status> {
    let bytes = read_small(format!("/proc/{pid}/status")).map_err(gone)?;
    parse_status(&bytes).ok_or_else(|| malformed(pid, "status"))
}

/// Reads how this process is confined: 0 not at all, 1 strictly, 2 by a filter. `None` on kernels without seccomp.
pub(crate) fn read_own_seccomp() -> Option<u32> {
    find_in_status(&read_small("/proc/self/status".to_owned()).ok()?, "Seccomp")?.parse().ok()
}

/// Reads `/proc/PID/auxv`.
///
/// # Errors
/// Permission denied for a program that its user may run but not read.
pub(crate) fn read_auxv(pid: i32, width: Width) -> io::Result<Auxv> {
    let bytes = std::fs::read(format!("/proc/{pid}/auxv")).map_err(gone)?;
    parse_auxv(&bytes, width).ok_or_else(|| malformed(pid, "auxv"))
}

/// The program counter of a stopped process; `None` if the process runs.
///
/// # Errors
/// Permission denied, or not found when the kernel does not have the file.
pub(crate) fn read_syscall_pc(pid: i32) -> io::Result<Option<u64>> {
    Ok(parse_syscall_pc(&std::fs::read_to_string(format!("/proc/{pid}/syscall"))?))
}

/// The program that the process runs. ` (deleted)` is part of it when the file is gone.
///
/// # Errors
/// Permission denied for another user's process; not found for one that has ended.
pub(crate) fn read_exe(pid: i32) -> io::Result<PathBuf> {
    std::fs::read_link(format!("/proc/{pid}/exe"))
}

/// The command line of the process, without empty words.
///
/// # Errors
/// As [`read_exe`].
pub(crate) fn read_words(pid: i32) -> io::Result<Vec<PathBuf>> {
    let bytes = std::fs::read(format!("/proc/{pid}/cmdline"))?;
    let words = bytes.split(|byte| *byte == 0).filter(|word| !word.is_empty());
    Ok(words.map(|word| PathBuf::from(OsStr::from_bytes(word))).collect())
}

/// Every process that `/proc` shows now, as (pid, parent).
///
/// # Errors
/// When `/proc` cannot be read.
pub(crate) fn read_parents() -> io::Result<Vec<(i32, i32)>> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        // A process may end while we look.
        if let Some(stat) = find_stat(pid)? {
            all.push((pid, stat.parent));
        }
    }
    Ok(all)
}

/// All descendants of `ancestor` now, parents before their children, without `ancestor`. A process whose parent has
/// ended belongs to another ancestor already.
///
/// # Errors
/// When `/proc` cannot be read.
#[cfg(test)]
pub(crate) fn descendants(ancestor: i32) -> io::Result<Vec<i32>> {
    Ok(descendants_in(&read_parents()?, ancestor))
}

#[cfg(test)]
fn descendants_in(parents: &[(i32, i32)], ancestor: i32) -> Vec<i32> {
    let mut found = vec![ancestor];
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        // The pairs were read at different moments, so they may form a circle.
        let children = parents.iter().filter(|(pid, of)| *of == parent && !found.contains(pid));
        let children: Vec<i32> = children.map(|(pid, _)| *pid).collect();
        found.extend(children);
        next += 1;
    }
    found.remove(0);
    found
}

/// The children of our own main thread. The kernel gives a subreaper's orphans to its main thread.
///
/// # Errors
/// Not found on kernels built without `CONFIG_PROC_CHILDREN`.
pub(crate) fn read_own_children() -> io::Result<Vec<i32>> {
    let own = std::process::id();
    let text = read_small(format!("/proc/self/task/{own}/children"))?;
    let text = String::from_utf8_lossy(&text);
    Ok(text.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect())
}

/// Reads a small file. The kernel does not report its length, and without a buffer `read` would take many small pieces.
fn read_small(path: String) -> io::Result<Vec<u8>> {
    const USUAL_BYTES: usize = 4096;
    let mut bytes = Vec::with_capacity(USUAL_BYTES);
    File::open(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reading a process that ends during the read fails with ESRCH; one that has ended, with ENOENT. Maps both to one of
/// them.
fn gone(error: io::Error) -> io::Error {
    if error.raw_os_error() == Some(libc::ESRCH) { io::ErrorKind::NotFound.into() } else { error }
}

fn word(bytes: &[u8]) -> Option<u64> {
    match bytes.len() {
        4 => Some(u32::from_ne_bytes(bytes.try_into().ok()?).into()),
        8 => Some(u64::from_ne_bytes(bytes.try_into().ok()?)),
        _ => None,
    }
}

fn malformed(pid: i32, file: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("/proc/{pid}/{file} is not in the format of proc(5)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAIL: &str = "4194560 99 0 0 0 0 0 0 0 20 0 1 0 12345 2510848 200 18446744073709551615 \
        1 1 0 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0 0 0 0 0 0 0 0 256";

    #[track_caller]
    fn check_stat(name: &str, expected: Option<(char, i32, u64)>) {
        let line = format!("42 ({name}) T 7 42 41 0 -1 {TAIL}\n");
        let found = parse_stat(line.as_bytes());
        assert_eq!(found.map(|stat| (stat.state, stat.parent, stat.start_time)), expected, "{name:?}");
    }

    #[test]
    fn stat_is_read_whatever_the_name_is() {
        for name in ["sh", "a b", "x) R 1 2 (y", ")", "", "new\nline", "(((", &"w)".repeat(32)] {
            check_stat(name, Some(('T', 7, 12345)));
        }
        let line = format!("42 (sh) Z 7 42 41 0 -1 {TAIL}\n");
        let stat = parse_stat(line.as_bytes()).unwrap();
        assert_eq!((stat.pid, stat.group, stat.exit_status), (42, 42, Some(256)));
        assert_eq!(parse_stat(b"42 (sh"), None);
        assert_eq!(parse_stat(b"42 (sh) T 7"), None);
        assert_eq!(parse_stat(b""), None);
    }

    #[test]
    fn status_gives_tracer_and_users() {
        let text = b"Name:\tx\nTgid:\t9\nPid:\t9\nTracerPid:\t5\nUid:\t1000\t1001\t1\t1\nSeccomp:\t2\n";
        let expected = Status { thread_group: 9, tracer: 5, real_uid: 1000, effective_uid: 1001 };
        assert_eq!(parse_status(text), Some(expected));
        assert_eq!(find_in_status(text, "Seccomp"), Some("2"));
        assert_eq!(parse_status(b"Name:\tx\n"), None);
    }

    #[track_caller]
    fn check_auxv(pairs: &[(u64, u64)], expected: Option<Auxv>) {
        let wide: Vec<u8> =
            pairs.iter().flat_map(|(key, value)| [key.to_ne_bytes(), value.to_ne_bytes()].concat()).collect();
        let narrow: Vec<u8> = pairs
            .iter()
            .flat_map(|&(key, value)| {
                [u32::try_from(key).unwrap().to_ne_bytes(), u32::try_from(value).unwrap().to_ne_bytes()]
                    .concat()
            })
            .collect();
        assert_eq!(parse_auxv(&wide, Width::Bits64), expected);
        assert_eq!(parse_auxv(&narrow, Width::Bits32), expected);
    }

    #[test]
    fn auxv_tells_a_loader_from_none() {
        check_auxv(
            &[(6, 4096), (7, 0x7000), (9, 0x400), (0, 0)],
            Some(Auxv { loader_base: Some(0x7000), entry: 0x400 }),
        );
        check_auxv(&[(7, 0), (9, 0x400), (0, 0)], Some(Auxv { loader_base: None, entry: 0x400 }));
        check_auxv(&[(7, 0), (0, 0), (9, 0x400)], None);
        check_auxv(&[], None);
    }

    #[track_caller]
    fn check_pc(text: &str, expected: Option<u64>) {
        assert_eq!(parse_syscall_pc(text), expected, "{text:?}");
    }

    #[test]
    fn syscall_ends_with_the_program_counter() {
        check_pc("59 0x1 0x2 0x3 0x0 0x0 0x0 0x7ffd0 0x7f12\n", Some(0x7f12));
        check_pc("-1 0x7ffd0 0x7f12\n", Some(0x7f12));
        check_pc("running\n", None);
        check_pc("", None);
    }

    #[test]
    fn descendants_are_found_at_every_depth() {
        let parents = [(1, 0), (5, 1), (9, 5), (3, 9), (4, 5), (8, 1)];
        assert_eq!(descendants_in(&parents, 5), [9, 4, 3]);
        assert_eq!(descendants_in(&parents, 8), Vec::<i32>::new());
        assert_eq!(descendants_in(&[(2, 3), (3, 2)], 2), [3]);
    }

    #[test]
    fn our_own_process_can_be_read() {
        let own = std::process::id().cast_signed();
        let stat = read_stat(own).unwrap();
        assert_eq!((stat.pid, stat.parent.cast_unsigned()), (own, std::os::unix::process::parent_id()));
        assert_eq!(read_status(own).unwrap().thread_group, own);
        assert_eq!(read_exe(own).unwrap(), std::env::current_exe().unwrap());
        assert!(read_parents().unwrap().contains(&(own, stat.parent)));
        assert_eq!(read_stat(i32::MAX).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
