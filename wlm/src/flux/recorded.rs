//! Parses every recording of Flux's commands as gantry does. A case is a folder under `tests/fixtures/flux/VERSION/`.
//! Its `argv`, `stdout`, `stderr` and `status` are as recorded. Its `expected` is the parsed result.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use super::cause::{cause_of_events, parse_cause};
use super::job::{parse_events, parse_jobs, parse_processes};
use super::launcher::FLUX_RUN;
use super::reference::JobId;
use super::waits::RunWaits;
use super::words::parse_failure;
use crate::LauncherWaits;
use crate::launcher::Takes;
use crate::launcher::tests::help::check;

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

    fn is(&self, verb: &str) -> bool {
        self.argv.iter().any(|word| word == verb)
    }

    /// The parsed result, one fact per line.
    fn made_of_it(&self) -> String {
        let mut text = String::new();
        if self.is("--help") {
            let problems = compare_with_help(&self.stdout);
            writeln!(text, "options that the table has otherwise: {problems:?}").unwrap();
        } else if self.status != 0 {
            let failure = parse_failure(&self.argv, &format!("status {}", self.status), &self.stderr);
            writeln!(text, "kind: {}", failure.kind()).unwrap();
            writeln!(text, "message: {}", failure.message()).unwrap();
            writeln!(text, "hint: {}", failure.hint().unwrap_or("-")).unwrap();
        } else if self.is("list-ids") || self.is("list") {
            for job in parse_jobs(&self.stdout).unwrap() {
                writeln!(text, "{}, {:?}, {:?}", job.describe(), job.phase(), job.hosts()).unwrap();
            }
        } else if self.is("eventlog") {
            let events = parse_events(&self.stdout).unwrap();
            for event in &events {
                writeln!(text, "{}", event.name).unwrap();
            }
            writeln!(text, "{:?}", cause_of_events(JobId(6), &events)).unwrap();
        } else if self.is("hostpids") {
            writeln!(text, "{:?}", parse_processes(&self.stdout).unwrap()).unwrap();
        } else if self.is("uri") {
            text.push_str(&self.stdout);
        }
        for line in self.stderr.lines() {
            if let Some(cause) = parse_cause(line) {
                writeln!(text, "cause: {:?}", cause.kind).unwrap();
            }
            if let Some(wait) = RunWaits.read_line(line) {
                writeln!(text, "{wait:?}").unwrap();
            }
        }
        text
    }
}

/// Differences between the table of options and `flux run --help`: missing options, and options with other values.
fn compare_with_help(help: &str) -> Vec<String> {
    let (mut problems, mut count) = (Vec::new(), 0);
    for line in help.lines().map(str::trim_start).filter(|line| line.starts_with('-')) {
        // The description starts behind two blanks.
        let names = line.split("  ").next().unwrap_or_default();
        let fits = match names.split_once('=') {
            Some((_, value)) if value.ends_with(']') && value.starts_with('[') && !value.contains('@') => {
                Takes::Attached
            }
            Some(_) => Takes::Value,
            None => Takes::Nothing,
        };
        for name in names.split('=').next().unwrap_or_default().split(", ") {
            count += 1;
            check(&FLUX_RUN, name.trim_start_matches('-'), Some(&[fits]), &mut problems);
        }
    }
    assert!(count > 40, "only {count} options found in the help");
    problems
}

fn cases() -> Vec<Case> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/flux");
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
    assert!(cases.len() > 30, "only {} recordings", cases.len());
    for case in &cases {
        let expected = fs::read_to_string(case.folder.join("expected")).unwrap_or_default();
        let found = case.made_of_it();
        if found != expected || found.is_empty() {
            writeln!(wrong, "{}\nfound:\n{found}expected:\n{expected}", case.folder.display()).unwrap();
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}
