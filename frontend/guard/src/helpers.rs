//! Finds gantry's executables: below GANTRY_INSTALL_DIR, beside this library, beside the calling program, below the
//! built-in prefix, or where the tool says.
//!
//! An installation has them in `libexec/gantry` of its prefix. It finds them from its `bin` and `lib`, even after a
//! move. They run as this user. So only this user, root and the owner of this library's file may be able to change
//! them ([`gantry_shared::trust`]). A file that others can change is skipped.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use gantry_shared::storage;
use gantry_shared::trust::{Distrust, Trust};
use gantry_types::error::{Failure, Kind};
use gantry_wlm::Host;

/// The guard's file name.
pub const GUARD: &str = "gantry-guard";

/// The agent's file name.
pub const AGENT: &str = "gantry-agent";

/// The remedy when gantry's executables have different versions.
pub const ONE_VERSION: &str = "build or install all of gantry from one version";

/// The directory beside the guard that contains the guard under the names of launchers.
const LAUNCHERS: &str = "launchers";

/// The directory that contains the guard under the names of launchers, for scripts whose launch is held. Only
/// installations have it.
///
/// # Errors
/// There is no guard, or no such directory beside it; or others can change the directory or a program in it.
pub fn find_launchers(host: &dyn Host) -> Result<PathBuf, Failure> {
    let guard = find_helper(GUARD, host)?;
    let found = guard.parent().map(|dir| dir.join(LAUNCHERS)).filter(|dir| dir.is_dir());
    let found = found.ok_or_else(|| {
        let guard = guard.display();
        let message =
            format!("beside {guard} there is no directory '{LAUNCHERS}' that holds launches of scripts");
        Failure::new(Kind::Invalid, message)
            .with_hint("install gantry by 'cargo xtask install', where every node sees it")
    })?;
    let trust = trusted(own_object(host).as_deref());
    match check_launchers(&found, &trust, host) {
        Ok(()) => Ok(found),
        Err(refused) => Err(refused.to_failure(format_args!("use the launchers in {}", found.display()))),
    }
}

/// Scripts take launchers from that directory by name, so every file in it is checked.
fn check_launchers(dir: &Path, trust: &Trust, host: &dyn Host) -> Result<(), Distrust> {
    trust.check_own_dir(dir)?;
    let names = host.list(dir).unwrap_or_default();
    names.iter().try_for_each(|name| trust.check_program(&dir.join(name)))
}

/// The directory below a prefix.
const LIBEXEC: &str = "libexec/gantry";

/// The Python package that has this library.
const PACKAGE: &str = "gantry";

/// The prefix of this build, from GANTRY_PREFIX.
const BUILT_IN_PREFIX: Option<&str> = option_env!("GANTRY_PREFIX");

/// Directories that the tool has named.
static TOLD: OnceLock<Vec<PathBuf>> = OnceLock::new();

/// Looks for executables in these directories of this process's, too, if they are nowhere else. The first call counts.
pub fn look_also_in(dirs: Vec<PathBuf>) {
    TOLD.get_or_init(|| dirs);
}

/// Path of the executable `name`.
///
/// # Errors
/// Only programs that others can change were found ([`Kind::NoAccess`]), or none ([`Kind::NotFound`]). The hint lists
/// the places.
pub fn find_helper(name: &str, host: &dyn Host) -> Result<PathBuf, Failure> {
    let caller = host.read_link(Path::new("/proc/self/exe")).ok();
    let installed = [storage::GANTRY_INSTALL_DIR, storage::CTI_INSTALL_DIR].iter().find_map(|v| host.env(v));
    let object = own_object(host);
    let homes = [object.as_deref(), caller.as_deref()];
    let told = TOLD.get().map_or(&[][..], Vec::as_slice);
    let tried = build_candidates(name, &homes, installed.as_deref().map(Path::new), told);
    let trust = trusted(object.as_deref());
    choose(name, &tried, |path| trust.check_program(path))
}

/// Root, this user, and the owner of this library's file, whose code runs here already.
fn trusted(object: Option<&Path>) -> Trust {
    let owner = object.and_then(|object| std::fs::metadata(object).ok()).map(|meta| meta.uid());
    owner.into_iter().fold(Trust::of_process(), Trust::and_owner)
}

/// The first candidate that `check` trusts.
fn choose(
    name: &str,
    tried: &[PathBuf],
    check: impl Fn(&Path) -> Result<(), Distrust>,
) -> Result<PathBuf, Failure> {
    let mut refused = Vec::new();
    for path in tried {
        match check(path) {
            Ok(()) => {
                for refused in &refused {
                    tracing::warn!(used = %path.display(), "skipped a {name} that other users can change: {refused}");
                }
                return Ok(path.clone());
            }
            Err(distrust) if distrust.is_missing() => {}
            Err(distrust) => refused.push(distrust),
        }
    }
    Err(to_failure(name, tried, &refused))
}

fn to_failure(name: &str, tried: &[PathBuf], refused: &[Distrust]) -> Failure {
    let join = |texts: &mut dyn Iterator<Item = String>| texts.collect::<Vec<_>>().join("; ");
    if refused.is_empty() {
        let tried = join(&mut tried.iter().map(|path| path.display().to_string()));
        let hint = format!("looked for {tried}; set GANTRY_INSTALL_DIR to where gantry is installed");
        return Failure::new(Kind::NotFound, format!("{name} was not found")).with_hint(hint);
    }
    let reasons = join(&mut refused.iter().map(Distrust::to_string));
    let remedies = join(&mut refused.iter().map(Distrust::hint));
    Failure::new(Kind::NoAccess, format!("{name} was not found where only you can change it: {reasons}"))
        .with_hint(format!("{remedies}; or set GANTRY_INSTALL_DIR to where gantry is installed"))
}

/// The file that contains this code: the calling executable, or a shared library.
fn own_object(host: &dyn Host) -> Option<PathBuf> {
    let here = (own_object as fn(&dyn Host) -> Option<PathBuf>) as usize;
    parse_object(&host.read(Path::new("/proc/self/maps")).ok()?, here)
}

/// The file at an address, from the text of `/proc/PID/maps`. Source: proc_pid_maps(5).
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

fn build_candidates(
    name: &str,
    homes: &[Option<&Path>],
    installed: Option<&Path>,
    told: &[PathBuf],
) -> Vec<PathBuf> {
    let mut candidates = Vec::new();
    let below =
        |prefix: &Path| [prefix.join(LIBEXEC), prefix.join("bin"), prefix.to_owned()].map(|it| it.join(name));
    candidates.extend(installed.into_iter().flat_map(below));
    for folder in homes.iter().flatten().filter_map(|home| home.parent()) {
        candidates.push(folder.join(name));
        // Examples and tests are one folder deeper than their helpers in cargo's target directory.
        if let (Some("deps" | "examples"), Some(above)) =
            (folder.file_name().and_then(|f| f.to_str()), folder.parent())
        {
            candidates.push(above.join(name));
        }
        // From `bin`, `lib` and `lib/MACHINE` of a prefix.
        let above = folder.ancestors().skip(1).take(2);
        candidates.extend(above.map(|prefix| prefix.join(LIBEXEC).join(name)));
        candidates.extend(prefixes_of_package(folder).flat_map(below));
    }
    candidates.extend(BUILT_IN_PREFIX.map(Path::new).into_iter().flat_map(below));
    candidates.extend(told.iter().map(|dir| dir.join(name)));
    let mut seen = std::collections::HashSet::new();
    candidates.retain(|path| seen.insert(path.clone()));
    candidates
}

/// Where `pip install` puts the programs of a Python package, whose folder this is: in `bin` of the prefix above
/// `lib/python3.N/site-packages`, or beside the package with `--target`.
fn prefixes_of_package(folder: &Path) -> impl Iterator<Item = &Path> {
    let is_package = folder.file_name().is_some_and(|name| name == PACKAGE);
    folder.ancestors().skip(1).take(4).step_by(3).filter(move |_| is_package)
}

#[cfg(test)]
mod tests {
    use gantry_shared::trust::Why;

    use super::*;

    fn candidates(home: &str, installed: Option<&str>) -> Vec<String> {
        let tried = build_candidates(AGENT, &[Some(Path::new(home))], installed.map(Path::new), &[]);
        tried.iter().map(|path| path.to_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn where_it_is_installed_then_beside_the_library_then_beside_the_caller() {
        let found = candidates("/b/target/debug/deps/x-1", Some("/opt/g"));
        let installed =
            ["/opt/g/libexec/gantry/gantry-agent", "/opt/g/bin/gantry-agent", "/opt/g/gantry-agent"];
        assert_eq!(found[..3], installed);
        assert_eq!(found[3..5], ["/b/target/debug/deps/gantry-agent", "/b/target/debug/gantry-agent"]);
        let homes = [Some(Path::new("/p/lib/libgantry.so")), Some(Path::new("/home/me/bin/tool"))];
        let found = build_candidates(AGENT, &homes, None, &["/told".into(), "/p/lib".into()]);
        let at = |path: &str| found.iter().position(|it| it == Path::new(path)).unwrap();
        assert!(at("/p/libexec/gantry/gantry-agent") < at("/home/me/bin/gantry-agent"), "{found:?}");
        assert_eq!((at("/p/lib/gantry-agent"), at("/told/gantry-agent")), (0, found.len() - 1));
    }

    #[test]
    fn launchers_that_others_can_change_are_refused() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let folder = tempfile::tempdir().unwrap();
        let (guard, dir) = (folder.path().join(GUARD), folder.path().join(LAUNCHERS));
        std::fs::write(&guard, "").unwrap();
        std::fs::create_dir(&dir).unwrap();
        symlink("../gantry-guard", dir.join("launcher")).unwrap();
        let set =
            |path: &Path, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
        let check = |guard_mode, mode| {
            set(&guard, guard_mode);
            set(&dir, mode);
            let checked = check_launchers(&dir, &Trust::of_process(), &gantry_wlm::host::Machine);
            checked.map_err(|refused| refused.why)
        };
        assert_eq!(check(0o755, 0o755), Ok(()));
        assert_eq!(check(0o757, 0o755), Err(Why::OthersWrite(0o757)));
        assert_eq!(check(0o755, 0o757), Err(Why::OthersWrite(0o757)));
        assert_eq!(check(0o755, 0o1777), Err(Why::Planted));
    }

    #[test]
    fn one_that_others_can_change_is_passed_over_and_named() {
        let paths = ["/none", "/tmp/libexec/gantry/gantry-agent", "/good"].map(PathBuf::from);
        let check = |path: &Path| match path.to_str() {
            Some("/good") => Ok(()),
            Some("/none") => Err(Distrust { path: path.into(), component: path.into(), why: Why::Missing }),
            _ => {
                let component = "/tmp/libexec".into();
                Err(Distrust { path: path.into(), component, why: Why::Owner(1001) })
            }
        };
        assert_eq!(choose(AGENT, &paths, check).unwrap(), Path::new("/good"));
        let error = choose(AGENT, &paths[..2], check).unwrap_err();
        let text = error.to_string();
        assert_eq!(
            text,
            "gantry-agent was not found where only you can change it: /tmp/libexec/gantry/gantry-agent: /tmp/libexec belongs to user 1001"
        );
        let hint = error.hint().unwrap();
        assert!(hint.contains("'chown' /tmp/libexec") && hint.contains("GANTRY_INSTALL_DIR"), "{hint}");
        assert_eq!(error.kind(), Kind::NoAccess);
        assert!(choose(AGENT, &paths[..1], check).unwrap_err().to_string().ends_with("was not found"));
    }

    #[test]
    fn from_a_library_or_program_of_a_prefix() {
        for home in ["/p/bin/gantry", "/p/lib/libx.so.2", "/p/lib/x86_64-linux-gnu/libx.so.2"] {
            let found = candidates(home, None);
            assert!(found.iter().any(|path| path == "/p/libexec/gantry/gantry-agent"), "{home}: {found:?}");
        }
    }

    #[test]
    fn from_a_python_package() {
        let check = |home: &str, expected: &str| {
            let found = candidates(home, None);
            assert!(found.iter().any(|path| path == expected), "{home}: {found:?}");
        };
        let module = "site-packages/gantry/_native.abi3.so";
        check(&format!("/venv/lib/python3.11/{module}"), "/venv/bin/gantry-agent");
        check("/target/gantry/_native.abi3.so", "/target/bin/gantry-agent");
        assert!(!candidates("/home/me/tool", None).contains(&"/home/bin/gantry-agent".to_owned()));
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
