//! The place of each installed file.

use std::ffi::OsStr;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};
use std::{fs, io};

use crate::build::{build, linker, root, run};
use crate::library::LIBRARIES;
use crate::{Install, Result, pkg_config};

/// Headers, by folder.
const HEADERS: [(&str, &[&str]); 4] = [
    ("shared/include", &["common_tools_shared.h", "common_tools_version.h", "gantry_shared.h"]),
    ("frontend/capi/include", &["common_tools_fe.h", "gantry.h"]),
    ("backend/capi/include", &["common_tools_be.h", "gantry_be.h"]),
    ("wlm/capi/include", &["tm.h"]),
];

/// Programs, by the folder that they are put in.
const PROGRAMS: [(&str, &[&str]); 2] = [
    ("bin", &["gantry", "gantry-mpir"]),
    ("libexec/gantry", &["gantry-guard", "gantry-agent", "gantry-stackd", "gantry-gdbd"]),
];

/// Users' scripts run the agent by its name: `gantry-agent rendezvous`.
const AGENT_IN_PATH: (&str, &str, &str) = ("bin", "gantry-agent", "../libexec/gantry/gantry-agent");

/// A program that needs OpenSSL, so it is built only on request. It is next to the agent, where gantry looks for it.
const ON_REQUEST: (&str, &str) = ("libexec/gantry", "gantry-ssh");

/// The crate and the feature of that program.
pub(crate) const ITS_FEATURE: (&str, &str) = ("gantry-wlm", "libssh2");

/// Launchers' names under which scripts find the guard, so that their launches are held.
const LAUNCHERS: (&str, [&str; 1]) = ("libexec/gantry/launchers", ["srun"]);

/// Completion scripts: the shell, and where it looks for them.
const COMPLETIONS: [(&str, &str, &str); 3] = [
    ("bash", "share/bash-completion/completions", "gantry"),
    ("zsh", "share/zsh/site-functions", "_gantry"),
    ("fish", "share/fish/vendor_completions.d", "gantry.fish"),
];

/// The notices of the crates that are linked.
pub(crate) const THIRD_PARTY: &str = "THIRD-PARTY.txt";

/// Licences, and the folder that they are put in.
const LICENCES: (&str, [&str; 3]) = ("share/doc/gantry", ["LICENSE-MIT", "LICENSE-APACHE", THIRD_PARTY]);

const FOLDER: u32 = 0o755;
const PROGRAM: u32 = 0o755;
const FILE: u32 = 0o644;

/// Builds and installs. Returns the folder with everything.
///
/// # Errors
/// A path of the request is not valid, the error of the compiler, or a place cannot be written.
pub(crate) fn install(asked: &Install) -> Result<PathBuf> {
    let Places { to, libdir } = Places::new(&asked.prefix, &asked.libdir, asked.destdir.as_deref())?;
    let building = &asked.building;
    let built = build(building, building.with_ssh.then_some(ITS_FEATURE))?;
    for (folder, names) in PROGRAMS {
        for name in names {
            put(&to.join(folder), name, PROGRAM, |path| copy(&built.join(name), path))?;
        }
    }
    put_on_request(building.with_ssh, &built, &to)?;
    let (folder, name, target) = AGENT_IN_PATH;
    put_link(&to.join(folder), name, target)?;
    let (folder, names) = LAUNCHERS;
    for name in names {
        put_link(&to.join(folder), name, "../gantry-guard")?;
    }
    let libraries = to.join(&libdir);
    let linker = linker(building);
    for library in LIBRARIES {
        let name = library.file_name();
        let strip = building.profile != "dev";
        put(&libraries, &name, PROGRAM, |path| library.link(&linker, &built, path, strip))?;
        for link in library.links() {
            put_link(&libraries, &link, &name)?;
        }
        let prefix = (!asked.relocatable).then_some(asked.prefix.as_path());
        let text = pkg_config::build_file(&library, prefix, &libdir);
        put_text(&libraries.join("pkgconfig"), &pkg_config::file_name(library.name), text.as_bytes())?;
    }
    for (folder, names) in HEADERS {
        for name in names {
            put(&to.join("include"), name, FILE, |path| copy(&root().join(folder).join(name), path))?;
        }
    }
    let gantry = built.join("gantry");
    for (shell, folder, name) in COMPLETIONS {
        let script = run(gantry.as_os_str(), &["completions", shell])?.stdout;
        put_text(&to.join(folder), name, &script)?;
    }
    put_manual(&gantry, &to.join("share/man/man1"))?;
    let (folder, names) = LICENCES;
    for name in names {
        put(&to.join(folder), name, FILE, |path| copy(&root().join(name), path))?;
    }
    Ok(to)
}

/// Where things are put.
#[derive(Debug)]
struct Places {
    /// The folder that replaces the prefix.
    to: PathBuf,
    /// The folder of the libraries below the prefix.
    libdir: PathBuf,
}

impl Places {
    /// `libdir` may be absolute, as packagers have it.
    ///
    /// # Errors
    /// Something would be put outside of the prefix.
    fn new(prefix: &Path, libdir: &Path, destdir: Option<&Path>) -> Result<Self> {
        let goes_up = |path: &Path| path.components().any(|part| part == Component::ParentDir);
        if !prefix.is_absolute() || goes_up(prefix) {
            return Err(
                format!("the prefix {} is not an absolute path without '..'", prefix.display()).into()
            );
        }
        let beneath = if libdir.is_absolute() { libdir.strip_prefix(prefix).ok() } else { Some(libdir) };
        let Some(beneath) = beneath.filter(|path| !goes_up(path)) else {
            let (libdir, prefix) = (libdir.display(), prefix.display());
            return Err(format!("the libdir {libdir} is not beneath the prefix {prefix}").into());
        };
        let to = match destdir.filter(|dir| !dir.as_os_str().is_empty()) {
            // The linker runs in another directory.
            Some(dir) => std::path::absolute(dir)?.join(prefix.strip_prefix("/").unwrap_or(prefix)),
            None => prefix.to_path_buf(),
        };
        Ok(Self { to, libdir: beneath.to_path_buf() })
    }
}

/// Installs the program, or removes that of an earlier installation: gantry would prefer it.
fn put_on_request(asked: bool, built: &Path, to: &Path) -> Result<()> {
    let (folder, name) = ON_REQUEST;
    let folder = to.join(folder);
    if asked {
        return put(&folder, name, PROGRAM, |path| copy(&built.join(name), path));
    }
    match fs::remove_file(folder.join(name)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

/// Writes a page for each command.
fn put_manual(gantry: &Path, folder: &Path) -> Result<()> {
    let fresh = folder.join(".new");
    // An installation that was cut off may have left it.
    match fs::remove_dir_all(&fresh) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        _ => make_folder(&fresh)?,
    }
    run(gantry.as_os_str(), &[OsStr::new("man"), fresh.as_os_str()])?;
    for page in fs::read_dir(&fresh)? {
        let page = page?;
        fs::set_permissions(page.path(), fs::Permissions::from_mode(FILE))?;
        fs::rename(page.path(), folder.join(page.file_name()))?;
    }
    Ok(fs::remove_dir(&fresh)?)
}

/// Makes the missing ones of these folders, for all users whatever the umask is.
fn make_folder(folder: &Path) -> Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    if let Some(above) = folder.parent() {
        make_folder(above)?;
    }
    let made =
        fs::create_dir(folder).and_then(|()| fs::set_permissions(folder, fs::Permissions::from_mode(FOLDER)));
    Ok(made.map_err(|e| format!("{}: {e}", folder.display()))?)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to).map_err(|e| format!("{}: {e}", from.display()))?;
    Ok(())
}

/// Writes a file under another name first, then renames it. An existing file may be in use, and is replaced atomically.
fn put(folder: &Path, name: &str, mode: u32, make: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    make_folder(folder)?;
    let fresh = folder.join(format!(".{name}.new"));
    make(&fresh)?;
    fs::set_permissions(&fresh, fs::Permissions::from_mode(mode))?;
    fs::rename(&fresh, folder.join(name))?;
    Ok(())
}

/// Writes a file for all users to read.
///
/// # Errors
/// It cannot be written.
pub(crate) fn put_text(folder: &Path, name: &str, text: &[u8]) -> Result<()> {
    put(folder, name, FILE, |path| Ok(fs::write(path, text)?))
}

fn put_link(folder: &Path, name: &str, target: &str) -> Result<()> {
    make_folder(folder)?;
    let fresh = folder.join(format!(".{name}.new"));
    if fs::symlink_metadata(&fresh).is_ok() {
        fs::remove_file(&fresh)?;
    }
    symlink(target, &fresh)?;
    fs::rename(&fresh, folder.join(name))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_below_the_prefix_or_below_the_destdir_in_its_place() {
        let places = |prefix: &str, libdir: &str, destdir: Option<&str>| {
            let places = Places::new(Path::new(prefix), Path::new(libdir), destdir.map(Path::new));
            places.map(|Places { to, libdir }| format!("{}+{}", to.display(), libdir.display()))
        };
        let check = |prefix: &str, libdir: &str, destdir: Option<&str>, expected: &str| {
            assert_eq!(places(prefix, libdir, destdir).unwrap(), expected);
        };
        check("/opt/g", "lib", None, "/opt/g+lib");
        check("/opt/g", "lib/x", Some(""), "/opt/g+lib/x");
        check("/opt/g", "lib", Some("/stage"), "/stage/opt/g+lib");
        check("/usr", "/usr/lib64", Some("/stage"), "/stage/usr+lib64");
        let here = std::env::current_dir().unwrap();
        check("/usr", "/usr/lib", Some("stage"), &format!("{}/stage/usr+lib", here.display()));
        let refused = |prefix: &str, libdir: &str, part: &str| {
            let error = places(prefix, libdir, Some("/stage")).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        };
        refused("/usr", "/lib64", "the libdir /lib64 is not beneath the prefix /usr");
        refused("/usr", "/usr/../lib64", "is not beneath the prefix");
        refused("/usr", "../lib64", "is not beneath the prefix");
        refused("opt/g", "lib", "the prefix opt/g is not an absolute path");
        refused("/../g", "lib", "is not an absolute path without '..'");
    }

    #[test]
    fn what_is_there_is_replaced_whole() {
        let folder = tempfile::tempdir().unwrap();
        let read = || fs::read_to_string(folder.path().join("lib/a")).unwrap();
        let write = |text: &'static str| move |path: &Path| Ok(fs::write(path, text)?);
        put(&folder.path().join("lib"), "a", FILE, write("one")).unwrap();
        put(&folder.path().join("lib"), "a", FILE, write("two")).unwrap();
        assert_eq!(read(), "two");
        assert!(put(&folder.path().join("lib"), "a", FILE, |_| Err("no".into())).is_err());
        assert_eq!(read(), "two");
        for _ in 0..2 {
            put_link(&folder.path().join("lib"), "b", "a").unwrap();
        }
        assert_eq!(fs::read_link(folder.path().join("lib/b")).unwrap(), Path::new("a"));
    }

    #[test]
    fn every_header_is_there() {
        for (folder, names) in HEADERS {
            for name in names {
                assert!(root().join(folder).join(name).is_file(), "{folder}/{name}");
            }
        }
    }
}
