//! Finds the debug information of a program or library outside the file itself.
//!
//! - By build id and by the name in the file (`.gnu_debuglink`): in the folders that debuggers search.
//! - Parts that several such files share, in a file that they name (`.gnu_debugaltlink`, made by dwz).
//! - The names of functions, packed into the file itself (`.gnu_debugdata`).
//!
//! Source: the chapter "Debugging Information in Separate Files" of GDB's manual.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use object::read::{ReadCache, ReadRef};
use object::{Object, ObjectSection};

use crate::files::open;
use crate::module::ModuleId;

/// Where distributions install debug information.
const INSTALLED: &str = "usr/lib/debug";

/// The most bytes of a packed table of names, packed and unpacked.
const MAX_PACKED_BYTES: u64 = 64 << 20;
const MAX_NAMES_BYTES: u64 = 256 << 20;

/// The file of this machine with the debug information of the program or library that ranks see at `path`.
#[must_use]
pub fn find_debug_file(path: &Path, id: &ModuleId) -> Option<PathBuf> {
    let installed = || Path::new("/").join(id.debug_file().unwrap_or_default());
    let opened = open(path).ok().filter(|_| has_build_id(path, id)).map(ReadCache::new);
    let here = opened.and_then(|cache| {
        let file = object::File::parse(&cache).ok()?;
        match file.section_by_name(".debug_info") {
            Some(_) => Some(path.to_owned()),
            None => Hints::of(&file).find(path, id),
        }
    });
    here.or_else(|| Some(installed()).filter(|file| has_build_id(file, id)))
}

/// A file's references to information elsewhere.
#[derive(Debug, Default)]
pub(crate) struct Hints {
    /// The name of the file with debug information, and the checksum of its content.
    link: Option<(String, u32)>,
    /// The path of the file with the shared parts, and its build id.
    common: Option<(PathBuf, ModuleId)>,
    /// Whether the file has packed names.
    has_names: bool,
}

impl Hints {
    /// Reads the references of a file.
    pub(crate) fn of<'data, R: ReadRef<'data>>(file: &object::File<'data, R>) -> Self {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
        let link = file.gnu_debuglink().ok().flatten();
        let common = file.gnu_debugaltlink().ok().flatten();
        Self {
            // Accept a plain name only, so that it cannot lead to another folder.
            link: link.and_then(|(name, sum)| Some((text(name).filter(|name| !name.contains('/'))?, sum))),
            common: common
                .and_then(|(path, id)| Some((PathBuf::from(text(path)?), ModuleId::of_build_id(id)?))),
            has_names: file.section_by_name(".gnu_debugdata").is_some(),
        }
    }

    /// The file with the debug information of the one at `path`, if this machine has it.
    pub(crate) fn find(&self, path: &Path, id: &ModuleId) -> Option<PathBuf> {
        let (root, inner) = split_root(path);
        let folder = inner.parent().unwrap_or(Path::new(""));
        let by_id =
            id.debug_file().into_iter().flat_map(|file| [root.join(&file), Path::new("/").join(file)]);
        let by_name = self.link.iter().flat_map(|(name, _)| {
            let places = [folder.to_path_buf(), folder.join(".debug"), Path::new(INSTALLED).join(folder)];
            places.map(|place| root.join(place).join(name))
        });
        by_id.chain(by_name).find(|file| file != path && self.is_of(file, id))
    }

    /// Whether a file belongs to the one with this id. Debug information of another build has other addresses.
    fn is_of(&self, file: &Path, id: &ModuleId) -> bool {
        match (id.debug_file(), &self.link) {
            (Some(_), _) => has_build_id(file, id),
            (None, Some((_, sum))) => checksum(file).is_ok_and(|it| it == *sum),
            (None, None) => false,
        }
    }

    /// The file with the parts that the one at `path` shares with others.
    pub(crate) fn find_common(&self, path: &Path) -> Option<PathBuf> {
        let (named, id) = self.common.as_ref()?;
        let (root, inner) = split_root(path);
        let beside = inner.parent().unwrap_or(Path::new("")).join(named);
        let absolute = named.strip_prefix("/").ok().map(Path::to_path_buf);
        let places = [absolute.unwrap_or(beside)].into_iter().chain(id.debug_file());
        places.map(|place| root.join(place)).find(|file| has_build_id(file, id))
    }

    /// Unpacks the packed names into a file.
    pub(crate) fn unpack_names<'data, R: ReadRef<'data>>(
        &self,
        file: &object::File<'data, R>,
    ) -> Option<Vec<u8>> {
        let section = file.section_by_name(".gnu_debugdata").filter(|_| self.has_names)?;
        let packed = section.data().ok().filter(|_| section.size() <= MAX_PACKED_BYTES)?;
        let mut names = Vec::new();
        lzma_rust2::XzReader::new(packed, true).take(MAX_NAMES_BYTES).read_to_end(&mut names).ok()?;
        Some(names)
    }
}

/// The root of the process through which a file is seen, and the path below it: `/proc/4711/root` and `usr/bin/app`;
/// otherwise `/`.
fn split_root(path: &Path) -> (PathBuf, PathBuf) {
    let parts: Vec<_> = path.components().collect();
    let is_seen_by_process = parts.len() > 4
        && path.starts_with("/proc")
        && parts[2].as_os_str().as_encoded_bytes().iter().all(u8::is_ascii_digit)
        && parts[3].as_os_str() == "root";
    let length = if is_seen_by_process { 4 } else { 1 };
    let root = if path.is_absolute() { parts[..length].iter().collect() } else { PathBuf::new() };
    let inner = path.strip_prefix(&root).unwrap_or(path).to_path_buf();
    (root, inner)
}

/// Whether a file has this build id. Files of dwz have no program headers, so the id is only in a section.
fn has_build_id(path: &Path, id: &ModuleId) -> bool {
    let Ok(file) = open(path) else { return false };
    let cache = ReadCache::new(file);
    let found = object::File::parse(&cache).ok().and_then(|file| Some(file.build_id().ok()??.to_vec()));
    found.and_then(|bytes| ModuleId::of_build_id(&bytes)).as_ref() == Some(id)
}

/// The checksum that a link has: CRC-32 of the whole file.
fn checksum(path: &Path) -> io::Result<u32> {
    let mut file = open(path)?;
    let mut sum = crc32fast::Hasher::new();
    let mut bytes = vec![0; 1 << 16];
    loop {
        match file.read(&mut bytes)? {
            0 => return Ok(sum.finalize()),
            read => sum.update(&bytes[..read]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_a_process_has_its_information_in_the_same_root() {
        let check = |path: &str, root: &str, inner: &str| {
            assert_eq!(split_root(Path::new(path)), (PathBuf::from(root), PathBuf::from(inner)), "{path}");
        };
        check("/proc/12/root/usr/bin/app", "/proc/12/root", "usr/bin/app");
        check("/proc/self/exe", "/", "proc/self/exe");
        check("/usr/bin/app", "/", "usr/bin/app");
        check("bin/app", "", "bin/app");
    }

    #[test]
    fn the_checksum_is_that_of_the_format() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x");
        std::fs::write(&file, "123456789").unwrap();
        assert_eq!(checksum(&file).unwrap(), 0xcbf4_3926);
        assert!(checksum(folder.path()).is_err());
    }
}
