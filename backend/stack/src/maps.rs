//! The mappings of a process.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::sync::Arc;

/// The name of the code that the kernel maps into every process.
pub(crate) const VDSO: &str = "[vdso]";

/// The identity of a mapped file: equal keys mean one file.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct FileKey {
    /// Device and inode, as the kernel writes them.
    device: String,
    inode: u64,
    /// As the process sees it.
    pub(crate) path: String,
}

/// A range of addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Region {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) executable: bool,
    /// The file, and the address at which its beginning is mapped.
    pub(crate) file: Option<(Arc<FileKey>, u64)>,
}

/// All regions of a process, by address.
#[derive(Debug, Clone, Default)]
pub(crate) struct Maps(Vec<Region>);

impl Maps {
    /// Reads the mappings of a process.
    ///
    /// # Errors
    /// It has ended, or may not be read.
    pub(crate) fn of_process(pid: i32) -> io::Result<Self> {
        let text = fs::read(format!("/proc/{pid}/maps"))?;
        Ok(Self::parse(&String::from_utf8_lossy(&text)))
    }

    /// Source: proc_pid_maps(5).
    fn parse(text: &str) -> Self {
        let mut beginnings: HashMap<Arc<FileKey>, u64> = HashMap::new();
        let regions = text.lines().filter_map(|line| {
            let mut words = line.splitn(6, ' ');
            let (start, end) = words.next()?.split_once('-')?;
            let number = |text| u64::from_str_radix(text, 16).ok();
            let (start, end) = (number(start)?, number(end)?);
            let executable = words.next()?.contains('x');
            let offset = number(words.next()?)?;
            let device = words.next()?.to_owned();
            let inode: u64 = words.next()?.parse().ok()?;
            let path = words.next().unwrap_or_default().trim_start();
            let path = path.strip_suffix(" (deleted)").unwrap_or(path).to_owned();
            let is_file = inode != 0 || path == VDSO;
            let key = is_file.then(|| Arc::new(FileKey { device, inode, path }));
            if let Some(key) = key.as_ref().filter(|_| offset == 0) {
                beginnings.insert(Arc::clone(key), start);
            }
            let file = key.and_then(|key| beginnings.get(&key).copied().map(|base| (key, base)));
            Some(Region { start, end, executable, file })
        });
        Self(regions.collect())
    }

    /// The region that has an address.
    pub(crate) fn find(&self, address: u64) -> Option<&Region> {
        let after = self.0.partition_point(|region| region.start <= address);
        self.0.get(after.checked_sub(1)?).filter(|region| address < region.end)
    }

    /// Each file, with the address at which its beginning is mapped.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&Arc<FileKey>, u64)> {
        let files = self.0.iter().filter_map(|region| region.file.as_ref());
        let mut last = None;
        let files = files.filter(move |(key, _)| last.replace(Arc::clone(key)).as_ref() != Some(key));
        files.map(|(key, base)| (key, *base))
    }

    /// Whether the beginning of a file is mapped at an address.
    pub(crate) fn have(&self, file: &FileKey, base: u64) -> bool {
        self.files().any(|(key, at)| key.as_ref() == file && at == base)
    }

    /// Whether an address is in executable memory.
    pub(crate) fn is_code(&self, address: u64) -> bool {
        self.find(address).is_some_and(|region| region.executable)
    }
}

impl FileKey {
    /// Whether this is the kernel's code, which has no file.
    pub(crate) fn is_vdso(&self) -> bool {
        self.path == VDSO
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_knows_where_its_file_begins() {
        let maps = Maps::parse(
            "1000-2000 r--p 00000000 fe:01 7    /opt/a b\n2000-3000 r-xp 00001000 fe:01 7    /opt/a b\n\
             5000-6000 rw-p 00000000 00:00 0 \n7000-8000 rw-p 00000000 00:00 0    [stack]\n\
             8000-9000 r-xp 00000000 00:00 0    [vdso]\n9000-a000 r-xp 00001000 fe:01 9    /x (deleted)\n",
        );
        let region = maps.find(0x2fff).unwrap();
        let (key, base) = region.file.clone().unwrap();
        assert_eq!((key.path.as_str(), base, region.executable), ("/opt/a b", 0x1000, true));
        assert_eq!(maps.find(0x3000), None);
        assert!(!maps.is_code(0x1000) && maps.is_code(0x2000) && !maps.is_code(0x7000));
        assert!(maps.find(0x8000).unwrap().file.as_ref().unwrap().0.is_vdso());
        // The beginning of the file is not mapped.
        assert_eq!(maps.find(0x9000).unwrap().file, None);
    }

    #[test]
    fn this_process_has_code_where_it_runs() {
        let maps = Maps::of_process(i32::try_from(std::process::id()).unwrap()).unwrap();
        let here = a_function as fn() as usize as u64;
        assert!(maps.is_code(here));
    }

    fn a_function() {}
}
