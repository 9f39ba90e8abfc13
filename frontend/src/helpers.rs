//! Finds gantry's own executables: where the caller is installed, where this library is, below GANTRY_INSTALL_DIR, below the prefix that was built in.
//!
//! An installation has them in `libexec/gantry` of its prefix, and finds them from its `bin` and `lib` wherever it was moved to.

use std::path::{Path, PathBuf};

use gantry_shared::storage;
use gantry_wlm::Host;

use crate::error::{Error, Result};

/// The guard's file name.
pub const GUARD: &str = "gantry-guard";

/// The agent's file name.
pub const AGENT: &str = "gantry-agent";

/// The directory, beside the guard, in which the guard has the names of launchers.
const LAUNCHERS: &str = "launchers";

/// The directory in which the guard has the names of launchers, for scripts whose launch is held. Only installations have it.
///
/// # Errors
/// [`Error::HelperMissing`] when there is no guard; there is no such directory beside it.
pub fn find_launchers(host: &dyn Host) -> Result<PathBuf> {
    let guard = find_helper(GUARD, host)?;
    let found = guard.parent().map(|dir| dir.join(LAUNCHERS)).filter(|dir| dir.is_dir());
    found.ok_or_else(|| Error::Invalid {
        message: format!(
            "beside {} there is no directory '{LAUNCHERS}' that holds launches of scripts",
            guard.display()
        ),
        hint: Some("install gantry by 'cargo xtask install', where every node sees it".to_owned()),
    })
}

/// Where they are below a prefix.
const LIBEXEC: &str = "libexec/gantry";

/// The prefix that this library was built for, if one was given by GANTRY_PREFIX at build time.
const BUILT_IN_PREFIX: Option<&str> = option_env!("GANTRY_PREFIX");

/// Path of the executable `name`.
///
/// # Errors
/// [`Error::HelperMissing`] with every place that was tried.
pub fn find_helper(name: &'static str, host: &dyn Host) -> Result<PathBuf> {
    let caller = host.read_link(Path::new("/proc/self/exe")).ok();
    let installed = [storage::GANTRY_INSTALL_DIR, storage::CTI_INSTALL_DIR].iter().find_map(|v| host.env(v));
    let object = own_object(host);
    let homes = [caller.as_deref(), object.as_deref()];
    let tried = build_candidates(name, &homes, installed.as_deref().map(Path::new));
    match tried.iter().find(|path| path.is_file()) {
        Some(path) => Ok(path.clone()),
        None => Err(Error::HelperMissing { name, tried }),
    }
}

/// The file that this very code was loaded from: the caller's executable, or a shared library.
fn own_object(host: &dyn Host) -> Option<PathBuf> {
    let here = (own_object as fn(&dyn Host) -> Option<PathBuf>) as usize;
    parse_object(&host.read(Path::new("/proc/self/maps")).ok()?, here)
}

/// The file behind an address, in a text as `/proc/PID/maps` has it. Source: proc_pid_maps(5).
fn parse_object(maps: &[u8], address: usize) -> Option<PathBuf> {
    let maps = String::from_utf8_lossy(maps);
    let line = maps.lines().find(|line| {
        let range = line.split_whitespace().next().and_then(|range| range.split_once('-'));
        let bound = |text| usize::from_str_radix(text, 16).ok();
        let range = range.and_then(|(from, to)| Some(bound(from)?..bound(to)?));
        range.is_some_and(|range| range.contains(&address))
    })?;
    line.find('/').map(|at| PathBuf::from(&line[at..]))
}

fn build_candidates(name: &str, homes: &[Option<&Path>], installed: Option<&Path>) -> Vec<PathBuf> {
    let mut candidates = Vec::new();
    for folder in homes.iter().flatten().filter_map(|home| home.parent()) {
        candidates.push(folder.join(name));
        // Programs that cargo builds as examples and tests lie one folder deeper than their helpers.
        if let (Some("deps" | "examples"), Some(above)) =
            (folder.file_name().and_then(|f| f.to_str()), folder.parent())
        {
            candidates.push(above.join(name));
        }
    }
    // From `bin`, `lib` and `lib/MACHINE` of a prefix.
    for folder in homes.iter().flatten().filter_map(|home| home.parent()) {
        let above = folder.ancestors().skip(1).take(2);
        candidates.extend(above.map(|prefix| prefix.join(LIBEXEC).join(name)));
    }
    for prefix in installed.into_iter().chain(BUILT_IN_PREFIX.map(Path::new)) {
        candidates.push(prefix.join(LIBEXEC).join(name));
        candidates.push(prefix.join("bin").join(name));
        candidates.push(prefix.join(name));
    }
    candidates
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates(home: &str, installed: Option<&str>) -> Vec<String> {
        let tried = build_candidates(AGENT, &[Some(Path::new(home))], installed.map(Path::new));
        tried.iter().map(|path| path.to_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn beside_the_caller_then_where_it_is_installed() {
        let found = candidates("/b/target/debug/deps/x-1", Some("/opt/g"));
        assert_eq!(found[..2], ["/b/target/debug/deps/gantry-agent", "/b/target/debug/gantry-agent"]);
        let expected =
            ["/opt/g/libexec/gantry/gantry-agent", "/opt/g/bin/gantry-agent", "/opt/g/gantry-agent"];
        let at = found.iter().position(|path| path == expected[0]).unwrap();
        assert_eq!(found[at..at + 3], expected);
    }

    #[test]
    fn from_a_library_or_program_of_a_prefix() {
        for home in ["/p/bin/gantry", "/p/lib/libx.so.2", "/p/lib/x86_64-linux-gnu/libx.so.2"] {
            let found = candidates(home, None);
            assert!(found.iter().any(|path| path == "/p/libexec/gantry/gantry-agent"), "{home}: {found:?}");
        }
    }

    #[test]
    fn the_file_behind_an_address() {
        let maps = b"1000-2000 r-xp 00000000 08:01 7  /usr/bin/tool\n2000-3000 rw-p 0 00:00 0 [heap]\n\
            7f00-8f00 r-xp 0 08:01 9                  /p/lib/lib with blanks.so\n";
        let check = |address, expected: Option<&str>| {
            assert_eq!(parse_object(maps, address), expected.map(PathBuf::from), "{address:x}");
        };
        check(0x1fff, Some("/usr/bin/tool"));
        check(0x2000, None);
        check(0x7f00, Some("/p/lib/lib with blanks.so"));
        check(0x8f00, None);
        assert_eq!(own_object(&gantry_wlm::host::Machine), std::env::current_exe().ok());
    }
}
