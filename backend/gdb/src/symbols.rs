//! Debug information: what this node lacks, and where gdb finds what the login side has sent.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use gantry_gdb::DEBUG_FILES;
use gantry_gdb::answer::Program;
use gantry_shared::build_id::read_build_id;
use gantry_shared::elf::has_section;

/// Where distributions install debug information, and where gdb searches by default.
const INSTALLED: &str = "/usr/lib/debug";

/// A process's program, if this node has no debug information for it and another machine's can be recognized.
///
/// # Errors
/// The process has ended, or its program may not be read.
pub(crate) fn find_lack(pid: i32) -> io::Result<Option<Program>> {
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
pub(crate) fn find_folders(lib: &Path) -> Option<String> {
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
    fn what_was_sent_comes_before_what_is_installed() {
        let lib = tempfile::tempdir().unwrap();
        assert_eq!(find_folders(lib.path()), None);
        fs::create_dir(lib.path().join("debug-files")).unwrap();
        let expected = format!("{}/debug-files:/usr/lib/debug", lib.path().display());
        assert_eq!(find_folders(lib.path()), Some(expected));
    }
}
