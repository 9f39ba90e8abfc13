//! Splits the string of `--daemon` into words as a shell does, and expands nothing.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// The words of `text`. Blanks separate; `'...'` keeps everything; `"..."` keeps everything but a backslash before `"`, `\`, `$` and
/// a backtick; elsewhere a backslash keeps the next character.
///
/// # Errors
/// A quote that is not closed, or a backslash at the end.
pub(crate) fn split_words(text: &OsStr) -> Result<Vec<OsString>, String> {
    let mut bytes = text.as_bytes().iter().copied();
    let mut words = Vec::new();
    let mut word: Option<Vec<u8>> = None;
    while let Some(byte) = bytes.next() {
        match byte {
            b' ' | b'\t' | b'\n' => words.extend(word.take().map(OsString::from_vec)),
            b'\'' => take_quoted(&mut bytes, word.get_or_insert_default(), b'\'')?,
            b'"' => take_quoted(&mut bytes, word.get_or_insert_default(), b'"')?,
            b'\\' => {
                let kept = bytes.next().ok_or("a backslash at the end")?;
                word.get_or_insert_default().push(kept);
            }
            byte => word.get_or_insert_default().push(byte),
        }
    }
    words.extend(word.map(OsString::from_vec));
    Ok(words)
}

/// Takes everything up to the closing `quote` into `word`.
fn take_quoted(bytes: &mut impl Iterator<Item = u8>, word: &mut Vec<u8>, quote: u8) -> Result<(), String> {
    let not_closed = || format!("the quote {} is not closed", char::from(quote));
    loop {
        match bytes.next().ok_or_else(not_closed)? {
            byte if byte == quote => return Ok(()),
            b'\\' if quote == b'"' => {
                let next = bytes.next().ok_or_else(not_closed)?;
                if !matches!(next, b'"' | b'\\' | b'$' | b'`') {
                    word.push(b'\\');
                }
                word.push(next);
            }
            byte => word.push(byte),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(text: &str, expected: Result<&[&str], &str>) {
        let expected =
            expected.map(|words| words.iter().map(OsString::from).collect()).map_err(str::to_owned);
        assert_eq!(split_words(OsStr::new(text)), expected, "{text}");
    }

    #[test]
    fn words_are_split_as_a_shell_does() {
        check("", Ok(&[]));
        check("  ", Ok(&[]));
        check("a b\tc\nd", Ok(&["a", "b", "c", "d"]));
        check(" a  b ", Ok(&["a", "b"]));
        check("'a b' \"c d\"", Ok(&["a b", "c d"]));
        check("a'b'\"c\"d", Ok(&["abcd"]));
        check("'' \"\"", Ok(&["", ""]));
        check(r"a\ b \'", Ok(&["a b", "'"]));
        check(r"'\n' '\'", Ok(&[r"\n", r"\"]));
        check(r#""\"\\\$\`\n""#, Ok(&[r#""\$`\n"#]));
        check("$HOME *", Ok(&["$HOME", "*"]));
        check("'a", Err("the quote ' is not closed"));
        check("\"a\\", Err("the quote \" is not closed"));
        check("a\\", Err("a backslash at the end"));
    }

    proptest! {
        #[test]
        fn quoted_words_read_back(words in proptest::collection::vec("\\PC*", 0..5)) {
            let quoted: Vec<String> = words.iter().map(|word| format!("'{}'", word.replace('\'', r"'\''"))).collect();
            let words: Vec<OsString> = words.into_iter().map(OsString::from).collect();
            prop_assert_eq!(split_words(OsStr::new(&quoted.join(" "))), Ok(words));
        }
    }
}
