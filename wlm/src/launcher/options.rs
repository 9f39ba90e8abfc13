//! Walks over a launcher's arguments as the launcher itself does, with a table of its options.
//!
//! The walk finds where the options end and the program begins. For that it needs the number of arguments that each
//! option takes. The meaning of the options does not matter.

use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use super::dialect::{Dialect, Given, Grammar, ProgramFiles, Takes};
use crate::error::{Error, Result};

/// A file that holds the programs instead of the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProgramFile {
    /// The index of the argument that names it.
    pub at: usize,
    /// The length of the text before the file's name in that argument, such as `--app=`.
    pub prefix_bytes: usize,
}

/// One program with its options: the arguments between two `:`, or up to an end of a launcher's arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part {
    /// The options, without a `--` after them.
    pub options: Range<usize>,
    /// The index of the program. If an option names a file with programs, the index behind the options.
    pub program: usize,
    /// The index behind the program's last argument.
    pub end: usize,
    /// The given options, in order, without those that are not in the table.
    pub given: Vec<Given>,
    /// The file that holds the programs, if one does.
    pub file: Option<ProgramFile>,
}

impl Part {
    /// The effective value of the option `name` (its first name in the table): the last given one. An option without a
    /// value yields an empty one.
    pub(crate) fn value(&self, name: &str) -> Option<&OsStr> {
        let given = self.given.iter().rev().find(|given| given.name == name)?;
        Some(given.values.first().map_or(OsStr::new(""), OsString::as_os_str))
    }
}

/// The state of a walk.
struct Walk<'a> {
    dialect: &'static Dialect,
    args: &'a [OsString],
    next: usize,
    given: Vec<Given>,
    file: Option<ProgramFile>,
}

/// The kind of an argument.
enum Step {
    /// An option, whose values have been taken.
    Taken,
    /// The program. Everything behind it belongs to the program.
    Program,
    /// `--`: the program follows.
    Marker,
}

/// Finds the programs in a launcher's arguments (without the launcher's own name). `environment` is the launcher's
/// environment.
///
/// # Errors
/// There is no program. An option lacks its value. An option is unknown, so the end of the options is unknown: the
/// message names the option, and the hint asks for `--` before the program.
pub(crate) fn locate(
    dialect: &'static Dialect,
    args: &[OsString],
    environment: &[(OsString, OsString)],
) -> Result<Vec<Part>> {
    let mut parts = Vec::new();
    let mut start = usize::from(find_verb(dialect, args).is_some());
    loop {
        let part = locate_part(dialect, args, start, environment)?;
        start = part.end + 1;
        let last = part.end == args.len();
        parts.push(part);
        if last {
            break;
        }
    }
    if parts.len() > 1 && parts.iter().any(|part| part.file.is_some()) && !dialect.reads_in_place() {
        return Err(Error::invalid(format!(
            "{} is given programs both in a file and on the command line",
            dialect.name
        )));
    }
    Ok(parts)
}

/// Finds the verb in front of the options, which selects the launcher's action. `None`: there is none.
pub(super) fn find_verb<'a>(dialect: &Dialect, args: &'a [OsString]) -> Option<&'a OsString> {
    args.first().filter(|first| dialect.verbs.iter().any(|verb| *first == verb))
}

fn locate_part(
    dialect: &'static Dialect,
    args: &[OsString],
    start: usize,
    environment: &[(OsString, OsString)],
) -> Result<Part> {
    let mut walk = Walk { dialect, args, next: start, given: Vec::new(), file: None };
    let (options_end, program) = walk.find_program()?;
    let end = end_of_part(args, program);
    if let Some(given) = walk.given.iter().find(|given| dialect.runs_nothing.contains(&given.name)) {
        return Err(Error::invalid(format!(
            "nothing to launch: '{}' makes {} print something or try only",
            args[given.at].to_string_lossy(),
            dialect.name
        )));
    }
    let mut file = walk.file;
    if let ProgramFiles::InPlace { is_given, .. } = &dialect.files
        && is_given(&walk.given, environment)
    {
        file = Some(ProgramFile { at: program, prefix_bytes: 0 });
    }
    let has_program = program < end;
    match (has_program, file) {
        (false, None) => Err(no_program(dialect)),
        (false, Some(_)) if dialect.reads_in_place() => Err(no_program(dialect)),
        (true, Some(_)) if !dialect.reads_in_place() => Err(Error::invalid(format!(
            "{} is given programs both in a file and on the command line",
            dialect.name
        ))),
        _ if has_program && args[program].is_empty() => Err(Error::invalid("the program's name is empty")),
        _ => Ok(Part { options: start..options_end, program, end, given: walk.given, file }),
    }
}

fn no_program(dialect: &Dialect) -> Error {
    Error::invalid_with(
        format!("nothing to launch: no program in the arguments of {}", dialect.name),
        "write the launcher's options, then the program and its arguments",
    )
}

/// The index of the `:` that ends the part, or the end of all arguments.
fn end_of_part(args: &[OsString], from: usize) -> usize {
    args.iter().skip(from).position(|arg| arg == ":").map_or(args.len(), |found| from + found)
}

impl Walk<'_> {
    /// Walks over the options. Returns the index behind them and the index of the program.
    fn find_program(&mut self) -> Result<(usize, usize)> {
        while self.next < self.args.len() {
            let at = self.next;
            match self.step() {
                Ok(Step::Taken) => {}
                Ok(Step::Program) => return Ok((at, at)),
                Ok(Step::Marker) => return Ok((at, at + 1)),
                Err(error) => {
                    let marker = self.marker_after(at).ok_or(error)?;
                    self.note_until(at, marker);
                    return Ok((marker, marker + 1));
                }
            }
        }
        Ok((self.next, self.next))
    }

    /// Finds a `--` that shows where the program is, although the option at `at` is unknown.
    fn marker_after(&self, at: usize) -> Option<usize> {
        let end = end_of_part(self.args, at);
        (at..end).find(|index| self.args[*index] == "--")
    }

    /// Records the known options between the unknown one at `at` and the marker. A word that is not an option counts as
    /// a value.
    fn note_until(&mut self, at: usize, marker: usize) {
        self.next = at + 1;
        while self.next < marker {
            let here = self.next;
            if !matches!(self.step(), Ok(Step::Taken)) {
                self.next = here + 1;
            }
        }
    }

    fn step(&mut self) -> Result<Step> {
        let arg = self.args[self.next].as_bytes();
        match arg {
            b"--" => return Ok(Step::Marker),
            b":" => return Ok(Step::Program),
            [b'-', rest @ ..] if !rest.is_empty() => {}
            // One launcher takes a lone dash as an option without a name. To the others it is the program.
            _ => return Ok(Step::Program),
        }
        let single = !arg.starts_with(b"--");
        match self.dialect.grammar {
            Grammar::Getopt if single => self.letters()?,
            Grammar::Getopt => self.long(&arg[2..])?,
            Grammar::AnyDashes | Grammar::OneOrTwoDashes => self.whole_name()?,
        }
        Ok(Step::Taken)
    }

    /// Parses `-lN4`: letters, up to one with a value. The value is the rest or the next argument.
    fn letters(&mut self) -> Result<()> {
        let at = self.next;
        let arg = self.args[at].as_bytes();
        for index in 1..arg.len() {
            let rest = &arg[index + 1..];
            let letter = &arg[index..=index];
            let (name, takes) = self.find(letter).ok_or_else(|| self.unknown(at))?;
            match takes {
                Takes::Nothing => self.take(name, at, None, 0)?,
                Takes::Attached => return self.take(name, at, non_empty(rest), 0),
                _ => return self.take(name, at, non_empty(rest), 1),
            }
            self.next = at;
        }
        self.next = at + 1;
        Ok(())
    }

    /// Parses `--name`, `--name=value`, `--name value`, or a unique prefix of the name.
    fn long(&mut self, text: &[u8]) -> Result<()> {
        let at = self.next;
        let (written, value) = split_value(text);
        let Some((name, takes)) = self.find(written).or_else(|| self.find_beginning(written)) else {
            // A plugin or a newer version knows this option. Its value is attached, so it takes no other argument.
            if value.is_some() {
                self.next += 1;
                return Ok(());
            }
            return Err(self.unknown(at));
        };
        match takes {
            Takes::Nothing | Takes::Attached => self.take(name, at, value, 0),
            _ => self.take(name, at, value, 1),
        }
    }

    /// Parses `-name` or `--name`, with values behind it or one attached with `=`.
    fn whole_name(&mut self) -> Result<()> {
        let at = self.next;
        let arg = self.args[at].as_bytes();
        let dashes = arg.iter().take_while(|byte| **byte == b'-').count();
        let (written, value) = split_value(&arg[dashes..]);
        let Some((name, takes)) = self.find(written) else {
            return match self.attached_number(&arg[dashes..], dashes) {
                Some((name, value)) => self.take(name, at, Some(value), 1),
                None => Err(self.unknown(at)),
            };
        };
        match (takes, value) {
            (Takes::Depends, None) => Err(self.unknown(at)),
            (Takes::Depends, value) => self.take(name, at, value, 0),
            (Takes::Nothing, Some(_)) if self.dialect.grammar == Grammar::AnyDashes => {
                Err(Error::invalid(format!(
                    "option '{}' of {} takes no value",
                    self.args[at].to_string_lossy(),
                    self.dialect.name
                )))
            }
            (Takes::Nothing | Takes::Attached, value) => self.take(name, at, value, 0),
            (Takes::Value, value) => self.take(name, at, value, 1),
            (Takes::Two, value) => self.take(name, at, value, 2),
            (Takes::Assignment, value) => {
                let first = value.or_else(|| self.args.get(at + 1).map(|arg| arg.as_bytes()));
                let whole = first.is_some_and(|first| first.contains(&b'='));
                self.take(name, at, value, if whole { 1 } else { 2 })
            }
        }
    }

    /// Parses `-n4` for a launcher that has no clusters of letters but accepts this form.
    fn attached_number<'b>(&self, text: &'b [u8], dashes: usize) -> Option<(&'static str, &'b [u8])> {
        let digits = text.get(1..)?;
        let fits = dashes == 1 && !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
        let (name, takes) = self.find(&text[..1])?;
        (fits && self.dialect.grammar == Grammar::OneOrTwoDashes && takes == Takes::Value)
            .then_some((name, digits))
    }

    /// Records the option at `at` with `count` values and steps over them. The first value may be attached.
    fn take(&mut self, name: &'static str, at: usize, attached: Option<&[u8]>, count: usize) -> Result<()> {
        let mut values: Vec<OsString> =
            attached.map(|value| OsString::from_vec(value.to_vec())).into_iter().collect();
        let missing = count.saturating_sub(values.len());
        let behind = at + 1;
        let following = self.args.get(behind..behind + missing).ok_or_else(|| {
            Error::invalid(format!(
                "option '{}' of {} lacks its value",
                self.args[at].to_string_lossy(),
                self.dialect.name
            ))
        })?;
        if let ProgramFiles::Option { names, .. } = &self.dialect.files
            && names.contains(&name)
        {
            let prefix_bytes = attached.map_or(0, |value| self.args[at].len() - value.len());
            let at = if attached.is_some() { at } else { behind };
            self.file = Some(ProgramFile { at, prefix_bytes });
        }
        values.extend(following.iter().cloned());
        self.given.push(Given { name, at, values });
        self.next = behind + missing;
        Ok(())
    }

    /// Finds the option with that name: its first name and the values it takes.
    fn find(&self, written: &[u8]) -> Option<(&'static str, Takes)> {
        let any_case = self.dialect.grammar == Grammar::AnyDashes;
        self.dialect.rows().find_map(|(names, takes)| {
            let same = |name: &str| {
                name.as_bytes() == written || (any_case && name.as_bytes().eq_ignore_ascii_case(written))
            };
            names.split(' ').any(same).then(|| (first_name(names), takes))
        })
    }

    /// Finds the option with the prefix `written`, if all such options take the same values.
    fn find_beginning(&self, written: &[u8]) -> Option<(&'static str, Takes)> {
        let mut candidates = self.dialect.rows().filter(|(names, _)| {
            !written.is_empty()
                && names.split(' ').any(|name| name.len() > 1 && name.as_bytes().starts_with(written))
        });
        let (names, takes) = candidates.next()?;
        let mut name = first_name(names);
        for (_, other) in candidates {
            if other != takes {
                return None;
            }
            // The launcher will reject the ambiguous name with its own message. Here it must not count as one of the
            // options.
            name = "";
        }
        Some((name, takes))
    }

    fn unknown(&self, at: usize) -> Error {
        Error::invalid_with(
            format!(
                "cannot tell where the program begins: option '{}' of {} is unknown or ambiguous",
                self.args[at].to_string_lossy(),
                self.dialect.name
            ),
            "write '--' before the program",
        )
    }
}

fn first_name(names: &'static str) -> &'static str {
    names.split(' ').next().unwrap_or(names)
}

fn non_empty(text: &[u8]) -> Option<&[u8]> {
    (!text.is_empty()).then_some(text)
}

fn split_value(text: &[u8]) -> (&[u8], Option<&[u8]>) {
    match text.iter().position(|byte| *byte == b'=') {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    }
}
