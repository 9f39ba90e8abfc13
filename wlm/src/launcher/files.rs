//! The files from which launchers read programs: inserts words before each program in them.
//!
//! Hydra's `-configfile` and Open MPI's `--app` contain parts of a command line, in which blanks cannot be quoted.
//! Launchers that read a file in the program's place have their own format, which their dialect handles.

use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use gantry_types::error::{Failure, Kind};

use super::dialect::{Dialect, ProgramFiles};
use super::options::locate;
use crate::error::{Error, Result};

/// The maximum size of such a file, before and after the change. A launcher may have a lower limit.
const MAX_FILE_BYTES: usize = 1 << 20;

/// The longest line that every launcher reads completely, in bytes.
const MAX_LINE_BYTES: usize = 8_000;

/// Inserts `shim` before every program that the file's `text` names, and leaves the rest as it is.
///
/// # Errors
/// The error names the line. The launcher would not accept the line, or the place of its program is unknown. A word of
/// `shim` cannot be written in this format. The text is too long.
pub(crate) fn rewrite_file(dialect: &'static Dialect, text: &[u8], shim: &[OsString]) -> Result<Vec<u8>> {
    if text.len() > MAX_FILE_BYTES {
        return Err(Error::invalid(format!("a file with programs has more than {MAX_FILE_BYTES} bytes")));
    }
    let mut written = Vec::with_capacity(text.len() * 2);
    let mut continued = false;
    for (index, line) in text.split_inclusive(|byte| *byte == b'\n').enumerate() {
        let rewritten = match &dialect.files {
            ProgramFiles::InPlace { .. } if continued => Ok(line.to_vec()),
            ProgramFiles::InPlace { rewrite_line, .. } => rewrite_line(line, shim),
            ProgramFiles::Option { comments, .. } => parts_line(dialect, line, shim, comments),
        };
        let rewritten = rewritten.and_then(short_enough).map_err(|error| at_line(&error, index + 1))?;
        continued = trimmed_newline(line).ends_with(b"\\");
        written.extend(rewritten);
        if written.len() > MAX_FILE_BYTES {
            return Err(Error::invalid(format!(
                "a file with programs gets more than {MAX_FILE_BYTES} bytes"
            )));
        }
    }
    if let ProgramFiles::InPlace { max_bytes, .. } = dialect.files
        && written.len() > max_bytes
    {
        let (name, length) = (dialect.name, written.len());
        return Err(Error::invalid_with(
            format!("the file with programs gets {length} bytes, of which {name} reads {max_bytes}"),
            "join lines with the same program, or shorten their arguments",
        ));
    }
    Ok(written)
}

fn at_line(error: &Error, line: usize) -> Error {
    let message = format!("line {line} of the file with programs: {error}");
    Failure::new(Kind::Invalid, message).with_hint_of(error.hint()).into()
}

fn short_enough(line: Vec<u8>) -> Result<Vec<u8>> {
    if line.len() > MAX_LINE_BYTES {
        return Err(Error::invalid(format!("longer than {MAX_LINE_BYTES} bytes")));
    }
    Ok(line)
}

pub(crate) fn trimmed_newline(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\n").unwrap_or(line)
}

/// Handles a line that is a part of a command line: blanks separate, and there is no quoting.
fn parts_line(
    dialect: &'static Dialect,
    line: &[u8],
    shim: &[OsString],
    comments: &[&str],
) -> Result<Vec<u8>> {
    let body = trimmed_newline(line);
    let is_comment = |at: usize| comments.iter().any(|comment| body[at..].starts_with(comment.as_bytes()));
    let end = (0..body.len()).find(|at| is_comment(*at)).unwrap_or(body.len());
    let words = words_of(&body[..end], u8::is_ascii_whitespace);
    if words.is_empty() {
        return Ok(line.to_vec());
    }
    for word in shim {
        let bytes = word.as_bytes();
        let splits = bytes.is_empty() || bytes.iter().any(|byte| byte.is_ascii_whitespace() || *byte == 0);
        if splits || comments.iter().any(|comment| word.to_string_lossy().contains(comment)) {
            return Err(unwritable(word));
        }
    }
    let args: Vec<OsString> =
        words.iter().map(|word| OsString::from_vec(body[word.clone()].to_vec())).collect();
    let parts = locate(dialect, &args, &[])?;
    let shim: Vec<Vec<u8>> = shim.iter().map(|word| word.as_bytes().to_vec()).collect();
    let mut rewritten = line.to_vec();
    // From the last part to the first, so that the remaining positions stay valid.
    for part in parts.iter().rev() {
        if part.file.is_some() {
            return Err(Error::invalid("names another file with programs"));
        }
        rewritten = insert_words(&rewritten, words[part.program].start, &shim);
        let marker = part.options.end;
        if !dialect.knows_marker && marker < part.program {
            rewritten.drain(words[marker].start..words[part.program].start);
        }
    }
    Ok(rewritten)
}

pub(crate) fn unwritable(word: &OsStr) -> Error {
    Error::invalid_with(
        format!("'{}' cannot be written into it", word.to_string_lossy()),
        "a path without blanks, '#' and '//' is needed; or give the programs on the command line",
    )
}

pub(crate) fn words_of(text: &[u8], separates: fn(&u8) -> bool) -> Vec<Range<usize>> {
    let mut words = Vec::new();
    let mut start = None;
    for (at, byte) in text.iter().enumerate() {
        match (separates(byte), start) {
            (true, Some(from)) => {
                words.push(from..at);
                start = None;
            }
            (false, None) => start = Some(at),
            _ => {}
        }
    }
    words.extend(start.map(|from| from..text.len()));
    words
}

pub(crate) fn insert_words(line: &[u8], at: usize, words: &[Vec<u8>]) -> Vec<u8> {
    let mut joined = words.join(&b' ');
    joined.push(b' ');
    [&line[..at], &joined, &line[at..]].concat()
}

#[cfg(test)]
mod tests {
    use super::super::hydra::HYDRA;
    use super::super::openmpi::OPEN_MPI;
    use super::super::tests::check_rewritten as check;
    use super::MAX_FILE_BYTES;

    const SHIM: [&str; 3] = ["/g/agent", "hold", "--"];

    #[test]
    fn lines_of_options_get_the_shim_before_each_program() {
        check(
            &HYDRA,
            "-n 2 -env A b ./a x # -n\n# c\n-n 1 ./b : -np 3 ./c : \n".trim_end_matches(": \n"),
            &SHIM,
            Ok(
                "-n 2 -env A b /g/agent hold -- ./a x # -n\n# c\n-n 1 /g/agent hold -- ./b : -np 3 /g/agent hold -- ./c ",
            ),
        );
        check(&HYDRA, "-odd 2 -- ./a x\n", &["s"], Ok("-odd 2 s ./a x\n"));
        check(&OPEN_MPI, "-np 2 --mca a b ./a // x\n", &["s"], Ok("-np 2 --mca a b s ./a // x\n"));
        check(
            &OPEN_MPI,
            "-np 2 ./a\n",
            &["/x//y"],
            Err("line 1 of the file with programs: '/x//y' cannot be written into it"),
        );
        check(
            &HYDRA,
            "-n 1 ./a\n-odd 2 ./a\n",
            &["s"],
            Err(
                "line 2 of the file with programs: cannot tell where the program begins: option '-odd' of mpiexec.hydra is unknown or ambiguous",
            ),
        );
    }

    #[test]
    fn a_huge_file_is_refused() {
        let text = "./a\n".repeat(MAX_FILE_BYTES / 4 + 1);
        check(&HYDRA, &text, &SHIM, Err("a file with programs has more than 1048576 bytes"));
    }
}
