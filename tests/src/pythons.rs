//! The installed versions of CPython: those in PATH and those of pyenv.

use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The real interpreter of a version, such as 11 for 3.11, behind all wrapper scripts. None: it is not installed.
#[must_use]
pub fn python(minor: u32) -> Option<PathBuf> {
    let name = format!("python3.{minor}");
    let pyenv = std::env::var_os("PYENV_ROOT")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".pyenv")));
    let versions =
        pyenv.and_then(|root| std::fs::read_dir(root.join("versions")).ok()).into_iter().flatten().flatten();
    let made = versions.map(|version| version.path().join("bin").join(&name));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let installed: Vec<PathBuf> = std::env::split_paths(&path).map(|folder| folder.join(&name)).collect();
    made.chain(installed).filter(|file| file.is_file()).find_map(|file| {
        let mut command = Command::new(&file);
        command.args(["-c", "import sys; print(sys.executable)"]).stdin(Stdio::null());
        let said = command.output().ok().filter(|done| done.status.success())?;
        std::fs::canonicalize(String::from_utf8(said.stdout).ok()?.trim()).ok()
    })
}
