//! Scripts: the program that the kernel starts for a file that begins with `#!` (execve(2)).

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use gantry_shared::search::folders;

/// How much of a file the kernel reads.
pub(super) const LINE_BYTES: usize = 256;

/// The first line of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shebang {
    /// The program.
    pub interpreter: PathBuf,
    /// The rest of the line: one argument, with its spaces.
    pub argument: Option<OsString>,
}

/// Reads the beginning of a file, at most [`LINE_BYTES`] of it. None: it is no script.
pub(super) fn parse_shebang(begin: &[u8]) -> Option<Shebang> {
    let rest = begin.get(..begin.len().min(LINE_BYTES))?.strip_prefix(b"#!")?;
    let line = rest.split(|byte| *byte == b'\n').next()?;
    let line = line.split(|byte| *byte == 0).next()?;
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let trimmed = trim(line);
    let end = trimmed.iter().position(is_blank).unwrap_or(trimmed.len());
    let (interpreter, argument) = trimmed.split_at(end);
    let argument = trim(argument);
    (!interpreter.is_empty()).then(|| Shebang {
        interpreter: PathBuf::from(OsStr::from_bytes(interpreter)),
        argument: (!argument.is_empty()).then(|| OsStr::from_bytes(argument).to_owned()),
    })
}

fn trim(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = text {
        text = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = text {
        text = rest;
    }
    text
}

impl Shebang {
    /// The program that `env` looks up in PATH, if the line names `env`: its first argument, or with `-S` the first
    /// word that is neither an option nor a variable.
    pub(super) fn env_program(&self) -> Option<&OsStr> {
        if self.interpreter.file_name() != Some(OsStr::new("env")) {
            return None;
        }
        let argument = self.argument.as_deref()?.as_bytes();
        let words = match argument.strip_prefix(b"-S").or_else(|| argument.strip_prefix(b"--split-string=")) {
            None if argument.starts_with(b"-") => return None,
            None => return Some(OsStr::from_bytes(argument)),
            Some(words) => words,
        };
        let mut words = words.split(|byte| matches!(byte, b' ' | b'\t')).filter(|word| !word.is_empty());
        let program = words.find(|word| !word.starts_with(b"-") && !word.contains(&b'='));
        program.map(OsStr::from_bytes)
    }
}

/// Finds a program in a PATH.
pub(super) fn find_in_path(
    name: &OsStr,
    path: &OsStr,
    is_program: impl Fn(&Path) -> bool,
) -> Option<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(name));
    }
    folders(path).map(|folder| folder.join(name)).find(|file| is_program(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_lines() {
        let check = |text: &str, expected: Option<(&str, Option<&str>)>| {
            let found = parse_shebang(text.as_bytes());
            let found = found.as_ref().map(|it| {
                (it.interpreter.to_str().unwrap(), it.argument.as_ref().map(|it| it.to_str().unwrap()))
            });
            assert_eq!(found, expected, "{text}");
        };
        check("#!/bin/sh\necho", Some(("/bin/sh", None)));
        check("#! \t/bin/sh -e  -x \n", Some(("/bin/sh", Some("-e  -x"))));
        check("#!bin/x", Some(("bin/x", None)));
        check("#!\n/bin/sh", None);
        check("#", None);
        check("", None);
        check(&format!("#!/{}", "a".repeat(400)), Some((&format!("/{}", "a".repeat(253)), None)));
    }

    #[test]
    fn env_names_the_program_that_counts() {
        let check = |line: &str, expected: Option<&str>| {
            let shebang = parse_shebang(line.as_bytes()).unwrap();
            assert_eq!(shebang.env_program().map(|it| it.to_str().unwrap()), expected, "{line}");
        };
        check("#!/usr/bin/env python3", Some("python3"));
        check("#!/usr/bin/env -S A=b python3 -u", Some("python3"));
        check("#!/usr/bin/env -S -i perl", Some("perl"));
        check("#!/usr/bin/env -i", None);
        check("#!/usr/bin/env", None);
        check("#!/bin/sh x", None);
    }
}
