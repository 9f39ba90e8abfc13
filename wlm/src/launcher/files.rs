//! The files from which launchers read programs: what stands in front of each program is put into them.
//!
//! Three formats, none of which knows the others' quoting: srun's `--multi-prog` (`0-3,5 program args`, escapes with a backslash or single
//! quotes), Hydra's `-configfile` (a line is a part of the command line, blanks cannot be written) and Open MPI's `--app` (the same, with
//! `//` as a comment too).

use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use super::dialect::{Dialect, Launcher};
use super::options::locate;
use crate::error::{Error, Result};

/// The most bytes such a file may have, before and after. A launcher takes less: srun 60,000.
pub(crate) const MAX_FILE_BYTES: usize = 1 << 20;

/// The most bytes of a `--multi-prog` file that srun reads.
const MAX_MULTI_PROG_BYTES: usize = 60_000;

/// The longest line that all three launchers read whole, in bytes.
const MAX_LINE_BYTES: usize = 8_000;

/// The most words that srun gives a program from such a file.
const MAX_MULTI_PROG_WORDS: usize = 127;

/// Puts `shim` in front of every program that the file's `text` names, and leaves the rest as it is.
///
/// # Errors
/// With the number of the line: one that the launcher would not take, or in which it cannot be told where the program stands. A word of
/// `shim` cannot be written in this format. The text is too long.
pub(crate) fn rewrite_file(dialect: &'static Dialect, text: &[u8], shim: &[OsString]) -> Result<Vec<u8>> {
    if text.len() > MAX_FILE_BYTES {
        return Err(Error::invalid(format!("a file with programs has more than {MAX_FILE_BYTES} bytes")));
    }
    let mut written = Vec::with_capacity(text.len() * 2);
    let mut continued = false;
    for (index, line) in text.split_inclusive(|byte| *byte == b'\n').enumerate() {
        let rewritten = match dialect.launcher {
            Launcher::Srun if continued => Ok(line.to_vec()),
            Launcher::Srun => multi_prog_line(line, shim),
            Launcher::Hydra => parts_line(dialect, line, shim, &["#"]),
            Launcher::OpenMpi | Launcher::Prrte => parts_line(dialect, line, shim, &["#", "//"]),
        };
        let rewritten = rewritten.and_then(short_enough).map_err(|error| at_line(&error, index + 1))?;
        continued = dialect.launcher == Launcher::Srun && trimmed_newline(line).ends_with(b"\\");
        written.extend(rewritten);
        if written.len() > MAX_FILE_BYTES {
            return Err(Error::invalid(format!(
                "a file with programs gets more than {MAX_FILE_BYTES} bytes"
            )));
        }
    }
    if dialect.launcher == Launcher::Srun && written.len() > MAX_MULTI_PROG_BYTES {
        let message = format!(
            "the file with programs gets {} bytes, of which srun reads {MAX_MULTI_PROG_BYTES}",
            written.len()
        );
        return Err(Error::invalid_with(
            message,
            "join lines with the same program, or shorten their arguments",
        ));
    }
    Ok(written)
}

fn at_line(error: &Error, line: usize) -> Error {
    Error::Invalid { message: format!("line {line} of the file with programs: {error}"), hint: error.hint() }
}

fn short_enough(line: Vec<u8>) -> Result<Vec<u8>> {
    if line.len() > MAX_LINE_BYTES {
        return Err(Error::invalid(format!("longer than {MAX_LINE_BYTES} bytes")));
    }
    Ok(line)
}

fn trimmed_newline(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\n").unwrap_or(line)
}

/// A line of srun's format.
fn multi_prog_line(line: &[u8], shim: &[OsString]) -> Result<Vec<u8>> {
    let body = trimmed_newline(line);
    let words = words_of(body, u8::is_ascii_whitespace);
    let Some(ranks) = words.first() else { return Ok(line.to_vec()) };
    if body[ranks.start] == b'#' {
        return Ok(line.to_vec());
    }
    let program = words.get(1).ok_or_else(|| Error::invalid("ranks without a program"))?;
    if words.len() - 1 + shim.len() > MAX_MULTI_PROG_WORDS {
        return Err(Error::invalid(format!(
            "more than {MAX_MULTI_PROG_WORDS} words, of which srun drops the rest"
        )));
    }
    let escaped: Vec<Vec<u8>> = shim.iter().map(|word| escape_multi_prog(word)).collect::<Result<_>>()?;
    Ok(insert_words(line, program.start, &escaped))
}

/// A word as srun's format writes it. A blank inside it needs a backslash, and `%` would be a rank's number.
pub(crate) fn escape_multi_prog(word: &OsStr) -> Result<Vec<u8>> {
    let bytes = word.as_bytes();
    if bytes.is_empty() || bytes.contains(&b'\n') || bytes.contains(&0) {
        return Err(unwritable(word));
    }
    let mut escaped = Vec::with_capacity(bytes.len());
    for byte in bytes {
        if byte.is_ascii_whitespace() || *byte == 0x0b || matches!(byte, b'%' | b'\'' | b'\\') {
            escaped.push(b'\\');
        }
        escaped.push(*byte);
    }
    Ok(escaped)
}

/// A line that is a piece of a command line, in which blanks separate and nothing quotes.
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
    // From the last to the first, so that positions of what is still to do stay true.
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

fn unwritable(word: &OsStr) -> Error {
    Error::invalid_with(
        format!("'{}' cannot be written into it", word.to_string_lossy()),
        "a path without blanks, '#' and '//' is needed; or give the programs on the command line",
    )
}

fn words_of(text: &[u8], separates: fn(&u8) -> bool) -> Vec<Range<usize>> {
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

fn insert_words(line: &[u8], at: usize, words: &[Vec<u8>]) -> Vec<u8> {
    let mut joined = words.join(&b' ');
    joined.push(b' ');
    [&line[..at], &joined, &line[at..]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launcher::dialect_of;

    fn check(launcher: Launcher, text: &str, shim: &[&str], expected: std::result::Result<&str, &str>) {
        let shim: Vec<OsString> = shim.iter().map(OsString::from).collect();
        let found = rewrite_file(dialect_of(launcher), text.as_bytes(), &shim)
            .map(|text| String::from_utf8(text).unwrap())
            .map_err(|error| error.to_string());
        assert_eq!(found.as_deref().map_err(String::as_str), expected, "{text}");
    }

    const SHIM: [&str; 3] = ["/g/agent", "hold", "--"];

    #[test]
    fn multi_prog_gets_the_shim_before_each_program() {
        check(
            Launcher::Srun,
            "# all\n\n 0   /bin/echo %t 'a b'\n1-2,5\tprog\n*  rest\\\n 1 more args",
            &SHIM,
            Ok(
                "# all\n\n 0   /g/agent hold -- /bin/echo %t 'a b'\n1-2,5\t/g/agent hold -- prog\n*  /g/agent hold -- rest\\\n 1 more args",
            ),
        );
        check(Launcher::Srun, "0 p\n", &["/a b%t'\\"], Ok("0 /a\\ b\\%t\\'\\\\ p\n"));
        // A comment that ends in a backslash hides the next line, as srun reads it.
        check(Launcher::Srun, "# x\\\n0 p\n1 q\n", &["s"], Ok("# x\\\n0 p\n1 s q\n"));
        check(
            Launcher::Srun,
            "0 p\n1\n",
            &SHIM,
            Err("line 2 of the file with programs: ranks without a program"),
        );
        check(
            Launcher::Srun,
            "0 p\n",
            &["a\nb"],
            Err("line 1 of the file with programs: 'a\nb' cannot be written into it"),
        );
        let long = format!("0 p {}\n", "x ".repeat(126));
        check(
            Launcher::Srun,
            &long,
            &SHIM,
            Err("line 1 of the file with programs: more than 127 words, of which srun drops the rest"),
        );
        let long = format!("0 p {}\n", "x".repeat(8_000));
        check(Launcher::Srun, &long, &SHIM, Err("line 1 of the file with programs: longer than 8000 bytes"));
    }

    #[test]
    fn lines_of_options_get_the_shim_before_each_program() {
        check(
            Launcher::Hydra,
            "-n 2 -env A b ./a x # -n\n# c\n-n 1 ./b : -np 3 ./c : \n".trim_end_matches(": \n"),
            &SHIM,
            Ok(
                "-n 2 -env A b /g/agent hold -- ./a x # -n\n# c\n-n 1 /g/agent hold -- ./b : -np 3 /g/agent hold -- ./c ",
            ),
        );
        check(Launcher::Hydra, "-odd 2 -- ./a x\n", &["s"], Ok("-odd 2 s ./a x\n"));
        check(Launcher::OpenMpi, "-np 2 --mca a b ./a // x\n", &["s"], Ok("-np 2 --mca a b s ./a // x\n"));
        check(
            Launcher::OpenMpi,
            "-np 2 ./a\n",
            &["/x//y"],
            Err("line 1 of the file with programs: '/x//y' cannot be written into it"),
        );
        check(
            Launcher::Hydra,
            "-n 1 ./a\n-odd 2 ./a\n",
            &["s"],
            Err(
                "line 2 of the file with programs: cannot tell where the program begins: option '-odd' of mpiexec.hydra is unknown or ambiguous",
            ),
        );
    }

    #[test]
    fn a_file_that_grows_beyond_what_srun_reads_is_refused() {
        let text = "0 program\n".repeat(3_000);
        check(Launcher::Srun, &text, &["/g"], Ok(&"0 /g program\n".repeat(3_000)));
        check(
            Launcher::Srun,
            &text,
            &SHIM,
            Err("the file with programs gets 81000 bytes, of which srun reads 60000"),
        );
    }

    #[test]
    fn a_huge_file_is_refused() {
        let text = "0 p\n".repeat(MAX_FILE_BYTES / 4 + 1);
        check(Launcher::Srun, &text, &SHIM, Err("a file with programs has more than 1048576 bytes"));
    }
}
