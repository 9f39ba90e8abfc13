//! Finds the dependencies of programs and libraries, with a cache of the files that it has read.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

use gantry_wlm::Host;
use gantry_wlm::host::Machine;

use super::arch::Arch;
use super::elf::{Elf, Scratch, Unfit, parse_arch, parse_elf_in};
use super::hwcaps::{Legacy, detect_hwcaps, detect_legacy};
use super::ld_cache::LdCache;
use super::ld_conf::read_ld_conf;
use super::loader::{Loader, MAX_LOADER, parse_loader};
use super::names::ByName;
use super::root::Root;
use super::script::{LINE_BYTES, Shebang, find_in_path, parse_shebang};
use crate::error::{Error, Result};
use crate::lock::lock;

pub(super) const LD_CACHE: &str = "/etc/ld.so.cache";
/// The most bytes of ld.so.cache; a full workstation's has some hundred kilobytes.
const MAX_CACHE: u64 = 64 << 20;
/// The most files in the resolver's cache; then it is cleared.
const MAX_REMEMBERED: usize = 20_000;

/// The system and the variables for a search.
#[derive(Debug, Clone, Default)]
pub struct ResolverConfig {
    /// The root of the files' system; all paths are inside it. None: the running system.
    pub sysroot: Option<PathBuf>,
    /// LD_LIBRARY_PATH.
    pub library_path: Option<OsString>,
    /// PATH, for scripts that are started by `env`.
    pub path: Option<OsString>,
}

impl ResolverConfig {
    /// The running system, with this process's variables.
    pub fn of_process() -> Self {
        Self { sysroot: None, library_path: Machine.env("LD_LIBRARY_PATH"), path: Machine.env("PATH") }
    }
}

/// Finds the dependencies of programs and libraries, without running anything. It reads ld.so.cache once; files are
/// read again when they have changed. It may be shared among threads.
///
/// It ignores LD_PRELOAD, LD_AUDIT and `/etc/ld.so.preload`, since they do not belong to the program.
#[derive(Debug)]
pub struct Resolver {
    config: ResolverConfig,
    /// What is found must run on other machines, too.
    any_processor: bool,
    pub(super) root: Root,
    cache: OnceLock<Option<LdCache>>,
    conf: OnceLock<Vec<PathBuf>>,
    hwcaps: OnceLock<Vec<&'static str>>,
    legacy: OnceLock<Legacy>,
    loaders: Mutex<HashMap<(PathBuf, Arch), Arc<Loader>>>,
    /// By path, with the state of the file when it was read.
    read: Mutex<ByName<(FileKey, Arc<Elf>)>>,
    /// A buffer for the next file.
    scratch: Mutex<Scratch>,
}

/// A file in one state: any change of its content changes one of these fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileKey {
    id: FileId,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// The identity of a file, independent of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct FileId {
    device: u64,
    inode: u64,
}

impl FileKey {
    fn of(about: &Metadata) -> Self {
        Self {
            id: FileId { device: about.dev(), inode: about.ino() },
            size: about.len(),
            modified: (about.mtime(), about.mtime_nsec()),
            changed: (about.ctime(), about.ctime_nsec()),
        }
    }
}

/// A loadable file.
#[derive(Debug, Clone)]
pub(super) struct Opened {
    /// The path that opens it from here.
    pub(super) file: PathBuf,
    pub(super) id: FileId,
    pub(super) elf: Arc<Elf>,
}

/// Why a file cannot be opened as an object.
#[derive(Debug)]
pub(super) enum NotOpened {
    /// A loader continues its search.
    Absent(io::Error),
    /// It is for another architecture; a loader continues its search.
    OtherArch,
    /// A loader fails.
    Unfit(Unfit),
}

impl Resolver {
    /// A resolver with an empty cache.
    pub fn new(config: ResolverConfig) -> Self {
        Self {
            root: Root::new(config.sysroot.clone()),
            config,
            any_processor: false,
            cache: OnceLock::new(),
            conf: OnceLock::new(),
            hwcaps: OnceLock::new(),
            legacy: OnceLock::new(),
            loaders: Mutex::default(),
            read: Mutex::default(),
            scratch: Mutex::default(),
        }
    }

    /// Prefers libraries that run on any processor to variants for this machine's.
    pub(super) fn for_any_processor(self) -> Self {
        Self { any_processor: true, ..self }
    }

    /// Whether libraries must run on any processor.
    pub(super) fn is_for_any_processor(&self) -> bool {
        self.any_processor
    }

    /// Interprets `name`: a path if it has a slash, else a program in PATH, else a file in this directory.
    pub fn find_program(&self, name: &Path) -> PathBuf {
        let found = find_in_path(name.as_os_str(), self.path(), |file| self.is_program(file));
        found.unwrap_or_else(|| name.to_owned())
    }

    /// LD_LIBRARY_PATH.
    pub(super) fn library_path(&self) -> Option<&OsStr> {
        self.config.library_path.as_deref()
    }

    /// PATH; the usual one if it is not set.
    pub(super) fn path(&self) -> &OsStr {
        self.config.path.as_deref().unwrap_or(OsStr::new("/usr/local/bin:/usr/bin:/bin"))
    }

    /// The system's cache; none if it cannot be read.
    pub(super) fn ld_cache(&self) -> Option<&LdCache> {
        let read = || {
            let bytes = self.read_whole(Path::new(LD_CACHE), MAX_CACHE).ok()?;
            LdCache::parse(bytes).ok()
        };
        self.cache.get_or_init(read).as_ref()
    }

    /// The folders of ld.so.conf, for another system without a cache. On the running system they do not count: its
    /// loader does not search them either.
    pub(super) fn conf_folders(&self) -> &[PathBuf] {
        let read = || if self.root.is_ours() { Vec::new() } else { read_ld_conf(&self.root) };
        self.conf.get_or_init(read)
    }

    /// Subdirectories for this processor, the best first; none for another system or architecture.
    pub(super) fn hwcaps(&self, arch: Arch) -> &[&'static str] {
        if self.is_this_machine(arch) { self.hwcaps.get_or_init(detect_hwcaps) } else { &[] }
    }

    /// The old loaders' names of this processor; none for another system or architecture.
    pub(super) fn legacy(&self, arch: Arch) -> Option<&Legacy> {
        let detect = || {
            // The maker stands at the beginning, before the list of processors gets long.
            let mut begin = vec![0; 512];
            let file = File::open("/proc/cpuinfo");
            let length = file.and_then(|file| file.read_at(&mut begin, 0)).unwrap_or(0);
            detect_legacy(&begin[..length])
        };
        self.is_this_machine(arch).then(|| self.legacy.get_or_init(detect))
    }

    /// `$PLATFORM`.
    pub(super) fn platform(&self, arch: Arch) -> &'static str {
        let known = self.legacy(arch).map(|it| it.platform);
        known.unwrap_or_else(|| arch.facts().map_or("", |row| row.platform))
    }

    fn is_this_machine(&self, arch: Arch) -> bool {
        self.root.is_ours() && arch == Arch::NATIVE
    }

    /// The built-in settings of a loader.
    pub(super) fn loader(&self, path: &Path, arch: Arch) -> Arc<Loader> {
        let key = (path.to_owned(), arch);
        if let Some(known) = lock(&self.loaders).get(&key) {
            return Arc::clone(known);
        }
        let bytes = self.read_whole(path, MAX_LOADER).ok();
        let loader = Arc::new(parse_loader(bytes.as_deref(), arch));
        lock(&self.loaders).insert(key, Arc::clone(&loader));
        loader
    }

    /// Opens an object of architecture `arch`. None: of any.
    pub(super) fn open(&self, path: &Path, arch: Option<Arch>) -> std::result::Result<Opened, NotOpened> {
        let file = self.root.locate(path).map_err(NotOpened::Absent)?;
        let known = lock(&self.read).get(file.as_os_str()).cloned();
        let known =
            known.filter(|(key, _)| std::fs::metadata(&file).is_ok_and(|it| FileKey::of(&it) == *key));
        let (key, elf) = match known {
            Some(known) => known,
            None => self.read_elf(&file, arch)?,
        };
        match arch {
            Some(arch) if arch != elf.arch => Err(NotOpened::OtherArch),
            _ => Ok(Opened { file, id: key.id, elf }),
        }
    }

    fn read_elf(
        &self,
        path: &Path,
        arch: Option<Arch>,
    ) -> std::result::Result<(FileKey, Arc<Elf>), NotOpened> {
        // Open first, then check, as the loader does. Most files occur once, and looking up the path takes most of the
        // time.
        let file = open_any(path).map_err(NotOpened::Absent)?;
        let about = file.metadata().map_err(NotOpened::Absent)?;
        // The loader tries to read a folder, too.
        check_regular(&about).map_err(|error| NotOpened::Unfit(Unfit::Read(error.to_string())))?;
        // A concurrent reader allocates its own buffer.
        let mut scratch = std::mem::take(&mut *lock(&self.scratch));
        let parsed = parse_elf_in(&file, &mut scratch);
        *lock(&self.scratch) = scratch;
        let elf = parsed.map(Arc::new).map_err(|unfit| match parse_arch(&file) {
            Ok(found) if arch.is_some_and(|arch| arch != found) => NotOpened::OtherArch,
            _ => NotOpened::Unfit(unfit),
        })?;
        let key = FileKey::of(&about);
        let mut read = lock(&self.read);
        if read.len() >= MAX_REMEMBERED {
            read.clear();
        }
        read.insert(path.as_os_str().to_owned(), (key, Arc::clone(&elf)));
        Ok((key, elf))
    }

    /// The first line of a script; none for other files.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn shebang_of(&self, path: &Path) -> Result<Option<Shebang>> {
        let read = || {
            let file = self.root.locate(path)?;
            let file = open_regular(&file, &std::fs::metadata(&file)?)?;
            let mut begin = [0; LINE_BYTES];
            let length = file.read_at(&mut begin, 0)?;
            Ok(parse_shebang(&begin[..length]))
        };
        read().map_err(|e: io::Error| Error::io(format!("cannot read {}", path.display()), e))
    }

    /// Whether a path can be executed.
    pub(super) fn is_program(&self, path: &Path) -> bool {
        let about = self.root.locate(path).and_then(std::fs::metadata);
        about.is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0)
    }

    fn read_whole(&self, path: &Path, limit: u64) -> io::Result<Vec<u8>> {
        let file = self.root.locate(path)?;
        let about = std::fs::metadata(&file)?;
        let size = usize::try_from(about.len()).ok().filter(|_| about.len() <= limit);
        let size = size.ok_or(io::ErrorKind::FileTooLarge)?;
        let mut bytes = vec![0; size];
        open_regular(&file, &about)?.read_exact_at(&mut bytes, 0)?;
        Ok(bytes)
    }
}

/// Opens a regular file: a FIFO or a device would block.
fn open_regular(path: &Path, about: &Metadata) -> io::Result<File> {
    check_regular(about)?;
    // The file may be replaced between the check and the open.
    open_any(path)
}

fn check_regular(about: &Metadata) -> io::Result<()> {
    match about {
        _ if about.is_dir() => Err(io::Error::from_raw_os_error(libc::EISDIR)),
        _ if !about.is_file() => Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")),
        _ => Ok(()),
    }
}

/// Opens any kind of file without blocking.
fn open_any(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)
}

#[cfg(test)]
mod tests;
