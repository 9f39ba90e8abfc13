//! Whether a node's own C library is new enough for a manifest's programs.
//!
//! Only a running loader could answer exactly. A library has the names of its versions in its string table, so this
//! module searches the library's bytes for a name that is new enough. Not every library of the family has symbols of
//! every version (there is no `GLIBC_2.20` in x86-64's libc), but a library with a newer version has all older ones. In
//! doubt the answer is no: then the C library that was sent is used. It is right for the manifest's programs on any
//! node, while the node's might not be.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use gantry_shared::elf::read_machine;
use gantry_shared::wire::staging::LibcNeeds;
use gantry_types::error::{Failure, Kind};
use nix::fcntl::AT_FDCWD;

use super::ContentCache;
use super::libc_version::parse_version;
use crate::tree;

/// Directories of C libraries, besides those named after the processor.
const USUAL_DIRS: [&str; 6] = ["/lib64", "/usr/lib64", "/lib", "/usr/lib", "/lib32", "/usr/lib32"];

/// Checks the order's texts and returns the loader's name in a session.
///
/// # Errors
/// `Invalid`.
pub(super) fn loader_name(needs: &LibcNeeds) -> Result<OsString, Failure> {
    let refused = |what: &str| Failure::new(Kind::Invalid, format!("provide a C library: {what}"));
    if parse_version(needs.version.as_bytes()).is_none() {
        return Err(refused("its version is not of the form GLIBC_2.36"));
    }
    let interpreter = Path::new(&needs.interpreter);
    match interpreter.file_name() {
        Some(name) if interpreter.is_absolute() && !interpreter.as_os_str().as_bytes().contains(&0) => {
            Ok(name.to_owned())
        }
        _ => Err(refused("the path of its loader is not absolute")),
    }
}

/// Whether the loader exists, and each C library that it might load has the version. No other user may be able to change
/// one of them.
pub(super) fn is_enough(needs: &LibcNeeds, cache: &mut ContentCache) -> bool {
    let places = places(Path::new(&needs.library), std::env::consts::ARCH);
    is_enough_in(needs, &places, cache)
}

fn is_enough_in(needs: &LibcNeeds, places: &[PathBuf], cache: &mut ContentCache) -> bool {
    let machine_of = |file: &File| read_machine(file).ok().flatten();
    let interpreter = tree::open_trusted(Path::new(&needs.interpreter));
    let Some(machine) = interpreter.ok().and_then(|file| machine_of(&file)) else { return false };
    // A loader's configuration decides which of several libraries it loads. It never loads those for another processor.
    let fits = |path: &&PathBuf| {
        tree::open_regular(AT_FDCWD, path).is_ok_and(|file| machine_of(&file) == Some(machine))
    };
    let mut libraries = places.iter().filter(fits).peekable();
    let Some(needed) = parse_version(needs.version.as_bytes()) else { return false };
    libraries.peek().is_some()
        && libraries
            .all(|path| tree::open_trusted(path).is_ok_and(|library| cache.has_version(&library, needed)))
}

/// Possible places of the library: its path on the login side, and the usual directories.
fn places(library: &Path, processor: &str) -> Vec<PathBuf> {
    let mut places = Vec::new();
    if library.is_absolute() {
        places.push(library.to_owned());
    }
    let Some(name) = library.file_name() else { return places };
    let by_processor = ["/lib", "/usr/lib"].map(|dir| PathBuf::from(format!("{dir}/{processor}-linux-gnu")));
    for dir in by_processor.into_iter().chain(USUAL_DIRS.map(PathBuf::from)) {
        let place = dir.join(name);
        if !places.contains(&place) {
            places.push(place);
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn needs(interpreter: &Path, version: &str) -> LibcNeeds {
        let library = "/nowhere/libc.so.6".into();
        LibcNeeds { interpreter: interpreter.into(), library, version: version.to_owned() }
    }

    #[test]
    fn texts_of_an_order_are_checked() {
        let check = |interpreter: &str, version: &str, expected: Option<&str>| {
            let name = loader_name(&needs(Path::new(interpreter), version)).ok();
            assert_eq!(
                name.as_deref().and_then(|name| name.to_str()),
                expected,
                "{interpreter:?} {version:?}"
            );
        };
        check("/lib64/ld-linux-x86-64.so.2", "GLIBC_2.36", Some("ld-linux-x86-64.so.2"));
        check("ld.so", "GLIBC_2.36", None);
        check("/", "GLIBC_2.36", None);
        check("/lib/..", "GLIBC_2.36", None);
        check("/lib/ld\0.so", "GLIBC_2.36", None);
        check("/lib/ld.so", "", None);
        for version in [
            "GLIBC\0",
            "GLIBC_",
            "GLIBC_2",
            "GLIBC_2.",
            "GLIBC_2.+3",
            "GLIBC_2.3.4.5",
            "GLIBC_PRIVATE",
            "2.36",
        ] {
            check("/lib/ld.so", version, None);
        }
    }

    #[test]
    fn a_library_is_enough_when_all_that_might_be_taken_have_the_version() {
        let scratch = tempfile::tempdir().unwrap();
        // Made of this program's own head, so that it fits the machine that runs the test.
        let head = fs::read("/proc/self/exe").unwrap()[..64].to_vec();
        let elf = |name: &str, strings: &[u8]| {
            let path = scratch.path().join(name);
            fs::write(&path, [&head[..], &[0; 200_000], strings].concat()).unwrap();
            path
        };
        let loader = elf("ld.so", b"");
        let new = elf("new", b"\0GLIBC_2.2.5\0GLIBC_2.36\0GLIBC_2.40\0");
        let old = elf("old", b"\0GLIBC_2.2.5\0GLIBC_2.17\0");
        let mut foreign = head.clone();
        foreign[18] ^= 0x40;
        let other = scratch.path().join("other");
        fs::write(&other, &foreign).unwrap();
        let script = scratch.path().join("script");
        fs::write(&script, "GROUP ( libc.so.6 ) GLIBC_2.36\0").unwrap();
        let nowhere = scratch.path().join("nowhere");
        let mut cache = ContentCache::default();
        let mut check = |loader: &Path, version: &str, places: &[&PathBuf], expected: bool| {
            let places: Vec<PathBuf> = places.iter().map(|place| (*place).clone()).collect();
            assert_eq!(
                is_enough_in(&needs(loader, version), &places, &mut cache),
                expected,
                "{version} in {places:?}"
            );
        };
        check(&loader, "GLIBC_2.36", &[&nowhere, &new], true);
        check(&loader, "GLIBC_2.3", &[&new], true);
        check(&loader, "GLIBC_2.20", &[&new], true);
        check(&loader, "GLIBC_2.40", &[&new], true);
        check(&loader, "GLIBC_2.40.1", &[&new], false);
        check(&loader, "GLIBC_2.41", &[&new], false);
        check(&loader, "GLIBC_3.0", &[&new], false);
        check(&loader, "GLIBC_2.36", &[&old], false);
        check(&loader, "GLIBC_2.17", &[&old], true);
        check(&loader, "GLIBC_2.36", &[&new, &old], false);
        check(&loader, "GLIBC_2.36", &[&other, &script, &new], true);
        check(&loader, "GLIBC_2.36", &[&other, &script, &nowhere], false);
        check(&nowhere, "GLIBC_2.36", &[&new], false);
        check(scratch.path(), "GLIBC_2.36", &[&new], false);
        let planted = |name: &str, strings: &[u8]| {
            let path = elf(name, strings);
            fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o757)).unwrap();
            path
        };
        check(&planted("their-ld.so", b""), "GLIBC_2.36", &[&new], false);
        check(&loader, "GLIBC_2.36", &[&new, &planted("their-new", b"\0GLIBC_2.36\0")], false);
    }

    #[test]
    fn a_library_is_looked_for_where_it_usually_is() {
        let found = places(Path::new("/opt/x/libc.so.6"), "x86_64");
        for expected in
            ["/opt/x/libc.so.6", "/lib/x86_64-linux-gnu/libc.so.6", "/usr/lib64/libc.so.6", "/lib/libc.so.6"]
        {
            assert!(found.iter().any(|place| place == Path::new(expected)), "{expected}");
        }
        assert_eq!(
            places(Path::new("/lib64/libc.so.6"), "x86_64")
                .iter()
                .filter(|it| it.starts_with("/lib64"))
                .count(),
            1
        );
        assert!(places(Path::new("libc.so.6"), "x86_64").iter().all(|place| place.is_absolute()));
        assert_eq!(places(Path::new("/"), "x86_64"), [PathBuf::from("/")]);
    }
}
