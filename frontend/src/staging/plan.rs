//! Chooses the targets of a manifest's files and of their dependencies. Pure: files and dependencies were read
//! before.
//!
//! Libraries go to `lib`, under the names that the loader searches. If another library of that name is there already,
//! they go to a folder of their own below it. The daemons that need it search that folder before `lib`. The C
//! library's family goes to `loader` and into no search path: a daemon with a C library other than its loader's would
//! not run.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gantry_shared::storage::LOADER_DIR;
use gantry_shared::wire::staging::{LibcNeeds, Place};
use gantry_types::error::{Failure, Kind};
use gantry_types::session_dirs::{BIN_DIR, LIB_DIR, TMP_DIR};

use super::content::Source;
use super::ledger::{Ledger, Taken};
use super::want::{Target, Want};
use crate::error::{Error, Result};

/// The prefix of folders for libraries with conflicting names. Hidden, so that no tool's directory has it.
const FOLDER: &str = ".other-";

/// The most libraries in one error, besides the first.
const MAX_TOLD: usize = 8;

/// An item of a manifest.
#[derive(Debug, Clone)]
pub(crate) struct Item {
    pub(crate) place: Place,
    /// Path below the place.
    pub(crate) name: Arc<OsStr>,
    pub(crate) source: Arc<Source>,
    /// Its dependencies; none for a file that is not run.
    pub(crate) needs: Option<Box<Needs>>,
}

/// The dependencies of a program or library.
#[derive(Debug, Clone, Default)]
pub(crate) struct Needs {
    /// Libraries, in search order.
    pub(crate) libraries: Vec<Needed>,
    /// Interpreters of scripts.
    pub(crate) programs: Vec<Needed>,
    /// The C library's family with its loader.
    pub(crate) family: Vec<Needed>,
    /// Requirements on the C library.
    pub(crate) libc: Option<LibcNeeds>,
    /// Missing libraries.
    pub(crate) missing: Vec<Absent>,
}

/// A dependency.
#[derive(Debug, Clone)]
pub(crate) struct Needed {
    /// The requested name.
    pub(crate) name: OsString,
    pub(crate) source: Arc<Source>,
}

/// A missing library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Absent {
    pub(crate) name: OsString,
    pub(crate) needed_by: PathBuf,
    /// The whole message: library, requesting file, searched places.
    pub(crate) told: String,
}

/// The requests to the nodes.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// The new files.
    pub(crate) wants: Vec<Want>,
    /// The C library requirements, if the nodes do not know them yet.
    pub(crate) libc: Option<LibcNeeds>,
    /// The number of files of the manifest, including those in the session already, without the C library's family.
    pub(crate) files: usize,
    /// The folders below `lib` in the search path of each program of the manifest, by its name in `bin`.
    pub(crate) lib_dirs: BTreeMap<Arc<OsStr>, Vec<OsString>>,
    /// The session's ledger after this plan.
    pub(crate) ledger: Ledger,
}

/// Plans for a session with the content `session`.
///
/// # Errors
/// Two items conflict; the message names both.
pub(crate) fn build_plan(items: &[Item], session: &Ledger) -> Result<Plan> {
    let mut plan = Planning { wants: Vec::new(), session, touched: BTreeSet::new(), ledger: session.clone() };
    // Named files come before dependencies.
    let mut folders = Vec::new();
    for item in items {
        folders.extend(plan.put_named(item)?);
    }
    let runs = || items.iter().filter_map(|item| Some((item, item.needs.as_ref()?)));
    for (item, needs) in runs() {
        plan.put_interpreters(&needs.programs)?;
        if item.place != Place::Bin {
            folders.extend(plan.put_libraries(&needs.libraries, &[]));
        }
    }
    let mut of_programs = BTreeMap::new();
    for (item, needs) in runs().filter(|(item, _)| item.place == Place::Bin) {
        // A program's own libraries come before named ones of the same name.
        let mut dirs = plan.put_libraries(&needs.libraries, &folders);
        dirs.extend(folders.iter().cloned());
        let mut seen = BTreeSet::new();
        dirs.retain(|folder| seen.insert(folder.clone()));
        of_programs.insert(item.name.clone(), dirs);
    }
    let files = plan.wants.len() + plan.touched.len();
    session.find_known(&mut plan.wants);
    let libc = plan.put_family(items);
    Ok(Plan { wants: plan.wants, libc, files, lib_dirs: of_programs, ledger: plan.ledger })
}

/// Fails if libraries are missing, and names the files that need them. A library that the session has in `lib` under
/// its name is not missing: its daemons search there.
///
/// # Errors
/// Of kind [`Kind::NotFound`].
pub(crate) fn check_missing<'a>(
    missing: impl IntoIterator<Item = &'a Absent>,
    session: &Ledger,
) -> Result<()> {
    let is_there = |absent: &&Absent| session.everywhere(Place::Lib, &absent.name).is_some();
    let mut missing = missing.into_iter().filter(|absent| !is_there(absent)).collect::<Vec<_>>();
    missing.sort_by_key(|absent| (&absent.name, &absent.needed_by));
    missing.dedup();
    let Some(first) = missing.first() else { return Ok(()) };
    let others = missing.iter().skip(1).take(MAX_TOLD);
    let others: Vec<_> = others
        .map(|it| format!("; {}, needed by {}, neither", it.name.display(), it.needed_by.display()))
        .collect();
    let more = match missing.len().saturating_sub(1 + MAX_TOLD) {
        0 => String::new(),
        more => format!("; nor {more} more"),
    };
    let failure = Failure::new(Kind::NotFound, format!("{}{}{more}", first.told, others.concat())).with_hint(
        "add it to what is made available, set LD_LIBRARY_PATH to where it is, or allow missing libraries",
    );
    Err(Error::Node { hosts: Vec::new(), failure })
}

impl Plan {
    /// The folders below `lib` that a program in `bin` searches before `lib`.
    pub(crate) fn lib_dirs_of(&self, program: &OsStr) -> Vec<OsString> {
        self.lib_dirs.get(program).cloned().unwrap_or_default()
    }
}

/// Whether an entry of that name in a session's root would conflict with the session's own directories.
pub(crate) fn is_reserved(name: &OsStr) -> bool {
    [BIN_DIR, LIB_DIR, LOADER_DIR, TMP_DIR].iter().any(|own| name == *own)
}

struct Planning<'s> {
    wants: Vec<Want>,
    session: &'s Ledger,
    /// The targets of this manifest that the session has already.
    touched: BTreeSet<Target>,
    ledger: Ledger,
}

impl Planning<'_> {
    /// Puts a named item. Returns its folder if it is a library with a conflicting name.
    fn put_named(&mut self, item: &Item) -> Result<Option<OsString>> {
        let taken = self.ledger.at(item.place, &item.name).filter(|taken| taken.everywhere);
        match taken {
            Some(taken) if taken.source.facts.content == item.source.facts.content => {
                self.touch(item.place, &item.name);
                Ok(None)
            }
            Some(taken) if taken.source.path == item.source.path => Err(changed(&item.source.path)),
            // A library that was named on its own. The files of a tree belong together.
            Some(_) if item.place == Place::Lib && !item.name.as_encoded_bytes().contains(&b'/') => {
                let library = Needed { name: item.name.to_os_string(), source: Arc::clone(&item.source) };
                Ok(self.put_beside(&[&library], std::slice::from_ref(&library)).pop())
            }
            Some(taken) => Err(clash(&taken.source.path, &item.source.path)),
            None => {
                self.put(item.place, &item.name, &item.source);
                Ok(None)
            }
        }
    }

    /// Puts interpreters into `bin`, unless the manifest has one of that name.
    fn put_interpreters(&mut self, programs: &[Needed]) -> Result<()> {
        for program in programs {
            let name = Arc::from(program.name.as_os_str());
            if self.ledger.everywhere(Place::Bin, &name).is_none() {
                self.put(Place::Bin, &name, &program.source);
            } else {
                self.touch(Place::Bin, &name);
            }
        }
        Ok(())
    }

    /// Puts a closure's libraries where the loader finds them, even if it searches `before` ahead of `lib`. Returns the
    /// folders that must come before both for that.
    fn put_libraries(&mut self, libraries: &[Needed], before: &[OsString]) -> Vec<OsString> {
        let mut beside = Vec::new();
        let mut seen = BTreeSet::new();
        for library in libraries {
            // The loader loads one library per name: the first that it finds.
            if !seen.insert(&library.name) {
                continue;
            }
            let (name, content) = (Arc::from(library.name.as_os_str()), &library.source.facts.content);
            match self.ledger.at(Place::Lib, &name) {
                _ if self.hides(before, library) => beside.push(library),
                Some(taken) if taken.source.facts.content != *content => beside.push(library),
                Some(Taken { everywhere: true, .. }) => self.touch(Place::Lib, &name),
                _ => self.put(Place::Lib, &name, &library.source),
            }
        }
        self.put_beside(&beside, libraries)
    }

    /// Whether one of the folders has another library of that name.
    fn hides(&self, folders: &[OsString], library: &Needed) -> bool {
        let held = folders.iter().filter_map(|folder| self.ledger.folders.get(folder)?.get(&library.name));
        held.into_iter().any(|content| *content != library.source.facts.content)
    }

    /// Puts libraries with conflicting names into folders below `lib`. An existing folder is reused only if its whole
    /// content belongs to the closure. Any other content could hide a library that the program needs.
    fn put_beside(&mut self, libraries: &[&Needed], closure: &[Needed]) -> Vec<OsString> {
        let mut rest: Vec<&Needed> = libraries.to_vec();
        let mut folders = Vec::new();
        let of_closure = |name: &OsStr| closure.iter().find(|it| it.name == name);
        for (folder, held) in &self.ledger.folders {
            let serves = held.iter().all(|(name, content)| {
                of_closure(name).is_some_and(|needed| needed.source.facts.content == *content)
            });
            let (there, others) =
                rest.iter().partition::<Vec<_>, _>(|library| held.contains_key(&library.name));
            if serves && !there.is_empty() {
                let target = |library: &&Needed| {
                    (Place::Lib, Path::new(folder).join(&library.name).as_os_str().into())
                };
                let session = self.session;
                let is_old = |(place, name): &Target| session.everywhere(*place, name).is_some();
                self.touched.extend(there.iter().map(target).filter(is_old));
                folders.push(folder.clone());
                rest = others;
            }
        }
        if rest.is_empty() {
            return folders;
        }
        let folder = self.new_folder();
        for library in &rest {
            let name = Arc::from(Path::new(&folder).join(&library.name).as_os_str());
            self.put(Place::Lib, &name, &library.source);
        }
        let held = rest.iter().map(|library| (library.name.clone(), library.source.facts.content.clone()));
        self.ledger.folders.insert(folder.clone(), held.collect());
        folders.push(folder);
        folders
    }

    fn new_folder(&mut self) -> OsString {
        self.ledger.folders_made += 1;
        OsString::from(format!("{FOLDER}{}", self.ledger.folders_made))
    }

    /// Plans the loaders' families, if nodes must check whether their own is sufficient. They decided that at the first
    /// request; a newer version requires another check.
    fn put_family(&mut self, items: &[Item]) -> Option<LibcNeeds> {
        let needs = || items.iter().filter_map(|item| item.needs.as_deref());
        // The newest one serves older programs and libraries as well. Of several loaders, such as the 32-bit one, that
        // of the first program is staged; the programs of the others run with the nodes' own.
        let mut programs = items.iter().filter(|item| item.place == Place::Bin);
        let first = programs.find_map(|item| item.needs.as_ref()?.libc.as_ref())?;
        let of_it = |libc: &&LibcNeeds| libc.interpreter == first.interpreter;
        let newest = needs().filter_map(|needs| needs.libc.as_ref()).filter(of_it);
        let newest = newest.max_by_key(|libc| parse_version(&libc.version))?;
        let known = self.ledger.libc.get(&newest.interpreter);
        if known.is_some_and(|known| parse_version(&known.version) >= parse_version(&newest.version)) {
            return None;
        }
        let of_newest =
            |needs: &&Needs| needs.libc.as_ref().is_some_and(|libc| libc.interpreter == newest.interpreter);
        for member in needs().filter(of_newest).flat_map(|needs| &needs.family) {
            let name = Arc::from(member.name.as_os_str());
            let known = self.ledger.content_at(Place::Loader, &name);
            let asked = |want: &Want| (want.place, &want.name) == (Place::Loader, &name);
            // A family is one unit: the first one wins.
            if known.is_none_or(|content| *content == member.source.facts.content)
                && !self.wants.iter().any(asked)
            {
                self.put(Place::Loader, &name, &member.source);
            }
        }
        self.ledger.libc.insert(newest.interpreter.clone(), newest.clone());
        Some(newest.clone())
    }

    /// Marks a target that exists already, or that this manifest has added.
    fn touch(&mut self, place: Place, name: &Arc<OsStr>) {
        if self.session.everywhere(place, name).is_some() {
            self.touched.insert((place, Arc::clone(name)));
        }
    }

    fn put(&mut self, place: Place, name: &Arc<OsStr>, source: &Arc<Source>) {
        let taken = Taken { source: Arc::clone(source), everywhere: true };
        self.ledger.taken.insert((place, Arc::clone(name)), taken);
        self.wants.push(Want { place, name: Arc::clone(name), source: Arc::clone(source), known: None });
    }
}

/// The error for two items with one name.
pub(crate) fn clash(one: &Path, other: &Path) -> Error {
    Error::Invalid {
        message: format!("{} and {} have the same name in the session", one.display(), other.display()),
        hint: Some("use two sessions, or rename one of them".to_owned()),
    }
}

fn changed(path: &Path) -> Error {
    Error::Invalid {
        message: format!("{} is not what it was when the session got it", path.display()),
        hint: Some("use a new session for what has changed".to_owned()),
    }
}

/// The numbers of `GLIBC_2.36`, for comparison.
fn parse_version(version: &str) -> Vec<u32> {
    let numbers = version.rsplit('_').next().unwrap_or_default();
    numbers.split('.').map(|number| number.parse().unwrap_or(0)).collect()
}

#[cfg(test)]
mod tests;
