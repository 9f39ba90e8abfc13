//! The installed versions of CPython: those in PATH and those of pyenv. And gantry's packages for them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::binaries::workspace;
use crate::preparing::lock;
use crate::{binaries, target_dir};

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

/// A folder for PYTHONPATH: the packages of this clone, with the native parts that are under test.
///
/// # Panics
/// It cannot be made.
#[must_use]
pub fn packages() -> PathBuf {
    let folder = binaries().dir.join("python");
    let _locked = lock(&target_dir().join("python.lock"));
    for (package, sources, native) in [
        ("gantry", "frontend/python", "libgantry_native.so"),
        ("gantry_backend", "backend/python", "libgantry_backend_native.so"),
    ] {
        let there = folder.join(package);
        std::fs::create_dir_all(&there).expect("a folder");
        let files = std::fs::read_dir(workspace().join(sources).join(package)).expect("a package");
        let files = files.map(|file| file.expect("a file").path()).filter(|file| file.is_file());
        for file in files {
            link(&file, &there.join(file.file_name().expect("a name")));
        }
        link(&binaries().dir.join(native), &there.join("_native.abi3.so"));
    }
    folder
}

fn link(file: &Path, at: &Path) {
    if std::fs::read_link(at).is_ok_and(|known| known == file) {
        return;
    }
    std::fs::remove_file(at).ok();
    std::os::unix::fs::symlink(file, at).expect("a link");
}
