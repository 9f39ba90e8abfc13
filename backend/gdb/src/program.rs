//! Finds the debugger on this node.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use gantry_gdb::answer::Reply;
use gantry_shared::search::folders;
use gantry_shared::trust::{Distrust, Trust};

/// The program with that name or path, if only trusted users can change it.
pub(crate) fn find(name: &OsStr, path: &OsStr, host: &str) -> Result<PathBuf, Reply> {
    let named = Path::new(name);
    let tried: Vec<PathBuf> = match named.is_absolute() {
        true => vec![named.to_owned()],
        false => folders(path).map(|folder| folder.join(named)).collect(),
    };
    let trust = Trust::of_process();
    let mut refused: Option<Distrust> = None;
    for candidate in tried {
        match trust.check_program(&candidate) {
            Ok(()) => return Ok(candidate),
            Err(distrust) if distrust.is_missing() => {}
            Err(distrust) => refused = refused.or(Some(distrust)),
        }
    }
    let name = name.to_string_lossy();
    let (error, hint) = match refused {
        Some(distrust) => (format!("{name} on {host} is not used: {distrust}"), distrust.hint()),
        None => (
            format!("there is no {name} on {host}"),
            "install it on the nodes, or name another debugger by --gdb PROGRAM".to_owned(),
        ),
    };
    Err(Reply { said: String::new(), error: Some(error), hint: Some(hint) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_debugger_is_found_or_missed_by_name() {
        let found = find(OsStr::new("sh"), OsStr::new("/nowhere:/bin:/usr/bin"), "n1").unwrap();
        assert!(found.ends_with("sh"));
        assert_eq!(find(OsStr::new("/bin/sh"), OsStr::new(""), "n1").unwrap(), Path::new("/bin/sh"));
        let missing = find(OsStr::new("nosuchgdb"), OsStr::new("/bin"), "n1").unwrap_err();
        assert_eq!(missing.error.unwrap(), "there is no nosuchgdb on n1");
        assert!(missing.hint.unwrap().contains("--gdb"));
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("gdb"), "").unwrap();
        let everybodys: std::fs::Permissions = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(folder.path().join("gdb"), everybodys).unwrap();
        let refused = find(OsStr::new("gdb"), folder.path().as_os_str(), "n1").unwrap_err();
        assert!(refused.error.unwrap().starts_with("gdb on n1 is not used"));
    }
}
