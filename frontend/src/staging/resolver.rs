//! Finds what programs and libraries need, and remembers what it has read.

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
/// Most bytes of a cache; a full workstation has some hundred kilobytes.
const MAX_CACHE: u64 = 64 << 20;
/// Files that are remembered; then it begins anew.
const MAX_REMEMBERED: usize = 20_000;

/// For which system, and with which variables.
#[derive(Debug, Clone, Default)]
pub struct ResolverConfig {
    /// The root of the system that the files are of; all paths are then paths in there. None: this one.
    pub sysroot: Option<PathBuf>,
    /// LD_LIBRARY_PATH.
    pub library_path: Option<OsString>,
    /// PATH, for scripts that are started by `env`.
    pub path: Option<OsString>,
}

impl ResolverConfig {
    /// This system with this process's variables.
    pub fn of_process() -> Self {
        Self { sysroot: None, library_path: Machine.env("LD_LIBRARY_PATH"), path: Machine.env("PATH") }
    }
}

/// Finds what programs and libraries need, without running anything. It sees ld.so.cache as it was when it first looked; files are
/// read again when they have changed. It may be shared among threads.
///
/// What LD_PRELOAD, LD_AUDIT and `/etc/ld.so.preload` would add is not looked at: they are not the program's.
#[derive(Debug)]
pub struct Resolver {
    config: ResolverConfig,
    pub(super) root: Root,
    cache: OnceLock<Option<LdCache>>,
    conf: OnceLock<Vec<PathBuf>>,
    hwcaps: OnceLock<Vec<&'static str>>,
    legacy: OnceLock<Legacy>,
    loaders: Mutex<HashMap<(PathBuf, Arch), Arc<Loader>>>,
    /// By where each was opened, with the state in which it was read.
    read: Mutex<ByName<(FileKey, Arc<Elf>)>>,
    /// Room for pieces of the next file.
    scratch: Mutex<Scratch>,
}

/// A file in one state: any change of its content changes one of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileKey {
    id: FileId,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// Which file it is, whatever its name.
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

/// A file that can be loaded.
#[derive(Debug, Clone)]
pub(super) struct Opened {
    /// Where it can be opened from here.
    pub(super) file: PathBuf,
    pub(super) id: FileId,
    pub(super) elf: Arc<Elf>,
}

/// Why a file cannot be opened as an object.
#[derive(Debug)]
pub(super) enum NotOpened {
    /// A loader goes on looking.
    Absent(io::Error),
    /// It is for another machine; a loader goes on looking.
    OtherArch,
    /// A loader gives up.
    Unfit(Unfit),
}

impl Resolver {
    /// A resolver that has read nothing yet.
    pub fn new(config: ResolverConfig) -> Self {
        Self {
            root: Root::new(config.sysroot.clone()),
            config,
            cache: OnceLock::new(),
            conf: OnceLock::new(),
            hwcaps: OnceLock::new(),
            legacy: OnceLock::new(),
            loaders: Mutex::default(),
            read: Mutex::default(),
            scratch: Mutex::default(),
        }
    }

    /// What a user means by `name`: a path when it has a slash, else a program in PATH, else a file in this directory.
    pub fn find_program(&self, name: &Path) -> PathBuf {
        let found = find_in_path(name.as_os_str(), self.path(), |file| self.is_program(file));
        found.unwrap_or_else(|| name.to_owned())
    }

    /// LD_LIBRARY_PATH.
    pub(super) fn library_path(&self) -> Option<&OsStr> {
        self.config.library_path.as_deref()
    }

    /// PATH; the usual one when it is not known.
    pub(super) fn path(&self) -> &OsStr {
        self.config.path.as_deref().unwrap_or(OsStr::new("/usr/local/bin:/usr/bin:/bin"))
    }

    /// The system's cache; none when there is none that can be read.
    pub(super) fn ld_cache(&self) -> Option<&LdCache> {
        let read = || {
            let bytes = self.read_whole(Path::new(LD_CACHE), MAX_CACHE).ok()?;
            LdCache::parse(bytes).ok()
        };
        self.cache.get_or_init(read).as_ref()
    }

    /// Folders that would be in the cache, for a system that is not ours and has no cache yet. On this one there is nothing to be done
    /// for it: its loader finds no library there either.
    pub(super) fn conf_folders(&self) -> &[PathBuf] {
        let read = || if self.root.is_ours() { Vec::new() } else { read_ld_conf(&self.root) };
        self.conf.get_or_init(read)
    }

    /// Subdirectories for this processor, the best first; none for a system or a machine that is not this one.
    pub(super) fn hwcaps(&self, arch: Arch) -> &[&'static str] {
        if self.is_this_machine(arch) { self.hwcaps.get_or_init(detect_hwcaps) } else { &[] }
    }

    /// What older loaders call this processor; none for a system or a machine that is not this one.
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

    /// What is built into a loader.
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

    /// Opens an object of machine `arch`; of any machine when that is none.
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
        // As the loader does it: opened first and looked at then. Most files are met once, and finding them by their path is what takes the time.
        let file = open_any(path).map_err(NotOpened::Absent)?;
        let about = file.metadata().map_err(NotOpened::Absent)?;
        // To read a folder is what the loader tries, too.
        check_regular(&about).map_err(|error| NotOpened::Unfit(Unfit::Read(error.to_string())))?;
        // Whoever reads at the same time makes room of their own.
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

    /// The first line of a script; none for what is no script.
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

/// Opens what is known to be a file: a FIFO or a device would keep us.
fn open_regular(path: &Path, about: &Metadata) -> io::Result<File> {
    check_regular(about)?;
    // Somebody may put another kind of file there between the question and now.
    open_any(path)
}

fn check_regular(about: &Metadata) -> io::Result<()> {
    match about {
        _ if about.is_dir() => Err(io::Error::from_raw_os_error(libc::EISDIR)),
        _ if !about.is_file() => Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")),
        _ => Ok(()),
    }
}

/// Opens whatever it is without waiting for another end.
fn open_any(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)
}

#[cfg(test)]
mod tests;
