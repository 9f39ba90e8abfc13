//! The loader's search for a library (ld.so(8); glibc: `elf/dl-load.c`).

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::arch::Arch;
use super::closure::{How, Why};
use super::hwcaps::build_combinations;
use super::loader::Loader;
use super::resolver::{LD_CACHE, NotOpened, Opened, Resolver};

/// The most places in the report about a missing library.
const MAX_TOLD: usize = 64;

/// The search state of one program's loader.
#[derive(Debug)]
pub(super) struct Search<'r> {
    resolver: &'r Resolver,
    arch: Arch,
    interpreter: PathBuf,
    /// The processor-specific subdirectories that exist in each folder.
    subdirectories: HashMap<PathBuf, Arc<[PathBuf]>>,
}

/// The search path of a file for its needs.
#[derive(Debug, Default)]
pub(super) struct Order<'a> {
    /// The file's folders and the environment's, in order.
    pub(super) folders: Vec<(How, &'a [PathBuf])>,
    /// Without the system's own folders (DF_1_NODEFLIB).
    pub(super) without_default: bool,
}

impl<'a> Order<'a> {
    /// Appends folders.
    pub(super) fn add(&mut self, how: How, folders: &'a [PathBuf]) {
        if !folders.is_empty() {
            self.folders.push((how, folders));
        }
    }
}

/// A library, with its path as the loader calls it.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) path: PathBuf,
    pub(super) how: How,
    pub(super) opened: Opened,
}

impl<'r> Search<'r> {
    pub(super) fn new(resolver: &'r Resolver, arch: Arch, interpreter: PathBuf) -> Self {
        Self { resolver, arch, interpreter, subdirectories: HashMap::new() }
    }

    /// The loader's built-in settings. Its file is read only on demand: most programs do not need it.
    pub(super) fn loader(&self) -> Arc<Loader> {
        self.resolver.loader(&self.interpreter, self.arch)
    }

    /// Opens a library by its path.
    pub(super) fn open(&self, path: PathBuf, how: How) -> Result<Found, Why> {
        let mut tried = Tried::default();
        match tried.open(self, path, how)? {
            Some(found) => Ok(found),
            None => Err(Why::NotFound { looked_in: Vec::new(), other_machine: tried.other_machine }),
        }
    }

    /// Finds a library by a name without a slash. In each place, libraries for any processor come first if they are
    /// preferred. A variant there is better than a library of another place, which may be another release.
    pub(super) fn find(&mut self, name: &OsStr, order: &Order<'_>) -> Result<Found, Why> {
        let mut tried = Tried::default();
        for (how, folders) in &order.folders {
            if let Some(found) = self.find_in(name, *how, folders, &mut tried)? {
                return Ok(found);
            }
        }
        match self.resolver.ld_cache() {
            Some(cache) => {
                let all = self.resolver.hwcaps(self.arch);
                let preferred: &[&[&str]] = if self.prefers_plain() { &[&[], all] } else { &[all] };
                for hwcaps in preferred {
                    let path = cache.lookup(name, self.arch.cache_flags(), hwcaps);
                    let path = path.filter(|path| !order.without_default || !self.is_system(path));
                    if let Some(path) = path
                        && let Some(found) = tried.open(self, path.to_owned(), How::Cache)?
                    {
                        return Ok(found);
                    }
                }
                tried.add(How::Cache, Path::new(LD_CACHE));
            }
            None => {
                let resolver = self.resolver;
                if let Some(found) = self.find_in(name, How::Cache, resolver.conf_folders(), &mut tried)? {
                    return Ok(found);
                }
            }
        }
        if !order.without_default {
            let loader = self.loader();
            if let Some(found) = self.find_in(name, How::Default, &loader.folders, &mut tried)? {
                return Ok(found);
            }
        }
        Err(Why::NotFound { looked_in: tried.looked_in, other_machine: tried.other_machine })
    }

    fn find_in(
        &mut self,
        name: &OsStr,
        how: How,
        folders: &[PathBuf],
        tried: &mut Tried,
    ) -> Result<Option<Found>, Why> {
        for folder in folders {
            if self.prefers_plain()
                && let Some(found) = tried.open(self, folder.join(name), how)?
            {
                return Ok(Some(found));
            }
            for below in self.subdirectories(folder).iter() {
                if let Some(found) = tried.open(self, below.join(name), how)? {
                    return Ok(Some(found));
                }
            }
            if !self.prefers_plain()
                && let Some(found) = tried.open(self, folder.join(name), how)?
            {
                return Ok(Some(found));
            }
            tried.add(how, folder);
        }
        Ok(None)
    }

    fn prefers_plain(&self) -> bool {
        self.resolver.is_for_any_processor()
    }

    fn is_system(&self, path: &Path) -> bool {
        self.loader().folders.iter().any(|folder| path.starts_with(folder))
    }

    /// The existing subdirectories of a folder for this processor, the best first.
    fn subdirectories(&mut self, folder: &Path) -> Arc<[PathBuf]> {
        if let Some(known) = self.subdirectories.get(folder) {
            return Arc::clone(known);
        }
        let found: Arc<[PathBuf]> = self.list_subdirectories(folder).into();
        self.subdirectories.insert(folder.to_owned(), Arc::clone(&found));
        found
    }

    fn list_subdirectories(&self, folder: &Path) -> Vec<PathBuf> {
        let is_there = |path: &Path| {
            self.resolver.root.locate(path).and_then(std::fs::metadata).is_ok_and(|about| about.is_dir())
        };
        let mut found = Vec::new();
        let named = self.resolver.hwcaps(self.arch);
        let base = folder.join("glibc-hwcaps");
        if !named.is_empty() && is_there(&base) && self.loader().has_hwcaps {
            found.extend(named.iter().map(|name| base.join(name)).filter(|path| is_there(path)));
        }
        let Some(legacy) = self.resolver.legacy(self.arch) else { return found };
        if legacy.parts.iter().any(|part| is_there(&folder.join(part))) && self.loader().has_legacy {
            let all = build_combinations(&legacy.parts).into_iter().map(|below| folder.join(below));
            found.extend(all.filter(|path| is_there(path)));
        }
        found
    }
}

/// The failed attempts of a search.
#[derive(Debug, Default)]
struct Tried {
    looked_in: Vec<(How, PathBuf)>,
    other_machine: Vec<PathBuf>,
}

impl Tried {
    fn add(&mut self, how: How, place: &Path) {
        if self.looked_in.len() < MAX_TOLD {
            self.looked_in.push((how, place.to_owned()));
        }
    }

    /// A file that the loader would use. None: the loader would continue; an error: it would fail.
    fn open(&mut self, search: &Search<'_>, path: PathBuf, how: How) -> Result<Option<Found>, Why> {
        match search.resolver.open(&path, Some(search.arch)) {
            Ok(opened) => match check_library(&opened) {
                Some(reason) => Err(Why::Unfit { path, reason }),
                None => Ok(Some(Found { path, how, opened })),
            },
            Err(NotOpened::Absent(_)) => Ok(None),
            Err(NotOpened::OtherArch) => {
                self.other_machine.push(path);
                Ok(None)
            }
            Err(NotOpened::Unfit(reason)) => Err(Why::Unfit { path, reason }),
        }
    }
}

fn check_library(opened: &Opened) -> Option<super::elf::Unfit> {
    use super::elf::{Kind, Unfit};
    match &opened.elf.dynamic {
        _ if opened.elf.kind == Kind::Executable => Some(Unfit::Program),
        None => Some(Unfit::NoDynamic),
        Some(dynamic) if dynamic.is_program() => Some(Unfit::Program),
        Some(_) => None,
    }
}
