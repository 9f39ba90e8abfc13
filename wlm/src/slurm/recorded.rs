//! Every recording of Slurm's commands, read as gantry reads it. A case is a folder under `tests/fixtures/slurm/VERSION/` with `argv`, `stdout`,
//! `stderr` and `status` as they were, and `expected`: what is made of them.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use super::{
    parse_failure, parse_jobs, parse_layout, parse_pids, parse_steps, parse_task_ends, parse_version,
};

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

    /// What gantry makes of it, a fact a line.
    fn made_of_it(&self) -> String {
        let mut text = String::new();
        if self.status != 0 || (self.stdout.is_empty() && !self.stderr.is_empty()) {
            let failure = parse_failure(&self.argv, &format!("status {}", self.status), &self.stderr);
            writeln!(text, "kind: {}", failure.kind()).unwrap();
            writeln!(text, "message: {}", failure.message()).unwrap();
            writeln!(text, "hint: {}", failure.hint().unwrap_or("-")).unwrap();
            for end in parse_task_ends(&self.stderr) {
                writeln!(text, "{end:?}").unwrap();
            }
        } else if self.is(&["squeue", "--json"]) {
            let jobs = match parse_jobs(self.stdout.as_bytes()) {
                Ok(jobs) => jobs,
                Err(error) => {
                    return format!("kind: {}\nmessage: {error}\nhint: {:?}\n", error.kind(), error.hint());
                }
            };
            for job in jobs {
                let (phase, hosts) = (job.phase(), job.hosts.join(","));
                writeln!(
                    text,
                    "{} {} {} {phase:?} {} {} {hosts}",
                    job.id, job.name, job.user_id, job.state, job.reason
                )
                .unwrap();
            }
        } else if self.is(&["scontrol", "listpids"]) {
            for pid in parse_pids(&self.stdout).unwrap() {
                writeln!(text, "{pid:?}").unwrap();
            }
        } else if self.is(&["scontrol", "step"]) {
            for step in parse_steps(&self.stdout).unwrap() {
                writeln!(text, "{step:?}").unwrap();
            }
        } else if self.is(&["sattach"]) {
            for node in parse_layout(&self.stdout).unwrap() {
                writeln!(text, "{node:?}").unwrap();
            }
        } else if self.is(&["--version"]) {
            writeln!(text, "{:?}", parse_version(&self.stdout).unwrap()).unwrap();
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
