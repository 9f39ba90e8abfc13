//! Goes from a file to all that it needs, in the loader's own order (glibc: `elf/dl-deps.c`): breadth first, every object once. The order
//! decides by which name, and on whose behalf, something is found.

use std::collections::{HashMap, VecDeque};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::arch::Arch;
use super::closure::{Closure, Dependency, How, Missing, Need, Optional, Why};
use super::elf::{Dynamic, Elf, NeedKind, Unfit};
use super::libc_needs::is_glibc_family;
use super::resolver::{FileId, NotOpened, Resolver};
use super::search::{Found, Order, Search};
use super::tokens::{Tokens, expand, split_path_list};
use crate::error::{Error, Result};

/// More objects than any program has.
const MAX_OBJECTS: usize = 16_384;

/// One loaded object.
#[derive(Debug)]
pub(super) struct Object {
    /// All names that it is known by; its path is one of them.
    pub(super) names: Vec<OsString>,
    pub(super) path: PathBuf,
    pub(super) elf: Arc<Elf>,
    file: PathBuf,
    id: Option<FileId>,
    /// Who had it loaded first.
    loader: Option<usize>,
    how: How,
    rpath: Vec<PathBuf>,
    runpath: Vec<PathBuf>,
    needs: Vec<(OsString, Option<usize>)>,
    /// It is in the loader's list. The loader itself gets there when somebody needs it.
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
    /// Which of them is known by a name or has it as its own; the first one, where several are.
    by_name: HashMap<OsString, usize>,
    /// The objects in the loader's order, without the file itself.
    listed: Vec<usize>,
    pub(super) missing: Vec<Missing>,
}

impl<'r> Walk<'r> {
    /// Opens the file that it begins with, and its loader.
    pub(super) fn begin(resolver: &'r Resolver, binary: &Path) -> Result<Self> {
        let opened = resolver.open(binary, None).map_err(|why| not_opened(binary, why))?;
        let elf = opened.elf;
        if let Some(Unfit::NoDynamic) = check_whole(&elf) {
            return Err(unusable(binary, &Unfit::NoDynamic));
        }
        let interpreter = elf.interpreter.clone().map(PathBuf::from);
        // The kernel tells a program its own path without links; a library goes by the name it was asked for.
        let path = match &interpreter {
            Some(_) => resolver.root.real_path(binary).map_err(|e| Error::io(cannot_read(binary), e))?,
            None => binary.to_owned(),
        };
        let mut walk = Self::empty(resolver, elf.arch, interpreter);
        binary.clone_into(&mut walk.binary);
        walk.objects.push(Object {
            names: vec![binary.as_os_str().to_owned()],
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

    /// A program without any search path of its own.
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
            objects: Vec::new(),
            by_name: HashMap::new(),
            listed: Vec::new(),
            missing: Vec::new(),
        }
    }

    /// Finds one library and nothing that it needs.
    pub(super) fn find_one(mut self, name: &OsStr) -> std::result::Result<Dependency, Missing> {
        let found = self.find(name, None);
        let found = found.map_err(|why| Missing { name: name.to_owned(), needed_by: PathBuf::new(), why })?;
        let index = self.add(name, found, None);
        Ok(self.dependency(index, &[]))
    }

    /// Everything that is needed.
    pub(super) fn finish(mut self) -> Result<Closure> {
        let mut queue = VecDeque::from([0]);
        while let Some(index) = queue.pop_front() {
            let elf = Arc::clone(&self.objects[index].elf);
            let mut ahead = Vec::new();
            for need in elf.dynamic.iter().flat_map(|dynamic| &dynamic.needed) {
                let new = self.load(&need.name, index, need.kind);
                match (new, need.kind) {
                    (None, _) => {}
                    (Some(new), NeedKind::Needed) => {
                        self.listed.push(new);
                        queue.push_back(new);
                    }
                    // What has the symbols comes before who promises them, and is looked at first.
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

    /// Loads what `by` asks for. Its place, when it is new in the loader's list.
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
        self.objects[by].needs.push((name.to_owned(), found));
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
        let mut names = vec![name.to_owned()];
        if name != found.path.as_os_str() {
            names.push(found.path.clone().into_os_string());
        }
        self.objects.push(Object {
            names,
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

    /// The first object that is called so.
    pub(super) fn position_of(&self, name: &OsStr) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    fn remember_names(&mut self, index: usize) {
        let object = &self.objects[index];
        for name in object.names.iter().map(OsString::as_os_str).chain(object.soname()) {
            if !self.by_name.contains_key(name) {
                self.by_name.insert(name.to_owned(), index);
            }
        }
    }

    /// The loader's way to a file, on behalf of `by`.
    fn find(&mut self, name: &OsStr, by: Option<usize>) -> std::result::Result<Found, Why> {
        if name.as_bytes().contains(&b'/') {
            return self.search.open(PathBuf::from(name), How::Absolute);
        }
        let mut order = Order::default();
        let dynamic = by.and_then(|by| self.objects[by].elf.dynamic.as_ref());
        if dynamic.is_none_or(|it| it.runpath.is_none()) {
            // The chain of who had whom loaded ends at the file itself.
            let chain = std::iter::successors(by, |index| self.objects[*index].loader);
            order.folders.extend(chain.map(|index| (How::Rpath, self.objects[index].rpath.as_slice())));
        }
        order.folders.push((How::LibraryPath, &self.library_path));
        if let Some(by) = by {
            order.folders.push((How::Runpath, &self.objects[by].runpath));
        }
        order.without_default = dynamic.is_some_and(Dynamic::has_no_default_lib);
        self.search.find(name, &order)
    }

    /// The loader is there before anything is asked for, under the name that the file calls it.
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
        let Some(dynamic) = &self.objects[index].elf.dynamic else { return };
        let split = |list: &Option<OsString>| match list {
            Some(list) => self.split_in(list, b":", Some(index)),
            None => Vec::new(),
        };
        let (rpath, runpath) = (split(&dynamic.rpath), split(&dynamic.runpath));
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

    fn expand_in(&self, name: &OsStr, index: usize) -> Option<OsString> {
        self.with_tokens(name, Some(index), |tokens| expand(name, tokens))
    }

    /// What tokens stand for costs reading files: it is found out only for a text that has some.
    fn with_tokens<T>(&self, text: &OsStr, index: Option<usize>, body: impl FnOnce(Tokens<'_>) -> T) -> T {
        if !text.as_bytes().contains(&b'$') {
            return body(Tokens { origin: None, lib: "", platform: "" });
        }
        let loader = self.search.loader();
        let origin = index.and_then(|index| self.origin_of(&self.objects[index].path));
        let platform = self.resolver.platform(self.arch);
        body(Tokens { origin: origin.as_deref(), lib: &loader.lib, platform })
    }

    /// The folder of an object, by its name: links in it are not followed.
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
        Closure {
            needs: needs_of(&self.objects[0], &places),
            needed: self.listed.iter().map(|index| self.dependency(*index, &places)).collect(),
            libc: self.libc_needs(),
            binary: self.binary,
            interpreter: self.interpreter,
            script: Vec::new(),
            missing: self.missing,
            optional,
        }
    }

    fn dependency(&self, index: usize, places: &[Option<usize>]) -> Dependency {
        let object = &self.objects[index];
        let by = object.loader.map_or_else(|| self.binary.clone(), |by| self.objects[by].path.clone());
        let names = object.names.iter().skip(1);
        Dependency {
            name: object.names[0].clone(),
            other_names: names.filter(|name| *name != object.path.as_os_str()).cloned().collect(),
            path: object.path.clone(),
            file: object.file.clone(),
            needed_by: by,
            how: object.how,
            is_glibc: is_glibc_family(object.soname().map_or(&object.path, Path::new)),
            build_id: object.elf.build_id.clone(),
            needs: needs_of(object, places),
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
        self.names.iter().any(|known| known == name) || self.soname() == Some(name)
    }

    fn soname(&self) -> Option<&OsStr> {
        self.elf.dynamic.as_ref().and_then(|it| it.soname.as_deref())
    }

    fn add_name(&mut self, name: &OsStr) {
        if !self.names.iter().any(|known| known == name) {
            self.names.push(name.to_owned());
        }
    }
}

fn needs_of(object: &Object, places: &[Option<usize>]) -> Vec<Need> {
    let place = |found: &Option<usize>| found.and_then(|index| places.get(index).copied().flatten());
    object.needs.iter().map(|(name, found)| Need { name: name.clone(), found: place(found) }).collect()
}

/// A library without a dynamic section cannot be used; a program without one is static.
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
