//! Targets of entries: parses and checks them before anything is changed. Pure.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt;

use crate::unpack::{INCOMING_PREFIX, MAX_PARTS, parse_parts};
use gantry_shared::storage::LOADER_DIR;
use gantry_shared::wire::message::{Entry, Place};
use gantry_types::error::{Failure, Kind};
use gantry_types::session_dirs::{BIN_DIR, LIB_DIR};

/// A path below a session's root: directories, then a file name. No part is empty, `.` or `..`, or has a `/` or NUL.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Target {
    parents: Vec<OsString>,
    name: OsString,
}

impl Target {
    /// The directories on the way, from the session's root.
    pub(super) fn parents(&self) -> &[OsString] {
        &self.parents
    }

    /// The file's name in the last directory.
    pub(super) fn name(&self) -> &OsStr {
        &self.name
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in &self.parents {
            write!(f, "{}/", part.display())?;
        }
        write!(f, "{}", self.name.display())
    }
}

/// Every target once, with the indices of its entries: they have the same content.
///
/// # Errors
/// `Invalid`, for a hostile name, and for two entries that exclude each other.
pub(super) fn build_targets(entries: &[Entry]) -> Result<BTreeMap<Target, Vec<u32>>, Failure> {
    let mut targets: BTreeMap<Target, Vec<u32>> = BTreeMap::new();
    let mut firsts: BTreeMap<Target, &Entry> = BTreeMap::new();
    for (index, entry) in (0..).zip(entries) {
        let target = parse_target(entry)?;
        let first = *firsts.entry(target.clone()).or_insert(entry);
        if first.content != entry.content {
            return Err(clash(&target, first, entry, "have the same name and different content"));
        }
        targets.entry(target).or_default().push(index);
    }
    for (target, entry) in &firsts {
        for length in 0..target.parents.len() {
            let parents = target.parents[..length].to_vec();
            let above = Target { parents, name: target.parents[length].clone() };
            if let Some(file) = firsts.get(&above) {
                return Err(clash(&above, file, entry, "use one name for a file and for a directory"));
            }
        }
    }
    Ok(targets)
}

fn clash(target: &Target, one: &Entry, other: &Entry, what: &str) -> Failure {
    let (one, other) = (one.source.display(), other.source.display());
    Failure::new(Kind::Invalid, format!("provide {target}: {one} and {other} {what}"))
        .with_hint("rename one of the two")
}

fn parse_target(entry: &Entry) -> Result<Target, Failure> {
    parse_below(entry.place, &entry.name).map_err(|why| {
        let (name, source) = (entry.name.display(), entry.source.display());
        Failure::new(Kind::Invalid, format!("provide {source} as {name:?}: {why}"))
            .with_hint("use a relative name without `..`")
    })
}

/// The target of that name below a place, or why it is not valid.
pub(super) fn parse_below(place: Place, name: &OsStr) -> Result<Target, String> {
    let folder = match place {
        Place::Bin => Some(BIN_DIR),
        Place::Lib => Some(LIB_DIR),
        Place::Loader => Some(LOADER_DIR),
        Place::Root => None,
    };
    let parts = parse_parts(name.as_bytes()).map_err(|why| format!("the name {why}"))?;
    if folder.is_none()
        && parts.first().is_some_and(|first| first.as_bytes().starts_with(INCOMING_PREFIX.as_bytes()))
    {
        return Err("such names are gantry's own".to_owned());
    }
    let mut parents: Vec<OsString> =
        folder.into_iter().map(OsStr::new).chain(parts).map(OsStr::to_owned).collect();
    if parents.len() > MAX_PARTS {
        return Err("the name has too many parts".to_owned());
    }
    let name = parents.pop().ok_or_else(|| "the name is empty".to_owned())?;
    Ok(Target { parents, name })
}

#[cfg(test)]
mod tests {
    use std::path::{Component, Path};

    use gantry_shared::wire::staging::{Content, Mark};
    use proptest::prelude::*;

    use super::*;

    fn entry(place: Place, name: impl AsRef<OsStr>, content: u8) -> Entry {
        Entry {
            place,
            name: name.as_ref().to_owned(),
            source: OsString::from(format!("/src/{content}")),
            content: Content { size: 1, mark: Mark::Blake3([content; 32]) },
            known: None,
        }
    }

    #[test]
    fn hostile_names_are_refused_with_the_reason() {
        let check = |name: &[u8], expected: &str| {
            for place in [Place::Bin, Place::Lib, Place::Loader, Place::Root] {
                let failure = parse_target(&entry(place, OsStr::from_bytes(name), 1)).unwrap_err();
                assert_eq!(failure.kind(), Kind::Invalid);
                assert!(failure.message().contains(expected), "{failure} has no {expected:?}");
            }
        };
        check(b"", "is empty");
        check(b"/etc/passwd", "absolute");
        check(b"//x", "absolute");
        check(b"..", "`..`");
        check(b"../x", "`..`");
        check(b"a/../../x", "`..`");
        check(b"a/..", "`..`");
        check(b".", "`.`");
        check(b"./x", "`.`");
        check(b"a//b", "empty part");
        check(b"a/", "empty part");
        check(b"a\0b", "NUL");
        check(&[b'x'; 256], "too long");
        check(&b"x/".repeat(100)[..199], "too many parts");
    }

    #[test]
    fn odd_names_that_stay_below_their_place_are_taken() {
        let check = |place, name: &[u8], expected: &str| {
            let target = parse_target(&entry(place, OsStr::from_bytes(name), 1)).unwrap();
            assert_eq!(target.to_string(), expected);
        };
        check(Place::Bin, b"tool", "bin/tool");
        check(Place::Lib, b"v1/libx.so.1", "lib/v1/libx.so.1");
        check(Place::Root, b"...", "...");
        check(Place::Root, b"..a/b..", "..a/b..");
        check(Place::Root, b"-rf", "-rf");
        check(Place::Root, b"a\\..\\b", "a\\..\\b");
        check(Place::Root, b"bl ank\n", "bl ank\n");
        check(Place::Root, b"\xff", "\u{fffd}");
    }

    #[test]
    fn entries_that_cannot_both_be_are_refused_and_both_are_named() {
        let check = |one: Entry, other: Entry, expected: Option<&str>| {
            for entries in [[one.clone(), other.clone()], [other, one]] {
                let built = build_targets(&entries);
                let Some(expected) = expected else {
                    assert!(built.is_ok(), "{built:?}");
                    continue;
                };
                let failure = built.unwrap_err();
                assert_eq!(failure.kind(), Kind::Invalid);
                for text in [expected, "/src/1", "/src/2"] {
                    assert!(failure.message().contains(text), "{failure} has no {text:?}");
                }
            }
        };
        let (bin, lib, root) = (Place::Bin, Place::Lib, Place::Root);
        check(entry(bin, "a", 1), entry(bin, "a", 2), Some("provide bin/a"));
        check(entry(bin, "a", 1), entry(root, "bin/a", 2), Some("provide bin/a"));
        check(entry(root, "a", 1), entry(root, "a/b/c", 2), Some("for a directory"));
        check(entry(root, "bin", 1), entry(bin, "x", 2), Some("for a directory"));
        check(entry(bin, "a", 1), entry(lib, "a", 2), None);
        check(entry(bin, "a", 1), entry(bin, "a", 1), None);
        check(entry(root, "a-", 1), entry(root, "a/b", 2), None);
    }

    #[test]
    fn the_same_twice_is_one_target() {
        let entries = [entry(Place::Bin, "a", 1), entry(Place::Lib, "b", 2), entry(Place::Bin, "a", 1)];
        let indices: Vec<Vec<u32>> = build_targets(&entries).unwrap().into_values().collect();
        assert_eq!(indices, [vec![0, 2], vec![1]]);
    }

    proptest! {
        #[test]
        fn a_name_that_is_taken_stays_below_its_place(name in proptest::collection::vec(
            prop_oneof![Just(b'/'), Just(b'.'), Just(0), any::<u8>()], 0..12))
        {
            if let Ok(target) = parse_target(&entry(Place::Root, OsStr::from_bytes(&name), 1)) {
                let parts = target.parents.iter().chain([&target.name]);
                let path = Path::new(OsStr::from_bytes(&name)).to_owned();
                prop_assert!(path.components().all(|part| matches!(part, Component::Normal(_))));
                prop_assert_eq!(parts.collect::<std::path::PathBuf>(), path);
            }
        }
    }
}
