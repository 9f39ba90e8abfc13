//! Finds the programs under test.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::preparing::lock;

/// Where the three programs are; absolute paths in one folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binaries {
    /// The folder that holds them all.
    pub dir: PathBuf,
    /// The command line.
    pub gantry: PathBuf,
    /// The helper on the login side.
    pub guard: PathBuf,
    /// The helper on every node.
    pub agent: PathBuf,
}

/// The programs under test: from the folder `GANTRY_BIN_DIR`, else built once with the profile of this test.
///
/// # Panics
/// When they cannot be built or are not there.
#[must_use]
pub fn binaries() -> &'static Binaries {
    static FOUND: OnceLock<Binaries> = OnceLock::new();
    FOUND.get_or_init(|| {
        let dir = match std::env::var_os("GANTRY_BIN_DIR") {
            Some(dir) => PathBuf::from(dir),
            None => build(),
        };
        let dir = dir.canonicalize().unwrap_or_else(|error| panic!("binaries in {}: {error}", dir.display()));
        let program = |name: &str| {
            let path = dir.join(name);
            assert!(
                path.is_file(),
                "{} is not there; GANTRY_BIN_DIR may name a wrong folder",
                path.display()
            );
            path
        };
        let (gantry, guard, agent) = (program("gantry"), program("gantry-guard"), program("gantry-agent"));
        Binaries { dir, gantry, guard, agent }
    })
}

/// Cargo's target directory, taken from where this program lies (`target/PROFILE/deps/NAME-HASH` or `target/PROFILE/NAME`).
#[must_use]
pub fn target_dir() -> PathBuf {
    match profile_dir().and_then(|dir| dir.parent().map(Path::to_path_buf)) {
        Some(target) => target,
        // A documentation test lies somewhere else.
        None => workspace().join("target"),
    }
}

/// The folder of this repository.
pub(crate) fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new(".")).to_path_buf()
}

fn profile_dir() -> Option<PathBuf> {
    let exe = std::env::current_exe().ok()?;
    let folder = exe.parent()?;
    if folder.file_name()? == "deps" {
        return folder.parent().map(Path::to_path_buf);
    }
    // A program of this package lies beside the folder of test binaries.
    folder.join("deps").is_dir().then(|| folder.to_path_buf())
}

/// This clone and its build folders: absolute, without links, outer folders first.
pub(crate) fn clone_folders() -> Vec<PathBuf> {
    let exe = std::env::current_exe().unwrap_or_default();
    let programs = exe.parent().map(Path::to_path_buf);
    let all = [Some(workspace()), Some(target_dir()), programs].into_iter().flatten();
    let mut folders: Vec<PathBuf> = all.filter_map(|folder| folder.canonicalize().ok()).collect();
    folders.sort_unstable();
    folders.dedup();
    folders
}

fn build() -> PathBuf {
    let target = target_dir();
    let folder = profile_dir().unwrap_or_else(|| target.join("debug"));
    let profile = match folder.file_name().and_then(|name| name.to_str()) {
        None | Some("debug") => "dev",
        // Benches lie there. What they measure is built as what is installed.
        Some("release") => "bench",
        Some(other) => other,
    };
    let _locked = lock(&target.join("test-binaries.lock"));
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let build = |what: &[&str]| {
        let built = Command::new(&cargo)
            .args(["build", "--quiet", "--bins", "--lib", "--profile", profile, "--target-dir"])
            .arg(&target)
            .args(what)
            .current_dir(workspace())
            .stdin(Stdio::null())
            .output()
            .expect("cargo");
        let said = String::from_utf8_lossy(&built.stderr);
        assert!(built.status.success(), "cargo build: {}\n{said}", built.status);
    };
    build(&["--workspace"]);
    if profile == "bench" {
        // As `cargo xtask install` builds them: without the features that other crates ask for.
        build(&["--package", "gantry-agent", "--package", "gantry-stackd", "--package", "gantry-gdbd"]);
    }
    folder
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_three_programs_are_found_in_one_folder() {
        let found = binaries();
        assert!(found.dir.is_absolute());
        for program in [&found.gantry, &found.guard, &found.agent] {
            assert_eq!(program.parent(), Some(found.dir.as_path()));
        }
    }
}
