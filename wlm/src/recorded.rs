//! Recordings of WLMs' commands, which tests parse as gantry does. A case is a folder `tests/fixtures/WLM/VERSION/CASE`
//! with the original `argv`, `stdout`, `stderr` and `status`, and the `expected` result.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// A recorded command.
pub(crate) struct Case {
    folder: PathBuf,
    pub(crate) argv: Vec<String>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) status: i32,
}

impl Case {
    fn read(folder: &Path) -> Self {
        let text = |name: &str| {
            let path = folder.join(name);
            fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
        };
        Self {
            folder: folder.to_owned(),
            argv: text("argv").lines().map(str::to_owned).collect(),
            stdout: text("stdout"),
            stderr: text("stderr"),
            status: text("status").trim().parse().unwrap(),
        }
    }

    /// Whether the command has all these words.
    pub(crate) fn is(&self, words: &[&str]) -> bool {
        words.iter().all(|word| self.argv.iter().any(|arg| arg == word))
    }
}

/// Fails unless there are more than `least` cases of that WLM, and `parse` makes of each what is expected.
#[track_caller]
pub(crate) fn check_recordings(wlm: &str, least: usize, parse: impl Fn(&Case) -> String) {
    let folders = |path: &Path| -> Vec<PathBuf> {
        let mut found: Vec<PathBuf> =
            fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
        found.sort();
        found
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures").join(wlm);
    let cases: Vec<Case> = folders(&root)
        .iter()
        .flat_map(|version| folders(version))
        .map(|folder| Case::read(&folder))
        .collect();
    assert!(cases.len() > least, "only {} recordings", cases.len());
    let mut wrong = String::new();
    for case in &cases {
        let expected = fs::read_to_string(case.folder.join("expected")).unwrap_or_default();
        let found = parse(case);
        if found != expected || found.is_empty() {
            writeln!(wrong, "{}\nfound:\n{found}expected:\n{expected}", case.folder.display()).unwrap();
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}
