//! Which launcher a file is: its name tells, or a link's target, or its answer to `--version`.
//!
//! `mpiexec` and `mpirun` are the names of several launchers, and a site may give a launcher any name. So a file whose name does not tell is
//! run with `--version`, in the user's environment: some launchers find their own parts by variables. One process asks each file once.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::dialect::Dialect;
use super::table::{find_by_name, find_by_version};
use crate::error::Error;
use crate::host::{FileVersion, Host};

/// Links from a launcher's name to its file that are followed: `mpiexec` is one of several by way of two in Debian.
const MAX_LINKS: usize = 16;

/// Time limit for an answer to `--version`. Launchers answer within milliseconds, on a slow file system within a second.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// The most characters of an answer that are shown.
const MAX_SHOWN_CHARS: usize = 120;

/// A launcher whose arguments are understood.
#[derive(Debug, Clone)]
pub(crate) struct Recognized {
    /// How it reads its arguments.
    pub dialect: &'static Dialect,
    /// What told.
    pub by: Telling,
}

impl fmt::Display for Recognized {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "as {} {}", self.dialect.name, self.by)
    }
}

/// What told which launcher a file is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Telling {
    /// The name of the file, or of one that it is a link to.
    Name(String),
    /// The first line that it prints when it is run with `--version`.
    Version(String),
}

impl fmt::Display for Telling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => write!(f, "by its name, {name}"),
            Self::Version(line) => write!(f, "by its answer to --version, '{line}'"),
        }
    }
}

/// Why a file is no launcher whose arguments are understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NotRecognized {
    /// Its first line in answer to `--version`, which no known launcher prints.
    Says(String),
    /// A script for a launcher that stops its ranks itself: that one is found when the script runs it.
    Script(String),
    /// It prints nothing.
    Silent,
    /// It cannot be run, or does not end in time.
    Fails(String),
}

impl fmt::Display for NotRecognized {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Says(line) => write!(f, "its answer to --version is '{line}'"),
            Self::Script(line) => write!(f, "it is a script, whose answer to --version is '{line}'"),
            Self::Silent => f.write_str("it prints nothing when it is run with --version"),
            Self::Fails(why) => write!(f, "run with --version, it {why}"),
        }
    }
}

impl NotRecognized {
    /// The error for the launcher at that path.
    pub(crate) fn into_error(self, path: &Path) -> Error {
        Error::invalid_with(
            format!("{} is not a known launcher: {self}", path.display()),
            "name the launcher's own file, such as mpiexec.hydra or orterun",
        )
    }
}

/// Which launcher is at that path. Runs it with `--version` where no name tells, at most once in a process.
///
/// # Errors
/// It is none that is known.
pub(crate) fn recognize(path: &Path, host: &dyn Host) -> Result<Recognized, NotRecognized> {
    if let Some(recognized) = recognize_by_name(path, host) {
        return Ok(recognized);
    }
    static ANSWERS: Mutex<Option<Answers>> = Mutex::new(None);
    // Without a version of the file nothing tells that an answer is still true.
    let Some(version) = host.file_version(path) else { return ask(path, host) };
    let key = (path.to_owned(), version);
    let known =
        ANSWERS.lock().unwrap_or_else(PoisonError::into_inner).as_ref().and_then(|it| it.get(&key).cloned());
    if let Some(answer) = known {
        return answer;
    }
    let answer = ask(path, host);
    // A failure may be over by the next launch.
    if !matches!(answer, Err(NotRecognized::Fails(_))) {
        let mut answers = ANSWERS.lock().unwrap_or_else(PoisonError::into_inner);
        answers.get_or_insert_default().insert(key, answer.clone());
    }
    answer
}

/// What files have answered. The path belongs to it, as a launcher may behave by the name that it is run by.
type Answers = HashMap<(PathBuf, FileVersion), Result<Recognized, NotRecognized>>;

fn recognize_by_name(path: &Path, host: &dyn Host) -> Option<Recognized> {
    let links = std::iter::successors(Some(path.to_owned()), |at| {
        let target = host.read_link(at).ok()?;
        Some(at.parent().unwrap_or(Path::new("/")).join(target))
    });
    links.take(MAX_LINKS).find_map(|at| {
        let dialect = find_by_name(at.as_os_str())?;
        let name = at.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Some(Recognized { dialect, by: Telling::Name(name) })
    })
}

/// Runs it with `--version`.
fn ask(path: &Path, host: &dyn Host) -> Result<Recognized, NotRecognized> {
    // It is run in another directory.
    let file =
        if path.is_absolute() { Ok(path.to_owned()) } else { host.current_dir().map(|at| at.join(path)) };
    let command = |file: PathBuf| [file.into_os_string(), "--version".into()];
    let said = file.and_then(|file| host.ask(&command(file), ANSWER_WITHIN));
    let said = said.map_err(|error| NotRecognized::Fails(format!("fails: {error}")))?;
    let answers = [&said.stdout, &said.stderr];
    let shown = answers.iter().find_map(|text| first_line(text)).ok_or(NotRecognized::Silent)?;
    match answers.iter().find_map(|text| find_by_version(text)) {
        // Its options are the script's own.
        Some(dialect) if dialect.stops_ranks && is_script(path, host) => Err(NotRecognized::Script(shown)),
        Some(dialect) => Ok(Recognized { dialect, by: Telling::Version(shown) }),
        None => Err(NotRecognized::Says(shown)),
    }
}

fn is_script(path: &Path, host: &dyn Host) -> bool {
    host.read(path).is_ok_and(|bytes| bytes.starts_with(b"#!"))
}

/// The first line with something in it, as far as it can be shown on any terminal.
fn first_line(text: &str) -> Option<String> {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty())?;
    Some(line.chars().take(MAX_SHOWN_CHARS).flat_map(char::escape_debug).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::fake::FakeHost;

    fn host() -> FakeHost {
        FakeHost::default()
            .with_file("/opt/bin/mpirun", "\x7fELF")
            .with_answer("/opt/bin/mpirun --version", "mpirun (Open MPI) 5.0.11\n\nReport bugs\n", "")
            .with_file("/opt/bin/mpiexec", "\x7fELF")
            .with_answer("/opt/bin/mpiexec --version", "HYDRA build details:\n    Version: 5.0.2\n", "")
            .with_file("/opt/bin/chatty", "\x7fELF")
            .with_answer("/opt/bin/chatty --version", "\n", "warning: \x1b[31m\nHYDRA build details:\n")
            .with_file("/opt/bin/wrapped", "#!/bin/sh\nexec mpiexec \"$@\"\n")
            .with_answer("/opt/bin/wrapped --version", "HYDRA build details:\n", "")
            .with_file("/opt/bin/other", "\x7fELF")
            .with_answer("/opt/bin/other --version", "\n  other 1.0\n", "")
            .with_file("/opt/bin/silent", "\x7fELF")
            .with_answer("/opt/bin/silent --version", "", "\n")
            .with_file("/opt/bin/stuck", "\x7fELF")
            .with_link("/opt/bin/alias", "orterun")
    }

    fn check(name: &str, expected: Result<(&str, &str), &str>) {
        let found = recognize(Path::new(name), &host());
        let found = found.map(|it| (it.dialect.ranks.word, it.by.to_string())).map_err(|it| it.to_string());
        let found = found.as_ref().map(|(word, by)| (*word, by.as_str())).map_err(String::as_str);
        assert_eq!(found, expected, "{name}");
    }

    #[test]
    fn a_name_or_a_link_tells_without_a_question() {
        check("/opt/bin/mpiexec.hydra", Ok(("hydra", "by its name, mpiexec.hydra")));
        check("/opt/bin/alias", Ok(("openmpi", "by its name, orterun")));
    }

    #[test]
    fn a_launcher_whose_name_does_not_tell_is_recognized_by_its_version() {
        let open = "by its answer to --version, 'mpirun (Open MPI) 5.0.11'";
        check("/opt/bin/mpirun", Ok(("openmpi", open)));
        let hydra = "by its answer to --version, 'HYDRA build details:'";
        check("/opt/bin/mpiexec", Ok(("hydra", hydra)));
        check("/opt/bin/wrapped", Ok(("hydra", hydra)));
    }

    #[test]
    fn what_an_unknown_launcher_says_is_in_the_error() {
        check("/opt/bin/other", Err("its answer to --version is 'other 1.0'"));
        check("/opt/bin/silent", Err("it prints nothing when it is run with --version"));
        check("/opt/bin/chatty", Err("its answer to --version is 'warning: \\u{1b}[31m'"));
        let stuck = "run with --version, it fails: no answer for '/opt/bin/stuck --version'";
        check("/opt/bin/stuck", Err(stuck));
    }
}
