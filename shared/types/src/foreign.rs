//! Foreign text: names of programs, files and hosts, and messages of other processes and machines.
//!
//! Such text may contain terminal control characters. These could clear the screen, forge a line of a listing, or
//! reverse the reading direction. So only [`ForeignText`] prints it, with those characters escaped. Programs get the
//! true content from [`ForeignText::raw`]: for JSON, system calls, comparisons.
//!
//! An escape is text like any other. Text that is escaped twice reads as if it were escaped once.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt::{self, Write as _};
use std::io;
use std::os::unix::ffi::OsStrExt;

use crate::error::Failure;

/// Foreign text. Its `Display` is one line without control characters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ForeignText<'a>(Cow<'a, [u8]>);

impl<'a> ForeignText<'a> {
    /// Bytes that may not be UTF-8. Invalid bytes are escaped, too.
    #[must_use]
    pub const fn of_bytes(bytes: &'a [u8]) -> Self {
        Self(Cow::Borrowed(bytes))
    }

    /// A name or an argument, as the system gives it.
    #[must_use]
    pub fn of_os(text: &'a OsStr) -> Self {
        Self::of_bytes(text.as_bytes())
    }

    /// The `Display` of a value, with all foreign text in it.
    #[must_use]
    pub fn of(said: &impl fmt::Display) -> Self {
        Self(Cow::Owned(said.to_string().into_bytes()))
    }

    /// The text as it came. Not for terminals, logs and listings.
    #[must_use]
    pub fn raw(&self) -> &[u8] {
        &self.0
    }
}

impl<'a> From<&'a str> for ForeignText<'a> {
    fn from(text: &'a str) -> Self {
        Self::of_bytes(text.as_bytes())
    }
}

impl fmt::Display for ForeignText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            write_escaped(f, chunk.valid())?;
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

fn write_escaped(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    let mut rest = text;
    while let Some((at, sign)) = rest.char_indices().find(|(_, sign)| is_obeyed(*sign)) {
        f.write_str(&rest[..at])?;
        match sign {
            '\n' => f.write_str("\\n")?,
            '\r' => f.write_str("\\r")?,
            '\t' => f.write_str("\\t")?,
            sign if sign.is_ascii() => write!(f, "\\x{:02x}", u32::from(sign))?,
            sign => write!(f, "\\u{{{:x}}}", u32::from(sign))?,
        }
        rest = &rest[at + sign.len_utf8()..];
    }
    f.write_str(rest)
}

/// Whether a character has an effect instead of being visible: it moves the cursor, breaks the line, reverses the
/// reading direction, or is invisible.
#[must_use]
pub fn is_obeyed(sign: char) -> bool {
    sign.is_control()
        || matches!(sign,
            // Soft hyphen; the Arabic and the Mongolian format characters.
            '\u{ad}' | '\u{61c}' | '\u{180e}'
            // Zero width, left-to-right and right-to-left marks.
            | '\u{200b}'..='\u{200f}'
            // Line and paragraph separators, embeddings and overrides of the reading direction.
            | '\u{2028}'..='\u{202e}'
            // Joiners, invisible operators, isolates, deprecated format characters.
            | '\u{2060}'..='\u{206f}'
            // Letters that are blank.
            | '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            // Tags and variation selectors.
            | '\u{e0000}'..='\u{e01ef}')
}

/// A failure as lines for people: `speaker: message`, and below it `hint: ...`. Lines after the first of a message or
/// a hint are indented, so that foreign text cannot imitate a line of gantry.
#[must_use]
pub fn describe_failure(speaker: &str, failure: &Failure) -> String {
    let mut text = String::new();
    push_lines(&mut text, &format!("{speaker}: {}", failure.message()));
    if let Some(hint) = failure.hint() {
        push_lines(&mut text, &format!("hint: {hint}"));
    }
    text
}

/// Adds a text of several lines: each is escaped and all but the first are indented.
pub fn push_lines(to: &mut String, text: &str) {
    for (number, line) in text.trim_end_matches('\n').split('\n').enumerate() {
        let indent = if number == 0 { "" } else { "  " };
        // Writing to a string does not fail.
        writeln!(to, "{indent}{}", ForeignText::from(line)).unwrap_or_default();
    }
}

/// Writes logs: each call is one event, and becomes one line.
#[derive(Debug)]
pub struct LineWriter<W>(pub W);

impl<W: io::Write> io::Write for LineWriter<W> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = event.strip_suffix(b"\n").unwrap_or(event);
        self.0.write_all(format!("{}\n", ForeignText::of_bytes(text)).as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use proptest::prelude::*;

    use super::*;
    use crate::error::Kind;

    #[test]
    fn terminal_control_characters_are_written_as_escapes() {
        let check = |text: &[u8], expected: &str| {
            assert_eq!(ForeignText::of_bytes(text).to_string(), expected);
        };
        check(b"/usr/bin/app", "/usr/bin/app");
        check("n1 é ü 名前 🙂 C:\\dir 'q' \"q\"".as_bytes(), "n1 é ü 名前 🙂 C:\\dir 'q' \"q\"");
        check(b"a\x1b[2Jb\x07c\x7f", "a\\x1b[2Jb\\x07c\\x7f");
        check(b"a\nb\rc\td", "a\\nb\\rc\\td");
        check("\u{9b}2J\u{85}".as_bytes(), "\\u{9b}2J\\u{85}");
        check("\u{202e}txt\u{2066}\u{2028}\u{200b}".as_bytes(), "\\u{202e}txt\\u{2066}\\u{2028}\\u{200b}");
        check(b"\xff\x9b[", "\\xff\\x9b[");
        assert_eq!(ForeignText::from("a\n").raw(), b"a\n");
    }

    #[test]
    fn the_lines_of_a_failure_cannot_imitate_lines_of_gantry() {
        let failure = Failure::new(Kind::Lost, "lost n1: \x1b[2Jgone\ngantry: all is well")
            .with_hint("look here:\n(&(a=b)\n   ^\n");
        let expected = "\
gantry: lost n1: \\x1b[2Jgone
  gantry: all is well
hint: look here:
  (&(a=b)
     ^
";
        assert_eq!(describe_failure("gantry", &failure), expected);
    }

    #[test]
    fn an_event_of_a_log_is_one_line() {
        let mut page = LineWriter(Vec::new());
        page.write_all(b"DEBUG host=a\nERROR forged\x1b[2J\n").unwrap();
        page.write_all(b"next\n").unwrap();
        assert_eq!(String::from_utf8(page.0).unwrap(), "DEBUG host=a\\nERROR forged\\x1b[2J\nnext\n");
    }

    proptest! {
        #[test]
        fn nothing_is_obeyed_and_escaping_again_changes_nothing(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let shown = ForeignText::of_bytes(&bytes).to_string();
            prop_assert!(!shown.chars().any(is_obeyed), "{shown:?}");
            prop_assert_eq!(ForeignText::from(shown.as_str()).to_string(), shown.clone());
        }

        #[test]
        fn any_text_is_one_line_and_harmless_text_stays(text in any::<String>(), plain in "[ -~äöüß]{0,40}") {
            let shown = ForeignText::from(text.as_str()).to_string();
            prop_assert!(shown.lines().count() <= 1 && !shown.chars().any(is_obeyed), "{shown:?}");
            prop_assert_eq!(ForeignText::from(plain.as_str()).to_string(), plain);
        }
    }
}
