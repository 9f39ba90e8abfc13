//! Finds processes that have loaded an MPI library which does not speak PMI.
//!
//! Some programs load their MPI library while they run, as `mpi4py` does. Before the launch nothing shows that.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use gantry_shared::foreign_mpi::{ForeignMpi, find_foreign_mpi};

/// The most processes of a rank that are looked at. Wrappers start one program.
const MOST_PROCESSES: usize = 8;

/// Prefixes of libraries that launchers have. What a launcher starts is served by it.
const LAUNCHERS: [&[u8]; 2] = [b"libopen-rte.so", b"libprrte.so"];

/// The foreign library of a process, or of one that it has started.
pub(super) fn find_in_tree(pid: i32) -> Option<(String, &'static ForeignMpi)> {
    let mut next = vec![pid];
    for _ in 0..MOST_PROCESSES {
        let pid = next.pop()?;
        // It may have ended, and then it has no libraries.
        let maps = std::fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
        let names = parse_libraries(&maps);
        if let Some((library, whose)) = find_foreign_mpi(&names) {
            return Some((library.to_string_lossy().into_owned(), whose));
        }
        let is_launcher =
            names.iter().any(|name| LAUNCHERS.iter().any(|begin| name.as_bytes().starts_with(begin)));
        if !is_launcher {
            let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
            next.extend(
                children.unwrap_or_default().split_whitespace().filter_map(|it| it.parse::<i32>().ok()),
            );
        }
    }
    None
}

/// The file names of the libraries in `/proc/PID/maps`.
fn parse_libraries(maps: &[u8]) -> Vec<&OsStr> {
    let names = maps.split(|byte| *byte == b'\n').filter_map(|line| {
        let at = line.iter().rposition(|byte| *byte == b'/')?;
        Some(line.get(at + 1..)?).filter(|name| name.starts_with(b"lib"))
    });
    let names: BTreeSet<&[u8]> = names.collect();
    names.into_iter().map(OsStr::from_bytes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_read_from_maps_once() {
        let maps = b"55-56 r--p 00000000 fe:00 12   /usr/bin/python3.11\n\
            7f00-7f01 r--p 00000000 fe:00 13   /usr/lib/libmpi.so.40.30.4\n\
            7f01-7f02 r-xp 00001000 fe:00 13   /usr/lib/libmpi.so.40.30.4\n\
            7f03-7f04 rw-p 00000000 00:00 0\n\
            7f05-7f06 rw-p 00000000 00:00 0    [stack]\n";
        assert_eq!(parse_libraries(maps), ["libmpi.so.40.30.4"]);
    }

    #[test]
    fn a_process_without_mpi_has_none() {
        assert_eq!(find_in_tree(i32::try_from(std::process::id()).unwrap()), None);
        assert_eq!(find_in_tree(i32::MAX), None);
    }
}
