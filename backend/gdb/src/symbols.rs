//! Programs, libraries and debug information: what this node lacks, and where gdb finds it.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use gantry_gdb::DEBUG_FILES;
use gantry_gdb::answer::{Lack, Program};
use gantry_shared::build_id::read_build_id;
use gantry_shared::elf::has_section;

/// Where distributions install debug information, and where gdb searches by default.
const INSTALLED: &str = "/usr/lib/debug";

/// The most deleted libraries that are named.
const MAX_DELETED: usize = 8;

/// What the system adds to the path of a deleted file. Source: proc_pid_exe(5), proc_pid_maps(5).
const DELETED: &str = " (deleted)";

/// The files that gdb does not find by itself.
#[derive(Debug, Default)]
pub(crate) struct Files {
    /// Where it searches debug information, if not at its usual place.
    folders: Option<String>,
    /// The rank's program, if its path does not lead to it any more.
    program: Option<String>,
}

impl Files {
    /// The files for a process, with the debug information below `lib` that the login side has sent.
    pub(crate) fn find(pid: i32, lib: &Path) -> Self {
        Self { folders: find_folders(lib), program: find_replaced(pid) }
    }

    /// The commands that name them to gdb, before it attaches.
    pub(crate) fn commands(&self) -> String {
        let mut commands = String::new();
        if let Some(folders) = &self.folders {
            commands.push_str(&format!("-gdb-set debug-file-directory {folders}\n"));
        }
        if let Some(program) = &self.program {
            // gdb would take the file at the path instead, when it attaches.
            commands
                .push_str(&format!("-gdb-set exec-file-mismatch off\n-file-exec-and-symbols {program}\n"));
        }
        commands
    }
}

/// The name by which gdb can read the program of a process, if the program was deleted or replaced.
///
/// A process in another root or mount namespace has a path of its own there, which gdb follows.
fn find_replaced(pid: i32) -> Option<String> {
    let link = format!("/proc/{pid}/exe");
    let path = fs::read_link(&link).ok()?;
    // Do not touch the file otherwise: its file system may hang.
    if !path.as_os_str().as_encoded_bytes().ends_with(DELETED.as_bytes()) {
        return None;
    }
    let identity = |path: &Path| fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
    let running = identity(Path::new(&link))?;
    let inside = Path::new(&format!("/proc/{pid}/root")).join(path.strip_prefix("/").ok()?);
    let is_it = |path: &Path| identity(path) == Some(running);
    (!is_it(&path) && !is_it(&inside)).then_some(link)
}

/// What gdb does not find of a process. `None`: nothing, or the process has ended.
pub(crate) fn find_lacks(pid: i32) -> Option<Lack> {
    let maps = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    let program = find_lack(pid).ok().flatten();
    let deleted = parse_deleted(&String::from_utf8_lossy(&maps));
    (program.is_some() || !deleted.is_empty()).then_some(Lack { program, deleted })
}

/// The deleted shared libraries among the mappings of a process. Memory that programs share looks like a deleted file,
/// too, but it is not executable or has no such name.
fn parse_deleted(maps: &str) -> Vec<String> {
    let mut deleted: Vec<String> = Vec::new();
    for line in maps.lines() {
        let mut words = line.splitn(6, ' ');
        let is_code = words.nth(1).is_some_and(|access| access.contains('x'));
        let path = words.nth(3).and_then(|path| path.trim_start().strip_suffix(DELETED));
        let Some(path) = path.filter(|path| is_code && is_library(path)) else { continue };
        if deleted.len() < MAX_DELETED && !deleted.iter().any(|it| it == path) {
            deleted.push(path.to_owned());
        }
    }
    deleted
}

fn is_library(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    let is_file = path.starts_with('/') && !path.starts_with("/memfd:") && !path.starts_with("/dev/");
    is_file && (name.ends_with(".so") || name.contains(".so."))
}

/// A process's program, if this node has no debug information for it and another machine's can be recognized.
///
/// # Errors
/// The process has ended, or its program may not be read.
fn find_lack(pid: i32) -> io::Result<Option<Program>> {
    let link = PathBuf::from(format!("/proc/{pid}/exe"));
    let file = File::open(&link)?;
    let Some(build_id) = read_build_id(&file)?.filter(|id| id.len() > 1) else { return Ok(None) };
    let digits: String = build_id.iter().map(|byte| format!("{byte:02x}")).collect();
    let (folder, name) = digits.split_at(2);
    let installed = Path::new(INSTALLED).join(".build-id").join(folder).join(format!("{name}.debug"));
    if has_section(&file, b".debug_info")? || installed.exists() {
        return Ok(None);
    }
    let path = fs::read_link(&link)?.to_string_lossy().into_owned();
    Ok(Some(Program { build_id, path }))
}

/// The directories where gdb searches debug information, with the one below `lib` that the login side has sent. `None`:
/// it has sent nothing.
fn find_folders(lib: &Path) -> Option<String> {
    let sent = lib.join(DEBUG_FILES);
    sent.is_dir().then(|| format!("{}:{INSTALLED}", sent.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_with_debug_information_lacks_none() {
        let own = i32::try_from(std::process::id()).unwrap();
        assert_eq!(find_lack(own).unwrap(), None);
        assert!(find_lack(i32::MAX).is_err());
    }

    #[test]
    fn a_program_is_read_by_its_process_when_its_path_leads_elsewhere() {
        let own = i32::try_from(std::process::id()).unwrap();
        assert_eq!(find_replaced(own), None);
        assert_eq!(find_replaced(i32::MAX), None);
        let files = Files { folders: Some("/d".to_owned()), program: Some("/proc/7/exe".to_owned()) };
        assert_eq!(
            files.commands(),
            "-gdb-set debug-file-directory /d\n-gdb-set exec-file-mismatch off\n-file-exec-and-symbols /proc/7/exe\n"
        );
        assert_eq!(Files::default().commands(), "");
    }

    #[test]
    fn deleted_libraries_are_named_once() {
        let maps = "7f00-7f01 r-xp 00000000 08:01 7                          /opt/my lib/liba.so.1 (deleted)\n\
                    7f01-7f02 r-xp 00001000 08:01 7                          /opt/my lib/liba.so.1 (deleted)\n\
                    7f02-7f03 rw-p 00000000 08:01 8                          /opt/libb.so (deleted)\n\
                    7f03-7f04 r-xp 00000000 08:01 9                          /opt/libc.so\n\
                    7f04-7f05 r-xp 00000000 08:01 10                         /opt/app (deleted)\n\
                    7f05-7f06 rwxp 00000000 00:01 11                         /memfd:jit.so (deleted)\n\
                    7f06-7f07 rwxs 00000000 00:01 12                         /dev/shm/x.so (deleted)\n\
                    7f07-7f08 r-xp 00000000 00:00 0 \n";
        assert_eq!(parse_deleted(maps), ["/opt/my lib/liba.so.1"]);
    }

    #[test]
    fn what_was_sent_comes_before_what_is_installed() {
        let lib = tempfile::tempdir().unwrap();
        assert_eq!(find_folders(lib.path()), None);
        fs::create_dir(lib.path().join("debug-files")).unwrap();
        let expected = format!("{}/debug-files:/usr/lib/debug", lib.path().display());
        assert_eq!(find_folders(lib.path()), Some(expected));
    }
}
