//! Parses every recording of Slurm's commands as gantry does. A case is a folder under
//! `tests/fixtures/slurm/VERSION/` with the original `argv`, `stdout`, `stderr` and `status`, and the `expected`
//! result.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use super::{parse_failure, parse_layout, parse_steps};
use crate::launcher::find_by_version;

struct Case {
    folder: PathBuf,
    argv: Vec<String>,
    stdout: String,
    stderr: String,
    status: i32,
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

    fn is(&self, words: &[&str]) -> bool {
        words.iter().all(|word| self.argv.iter().any(|arg| arg == word))
    }

    /// gantry's result, one fact per line.
    fn made_of_it(&self) -> String {
        let mut text = String::new();
        if self.status != 0 || (self.stdout.is_empty() && !self.stderr.is_empty()) {
            let failure = parse_failure(&self.argv, &format!("status {}", self.status), &self.stderr);
            writeln!(text, "kind: {}", failure.kind()).unwrap();
            writeln!(text, "message: {}", failure.message()).unwrap();
            writeln!(text, "hint: {}", failure.hint().unwrap_or("-")).unwrap();
        } else if self.is(&["scontrol", "step"]) {
            for step in parse_steps(&self.stdout).unwrap() {
                writeln!(text, "{step:?}").unwrap();
            }
        } else if self.is(&["sattach"]) {
            for node in parse_layout(&self.stdout).unwrap() {
                writeln!(text, "{node:?}").unwrap();
            }
        } else if self.is(&["--version"]) {
            writeln!(text, "{}", find_by_version(&self.stdout).unwrap()).unwrap();
        }
        text
    }
}

fn cases() -> Vec<Case> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/slurm");
    let folders = |path: &Path| -> Vec<PathBuf> {
        let mut found: Vec<PathBuf> =
            fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
        found.sort();
        found
    };
    folders(&root).iter().flat_map(|version| folders(version)).map(|folder| Case::read(&folder)).collect()
}

#[test]
fn every_recording_is_read_as_expected() {
    let mut wrong = String::new();
    let cases = cases();
    assert!(cases.len() > 40, "only {} recordings", cases.len());
    for case in &cases {
        let expected = fs::read_to_string(case.folder.join("expected")).unwrap_or_default();
        let found = case.made_of_it();
        if found != expected || found.is_empty() {
            writeln!(wrong, "{}\nfound:\n{found}expected:\n{expected}", case.folder.display()).unwrap();
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}
