//! The files from which srun reads programs (`--multi-prog`): `0-3,5 program args`, escapes with a backslash or single
//! quotes.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use crate::launcher::{insert_words, trimmed_newline, unwritable, words_of};
use crate::{Error, Result};

/// The most bytes of such a file that srun reads.
pub(super) const MAX_BYTES: usize = 60_000;

/// The most words of a program that srun accepts in such a file.
const MAX_WORDS: usize = 127;

/// Puts `shim` in front of the program of a line.
pub(super) fn rewrite_line(line: &[u8], shim: &[OsString]) -> Result<Vec<u8>> {
    let body = trimmed_newline(line);
    let words = words_of(body, u8::is_ascii_whitespace);
    let Some(ranks) = words.first() else { return Ok(line.to_vec()) };
    if body[ranks.start] == b'#' {
        return Ok(line.to_vec());
    }
    let program = words.get(1).ok_or_else(|| Error::invalid("ranks without a program"))?;
    if words.len() - 1 + shim.len() > MAX_WORDS {
        return Err(Error::invalid(format!("more than {MAX_WORDS} words, of which srun drops the rest")));
    }
    let escaped: Vec<Vec<u8>> = shim.iter().map(|word| escape(word)).collect::<Result<_>>()?;
    Ok(insert_words(line, program.start, &escaped))
}

/// Writes a word in srun's format. A blank needs a backslash, and `%` would become a rank's number.
pub(super) fn escape(word: &OsStr) -> Result<Vec<u8>> {
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

#[cfg(test)]
mod tests {
    use super::super::SRUN;
    use crate::launcher::tests::check_rewritten;

    fn check(text: &str, shim: &[&str], expected: std::result::Result<&str, &str>) {
        check_rewritten(&SRUN, text, shim, expected);
    }

    const SHIM: [&str; 3] = ["/g/agent", "hold", "--"];

    #[test]
    fn multi_prog_gets_the_shim_before_each_program() {
        check(
            "# all\n\n 0   /bin/echo %t 'a b'\n1-2,5\tprog\n*  rest\\\n 1 more args",
            &SHIM,
            Ok(
                "# all\n\n 0   /g/agent hold -- /bin/echo %t 'a b'\n1-2,5\t/g/agent hold -- prog\n*  /g/agent hold -- rest\\\n 1 more args",
            ),
        );
        check("0 p\n", &["/a b%t'\\"], Ok("0 /a\\ b\\%t\\'\\\\ p\n"));
        // A comment that ends in a backslash hides the next line, as srun reads it.
        check("# x\\\n0 p\n1 q\n", &["s"], Ok("# x\\\n0 p\n1 s q\n"));
        check("0 p\n1\n", &SHIM, Err("line 2 of the file with programs: ranks without a program"));
        check("0 p\n", &["a\nb"], Err("line 1 of the file with programs: 'a\nb' cannot be written into it"));
        let long = format!("0 p {}\n", "x ".repeat(126));
        check(
            &long,
            &SHIM,
            Err("line 1 of the file with programs: more than 127 words, of which srun drops the rest"),
        );
        let long = format!("0 p {}\n", "x".repeat(8_000));
        check(&long, &SHIM, Err("line 1 of the file with programs: longer than 8000 bytes"));
    }

    #[test]
    fn a_file_beyond_sruns_limit_is_refused() {
        let text = "0 program\n".repeat(3_000);
        check(&text, &["/g"], Ok(&"0 /g program\n".repeat(3_000)));
        check(&text, &SHIM, Err("the file with programs gets 81000 bytes, of which srun reads 60000"));
    }
}
