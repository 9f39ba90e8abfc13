//! Recognizes which launcher a file is: by its name, by the target of a link, or by its answer to `--version`.
//!
//! Several launchers are called `mpiexec` or `mpirun`, and a site may give a launcher any name. If the name is
//! ambiguous, the file is run with `--version`. It gets the user's environment, because some launchers find their own
//! parts by variables. Each process asks a file only once.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::dialect::Dialect;
use super::table::{find_by_name, find_by_version};
use crate::error::Error;
use crate::host::{FileVersion, Host};

/// The maximum number of links to follow from a launcher's name to its file. In Debian, `mpiexec` is reached by two.
const MAX_LINKS: usize = 16;

/// The timeout for an answer to `--version`. Launchers answer within milliseconds, on a slow file system within a
/// second.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// The maximum number of characters of an answer in a message.
const MAX_SHOWN_CHARS: usize = 120;

/// A launcher with a known dialect.
#[derive(Debug, Clone)]
pub(crate) struct Recognized {
    /// How it reads its arguments.
    pub dialect: &'static Dialect,
    /// How it was recognized.
    pub by: Telling,
}

impl fmt::Display for Recognized {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "as {} {}", self.dialect.name, self.by)
    }
}

/// How a launcher was recognized.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Telling {
    /// By the name of the file, or of a file in its chain of links.
    Name(String),
    /// By the first line of its answer to `--version`.
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

/// Why a file was not recognized as a launcher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NotRecognized {
    /// Its answer to `--version` starts with this line, which no known launcher prints.
    Says(String),
    /// It is a script for a launcher that stops its ranks itself. That launcher is recognized when the script runs it.
    Script(String),
    /// It prints nothing.
    Silent,
    /// It cannot be run, or did not end within the timeout.
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

/// Recognizes the launcher at that path. If the name is ambiguous, runs it with `--version`, at most once per process.
///
/// # Errors
/// The launcher is unknown.
pub(crate) fn recognize(path: &Path, host: &dyn Host) -> Result<Recognized, NotRecognized> {
    if let Some(recognized) = recognize_by_name(path, host) {
        return Ok(recognized);
    }
    static ANSWERS: Mutex<Option<Answers>> = Mutex::new(None);
    // Without a file version a cached answer cannot be checked, so do not cache it.
    let Some(version) = host.file_version(path) else { return ask(path, host) };
    let key = (path.to_owned(), version);
    let known =
        ANSWERS.lock().unwrap_or_else(PoisonError::into_inner).as_ref().and_then(|it| it.get(&key).cloned());
    if let Some(answer) = known {
        return answer;
    }
    let answer = ask(path, host);
    // Do not cache a failure: it may not happen again.
    if !matches!(answer, Err(NotRecognized::Fails(_))) {
        let mut answers = ANSWERS.lock().unwrap_or_else(PoisonError::into_inner);
        answers.get_or_insert_default().insert(key, answer.clone());
    }
    answer
}

/// Cached answers. The path is part of the key, because a launcher may depend on the name by which it is run.
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

/// Runs the file with `--version`.
fn ask(path: &Path, host: &dyn Host) -> Result<Recognized, NotRecognized> {
    // The command runs in another directory, so the path must be absolute.
    let file =
        if path.is_absolute() { Ok(path.to_owned()) } else { host.current_dir().map(|at| at.join(path)) };
    let command = |file: PathBuf| [file.into_os_string(), "--version".into()];
    let said = file.and_then(|file| host.ask(&command(file), ANSWER_WITHIN));
    let said = said.map_err(|error| NotRecognized::Fails(format!("fails: {error}")))?;
    let answers = [&said.stdout, &said.stderr];
    let shown = answers.iter().find_map(|text| first_line(text)).ok_or(NotRecognized::Silent)?;
    match answers.iter().find_map(|text| find_by_version(text)) {
        // The options in the command line belong to the script, not to the launcher.
        Some(dialect) if dialect.stops_ranks && is_script(path, host) => Err(NotRecognized::Script(shown)),
        Some(dialect) => Ok(Recognized { dialect, by: Telling::Version(shown) }),
        None => Err(NotRecognized::Says(shown)),
    }
}

fn is_script(path: &Path, host: &dyn Host) -> bool {
    host.read(path).is_ok_and(|bytes| bytes.starts_with(b"#!"))
}

/// The first non-empty line, without characters that a terminal cannot show.
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
