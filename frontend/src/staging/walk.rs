//! Walks from a file to all its dependencies in the loader's order (glibc: `elf/dl-deps.c`): breadth first, every
//! object once. The order decides which request finds an object, and by which name.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::arch::Arch;
use super::closure::{Closure, Dependency, How, Missing, Need, Optional, Why};
use super::elf::{Dynamic, Elf, NeedKind, Text, Unfit};
use super::libc_needs::{GLIBC, is_glibc_soname};
use super::names::ByName;
use super::resolver::{FileId, NotOpened, Resolver};
use super::search::{Found, Order, Search};
use super::tokens::{Tokens, expand, split_path_list};
use crate::error::{Error, Result};

/// Room for the objects of most programs.
const USUAL_OBJECTS: usize = 64;
/// More objects than any real program has.
const MAX_OBJECTS: usize = 16_384;

/// One loaded object.
#[derive(Debug)]
pub(super) struct Object {
    /// The name of the first request.
    name: OsString,
    /// Other requested names, without its path, which identifies it anyway.
    other_names: Vec<OsString>,
    pub(super) path: PathBuf,
    pub(super) elf: Arc<Elf>,
    file: PathBuf,
    id: Option<FileId>,
    /// The object that first requested it.
    loader: Option<usize>,
    how: How,
    rpath: Vec<PathBuf>,
    runpath: Vec<PathBuf>,
    /// The found objects for its requests; one entry per name in its dynamic section.
    needs: Vec<Option<usize>>,
    /// It is in the loader's list. The loader itself is listed when an object needs it.
    pub(super) is_listed: bool,
}

/// A walk.
#[derive(Debug)]
pub(super) struct Walk<'r> {
    resolver: &'r Resolver,
    search: Search<'r>,
    arch: Arch,
    binary: PathBuf,
    interpreter: Option<PathBuf>,
    library_path: Vec<PathBuf>,
    /// The file itself comes first.
    pub(super) objects: Vec<Object>,
    /// Objects by requested name and by soname; the first one if there are several. Paths are not included, since
    /// hardly any lookup uses them.
    by_name: ByName<usize>,
    /// The objects in the loader's order, without the file itself.
    listed: Vec<usize>,
    pub(super) missing: Vec<Missing>,
}

impl<'r> Walk<'r> {
    /// Opens the first file and its loader.
    pub(super) fn begin(resolver: &'r Resolver, binary: &Path) -> Result<Self> {
        let opened = resolver.open(binary, None).map_err(|why| not_opened(binary, why))?;
        let elf = opened.elf;
        if let Some(Unfit::NoDynamic) = check_whole(&elf) {
            return Err(unusable(binary, &Unfit::NoDynamic));
        }
        let interpreter = elf.interpreter.clone().map(PathBuf::from);
        // The kernel gives a program its path without links; a library keeps its requested name.
        let path = match &interpreter {
            Some(_) => resolver.root.real_path(binary).map_err(|e| Error::io(cannot_read(binary), e))?,
            None => binary.to_owned(),
        };
        let mut walk = Self::empty(resolver, elf.arch, interpreter);
        binary.clone_into(&mut walk.binary);
        walk.objects.push(Object {
            name: binary.as_os_str().to_owned(),
            other_names: Vec::new(),
            path,
            elf,
            file: opened.file,
            id: Some(opened.id),
            loader: None,
            how: How::Absolute,
            rpath: Vec::new(),
            runpath: Vec::new(),
            needs: Vec::new(),
            is_listed: true,
        });
        walk.remember_names(0);
        walk.set_paths(0);
        walk.library_path = walk.expand_library_path();
        walk.load_interpreter();
        Ok(walk)
    }

    /// A program without search paths of its own.
    pub(super) fn of_nothing(resolver: &'r Resolver, arch: Arch) -> Self {
        let mut walk = Self::empty(resolver, arch, None);
        walk.library_path = walk.expand_library_path();
        walk
    }

    fn empty(resolver: &'r Resolver, arch: Arch, interpreter: Option<PathBuf>) -> Self {
        let usual = || arch.facts().map_or_else(PathBuf::new, |row| PathBuf::from(row.loader));
        Self {
            resolver,
            search: Search::new(resolver, arch, interpreter.clone().unwrap_or_else(usual)),
            arch,
            binary: PathBuf::new(),
            interpreter,
            library_path: Vec::new(),
            objects: Vec::with_capacity(USUAL_OBJECTS),
            by_name: ByName::with_capacity_and_hasher(USUAL_OBJECTS, Default::default()),
            listed: Vec::with_capacity(USUAL_OBJECTS),
            missing: Vec::new(),
        }
    }

    /// Finds one library without its dependencies.
    pub(super) fn find_one(mut self, name: &OsStr) -> std::result::Result<Dependency, Missing> {
        let found = self.find(name, None);
        let found = found.map_err(|why| Missing { name: name.to_owned(), needed_by: PathBuf::new(), why })?;
        let index = self.add(name, found, None);
        Ok(self.take_dependency(index, PathBuf::new(), &[]))
    }

    /// The complete result.
    pub(super) fn finish(mut self) -> Result<Closure> {
        let mut queue = VecDeque::from([0]);
        while let Some(index) = queue.pop_front() {
            let elf = Arc::clone(&self.objects[index].elf);
            let mut ahead = Vec::new();
            let Some(dynamic) = &elf.dynamic else { continue };
            self.objects[index].needs.reserve_exact(dynamic.needed.len());
            for need in &dynamic.needed {
                let new = self.load(dynamic.text(need.name), index, need.kind);
                match (new, need.kind) {
                    (None, _) => {}
                    (Some(new), NeedKind::Needed) => {
                        self.listed.push(new);
                        queue.push_back(new);
                    }
                    // An object with the symbols comes before the filter that declares them, and is searched first.
                    (Some(new), NeedKind::Filter | NeedKind::Auxiliary) => {
                        let at = self.listed.iter().position(|it| *it == index).unwrap_or(0);
                        self.listed.insert(at, new);
                        ahead.push(new);
                    }
                }
                if self.objects.len() > MAX_OBJECTS {
                    return Err(unusable(&self.binary, &Unfit::TooLarge));
                }
            }
            ahead.into_iter().rev().for_each(|new| queue.push_front(new));
        }
        self.check_versions();
        Ok(self.into_closure())
    }

    /// Loads a library for `by`. Returns its index if it is new in the loader's list.
    fn load(&mut self, name: &OsStr, by: usize, kind: NeedKind) -> Option<usize> {
        let result = match self.expand_in(name, by) {
            Some(name) => self.find_known_or_new(&name, by),
            None => Err(Why::NotFound { looked_in: Vec::new(), other_machine: Vec::new() }),
        };
        let found = match result {
            Ok(index) => Some(index),
            Err(why) => {
                let needed_by = self.objects[by].path.clone();
                let missing = Missing { name: name.to_owned(), needed_by, why };
                if kind != NeedKind::Auxiliary && !self.missing.contains(&missing) {
                    self.missing.push(missing);
                }
                None
            }
        };
        self.objects[by].needs.push(found);
        let index = found?;
        let is_new = !std::mem::replace(&mut self.objects[index].is_listed, true);
        is_new.then_some(index)
    }

    fn find_known_or_new(&mut self, name: &OsStr, by: usize) -> std::result::Result<usize, Why> {
        if let Some(known) = self.position_of(name) {
            self.objects[known].add_name(name);
            return Ok(known);
        }
        let found = self.find(name, Some(by))?;
        if let Some(known) = self.objects.iter().position(|object| object.id == Some(found.opened.id)) {
            self.objects[known].add_name(name);
            self.by_name.insert(name.to_owned(), known);
            return Ok(known);
        }
        Ok(self.add(name, found, Some(by)))
    }

    fn add(&mut self, name: &OsStr, found: Found, loader: Option<usize>) -> usize {
        self.objects.push(Object {
            name: name.to_owned(),
            other_names: Vec::new(),
            path: found.path,
            elf: found.opened.elf,
            file: found.opened.file,
            id: Some(found.opened.id),
            loader,
            how: found.how,
            rpath: Vec::new(),
            runpath: Vec::new(),
            needs: Vec::new(),
            is_listed: false,
        });
        let index = self.objects.len() - 1;
        self.remember_names(index);
        self.set_paths(index);
        index
    }

    /// The first object with that name.
    pub(super) fn position_of(&self, name: &OsStr) -> Option<usize> {
        let known = self.by_name.get(name).copied();
        if !name.as_bytes().contains(&b'/') {
            return known;
        }
        let at_path = self.objects.iter().position(|object| object.path.as_os_str() == name);
        known.into_iter().chain(at_path).min()
    }

    fn remember_names(&mut self, index: usize) {
        let object = &self.objects[index];
        for name in [Some(object.name.as_os_str()), object.soname()].into_iter().flatten() {
            if !self.by_name.contains_key(name) {
                self.by_name.insert(name.to_owned(), index);
            }
        }
    }

    /// The loader's search for a file, on behalf of `by`.
    fn find(&mut self, name: &OsStr, by: Option<usize>) -> std::result::Result<Found, Why> {
        if name.as_bytes().contains(&b'/') {
            return self.search.open(PathBuf::from(name), How::Absolute);
        }
        let mut order = Order::default();
        let dynamic = by.and_then(|by| self.objects[by].elf.dynamic.as_ref());
        if dynamic.is_none_or(|it| it.runpath.is_none()) {
            // The chain of requesting objects ends at the file itself.
            let chain = std::iter::successors(by, |index| self.objects[*index].loader);
            chain.for_each(|index| order.add(How::Rpath, &self.objects[index].rpath));
        }
        order.add(How::LibraryPath, &self.library_path);
        if let Some(by) = by {
            order.add(How::Runpath, &self.objects[by].runpath);
        }
        order.without_default = dynamic.is_some_and(Dynamic::has_no_default_lib);
        self.search.find(name, &order)
    }

    /// The loader is loaded before all else, under the name in the program.
    fn load_interpreter(&mut self) {
        let usual = || self.arch.facts().map(|row| PathBuf::from(row.loader));
        let Some(path) = self.interpreter.clone().or_else(usual) else { return };
        if self.objects[0].elf.dynamic.is_none() && self.interpreter.is_none() {
            return;
        }
        match self.resolver.open(&path, Some(self.arch)) {
            Ok(opened) if self.objects[0].id == Some(opened.id) => {}
            Ok(opened) => {
                let found = Found { path: path.clone(), how: How::Absolute, opened };
                self.add(path.as_os_str(), found, Some(0));
            }
            Err(why) if self.interpreter.is_some() => {
                let why = match why {
                    NotOpened::Unfit(reason) => Why::Unfit { path: path.clone(), reason },
                    _ => Why::NotFound { looked_in: Vec::new(), other_machine: Vec::new() },
                };
                let needed_by = self.objects[0].path.clone();
                self.missing.push(Missing { name: path.into_os_string(), needed_by, why });
            }
            Err(_) => {}
        }
    }

    /// Reads an object's own search paths.
    fn set_paths(&mut self, index: usize) {
        let object = &self.objects[index];
        let Some(dynamic) = &object.elf.dynamic else { return };
        let split = |list: Option<Text>| match list {
            Some(list) => self.split_in(dynamic.text(list), b":", Some(index)),
            None => Vec::new(),
        };
        let (rpath, runpath) = (split(dynamic.rpath), split(dynamic.runpath));
        self.objects[index].rpath = rpath;
        self.objects[index].runpath = runpath;
    }

    fn expand_library_path(&self) -> Vec<PathBuf> {
        let main = (!self.objects.is_empty()).then_some(0);
        self.resolver.library_path().map_or_else(Vec::new, |list| self.split_in(list, b":;", main))
    }

    fn split_in(&self, list: &OsStr, separators: &[u8], index: Option<usize>) -> Vec<PathBuf> {
        self.with_tokens(list, index, |tokens| split_path_list(list, separators, tokens))
    }

    fn expand_in<'n>(&self, name: &'n OsStr, index: usize) -> Option<Cow<'n, OsStr>> {
        if !name.as_bytes().contains(&b'$') {
            return Some(Cow::Borrowed(name));
        }
        self.with_tokens(name, Some(index), |tokens| expand(name, tokens)).map(Cow::Owned)
    }

    /// The values of tokens require reading files, so they are determined only for a text with tokens.
    fn with_tokens<T>(&self, text: &OsStr, index: Option<usize>, body: impl FnOnce(Tokens<'_>) -> T) -> T {
        if !text.as_bytes().contains(&b'$') {
            return body(Tokens { origin: None, lib: "", platform: "" });
        }
        let loader = self.search.loader();
        let origin = index.and_then(|index| self.origin_of(&self.objects[index].path));
        let platform = self.resolver.platform(self.arch);
        body(Tokens { origin: origin.as_deref(), lib: &loader.lib, platform })
    }

    /// The folder of an object, without following links in its name.
    fn origin_of(&self, path: &Path) -> Option<PathBuf> {
        let whole = match (path.is_absolute(), self.resolver.root.is_ours()) {
            (true, _) => path.to_owned(),
            (false, true) => std::env::current_dir().ok()?.join(path),
            (false, false) => Path::new("/").join(path),
        };
        whole.parent().map(Path::to_owned)
    }

    fn into_closure(mut self) -> Closure {
        let mut places = vec![None; self.objects.len()];
        for (place, index) in self.listed.iter().enumerate() {
            places[*index] = Some(place);
        }
        let optional = self.find_optional();
        let libc = self.libc_needs();
        let needs = self.objects[0].needs_by(&places);
        let listed = std::mem::take(&mut self.listed);
        let asked_by: Vec<PathBuf> = listed.iter().map(|index| self.needed_by(*index)).collect();
        let each = listed.iter().zip(asked_by);
        Closure {
            needs,
            needed: each.map(|(index, by)| self.take_dependency(*index, by, &places)).collect(),
            libc,
            binary: self.binary,
            interpreter: self.interpreter,
            script: Vec::new(),
            missing: self.missing,
            optional,
        }
    }

    /// The file that first requested it.
    fn needed_by(&self, index: usize) -> PathBuf {
        let by = self.objects[index].loader.map_or(&self.binary, |by| &self.objects[by].path);
        by.clone()
    }

    /// Moves an object's names and paths into the result.
    fn take_dependency(&mut self, index: usize, needed_by: PathBuf, places: &[Option<usize>]) -> Dependency {
        let object = &mut self.objects[index];
        Dependency {
            is_glibc: object.is_glibc(),
            needs: object.needs_by(places),
            name: std::mem::take(&mut object.name),
            other_names: std::mem::take(&mut object.other_names),
            path: std::mem::take(&mut object.path),
            file: std::mem::take(&mut object.file),
            needed_by,
            how: object.how,
            build_id: object.elf.build_id.clone(),
        }
    }

    fn find_optional(&mut self) -> Vec<Optional> {
        let mut found = Vec::new();
        for index in std::iter::once(0).chain(self.listed.clone()) {
            let elf = Arc::clone(&self.objects[index].elf);
            for note in &elf.dlopen {
                let path = note.soname.iter().find_map(|name| self.find(OsStr::new(name), Some(index)).ok());
                found.push(Optional {
                    names: note.soname.clone(),
                    wanted_by: self.objects[index].path.clone(),
                    feature: note.feature.clone(),
                    description: note.description.clone(),
                    priority: note.priority.clone(),
                    found: path.map(|it| it.path),
                });
            }
        }
        found
    }
}

impl Object {
    pub(super) fn is_called(&self, name: &OsStr) -> bool {
        self.name == name
            || self.path.as_os_str() == name
            || self.other_names.iter().any(|known| known == name)
            || self.soname() == Some(name)
    }

    /// It belongs to the C library's family.
    pub(super) fn is_glibc(&self) -> bool {
        self.soname().is_some_and(is_glibc_soname) && self.defines_glibc_versions()
    }

    fn defines_glibc_versions(&self) -> bool {
        self.elf.dynamic.as_ref().is_some_and(|dynamic| {
            let mut defined = dynamic.versions_defined.iter().flatten();
            defined.any(|it| dynamic.text(it.name).as_bytes().starts_with(GLIBC.as_bytes()))
        })
    }

    fn soname(&self) -> Option<&OsStr> {
        self.elf.dynamic.as_ref().and_then(|it| Some(it.text(it.soname?)))
    }

    fn add_name(&mut self, name: &OsStr) {
        let is_known = self.name == name || self.path.as_os_str() == name;
        if !is_known && !self.other_names.iter().any(|known| known == name) {
            self.other_names.push(name.to_owned());
        }
    }

    fn needs_by(&self, places: &[Option<usize>]) -> Vec<Need> {
        let Some(dynamic) = &self.elf.dynamic else { return Vec::new() };
        let place = |found: &Option<usize>| found.and_then(|index| places.get(index).copied().flatten());
        let each = dynamic.needed.iter().zip(&self.needs);
        let needs = each.map(|(need, found)| (dynamic.text(need.name).to_owned(), place(found)));
        needs.map(|(name, found)| Need { name, found }).collect()
    }
}

/// A library without a dynamic section is unusable; a program without one is static.
fn check_whole(elf: &Elf) -> Option<Unfit> {
    let is_lost = elf.dynamic.is_none() && elf.interpreter.is_some();
    is_lost.then_some(Unfit::NoDynamic)
}

fn cannot_read(path: &Path) -> String {
    format!("cannot read {}", path.display())
}

fn not_opened(path: &Path, why: NotOpened) -> Error {
    match why {
        NotOpened::Absent(error) => Error::io(cannot_read(path), error),
        NotOpened::OtherArch => unusable(path, &Unfit::NoElf),
        NotOpened::Unfit(unfit) => unusable(path, &unfit),
    }
}

fn unusable(path: &Path, unfit: &Unfit) -> Error {
    Error::Invalid {
        message: format!("{}: {unfit}", path.display()),
        hint: Some("name a program, a library or a script that begins with '#!'".to_owned()),
    }
}
