//! Text that is safe for a terminal.
//!
//! The writers of this folder take only a [`Page`]. Text from any source is escaped ([`ForeignText`]) before it gets
//! onto a page. So no name of a host or file, and no error of another machine, can move the cursor or forge a line.
//! Data for programs ([`Page::json`], [`Page::data`]) are not escaped this way.

use std::fmt::{self, Display};
use std::ops::Deref;

use gantry_types::error::Failure;
use gantry_types::foreign::{self, ForeignText};
use serde::Serialize;

/// Switches bold letters on and off.
const BOLD: &str = "\x1b[1m";
const PLAIN: &str = "\x1b[m";

/// Whole lines that are safe for a terminal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Page(String);

impl Page {
    /// One line. Line breaks in the text are escaped.
    pub(crate) fn line(text: impl Display) -> Self {
        let mut page = Self::default();
        page.add(text);
        page
    }

    /// A message of gantry. Lines after the first are indented.
    pub(crate) fn note(text: &str) -> Self {
        let mut page = Self::default();
        foreign::push_lines(&mut page.0, &format!("gantry: {text}"));
        page
    }

    /// A failure with its hint.
    pub(crate) fn failure(failure: &Failure) -> Self {
        Self(foreign::describe_failure("gantry", failure))
    }

    /// One value as one line of JSON. JSON's own escapes stand for control characters, so a reader gets the true text.
    pub(crate) fn json(value: &impl Serialize) -> Self {
        // gantry's own types have string keys and cannot fail.
        let text = serde_json::to_string(value).unwrap_or_default();
        let mut page = String::with_capacity(text.len() + 1);
        for sign in text.chars() {
            match foreign::is_obeyed(sign) {
                // JSON has such characters only inside strings.
                true => sign.encode_utf16(&mut [0; 2]).iter().for_each(|it| page += &format!("\\u{it:04x}")),
                false => page.push(sign),
            }
        }
        Self(page + "\n")
    }

    /// Text for programs, unchanged: XML, scripts, manual pages.
    pub(crate) fn data(text: String) -> Self {
        Self(text)
    }

    /// Adds a line.
    pub(crate) fn add(&mut self, text: impl Display) {
        self.0.push_str(&ForeignText::of(&text).to_string());
        self.0.push('\n');
    }

    /// Adds a line, in bold letters if `bold`.
    pub(crate) fn add_heading(&mut self, text: impl Display, bold: bool) {
        let text = ForeignText::of(&text);
        self.0.push_str(&if bold { format!("{BOLD}{text}{PLAIN}\n") } else { format!("{text}\n") });
    }

    /// Adds another page.
    pub(crate) fn append(&mut self, other: &Self) {
        self.0.push_str(&other.0);
    }

    /// The text to write.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// One line for a terminal of limited width, without its line break.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line(String);

impl Line {
    /// The first `most` characters of a text.
    pub(super) fn cut(text: &str, most: usize) -> Self {
        let shown = ForeignText::from(text).to_string();
        let mut letters = shown.chars();
        let mut kept: String = letters.by_ref().take(most).collect();
        if letters.next().is_some() {
            kept = kept.chars().take(most.saturating_sub(2)).collect();
            kept.extend(std::iter::repeat_n('.', most.min(2)));
        }
        Self(kept)
    }

    /// The same line in bold letters.
    pub(super) fn into_bold(self) -> Self {
        Self(format!("{BOLD}{self}{PLAIN}"))
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Deref for Line {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl From<&[Line]> for Page {
    fn from(lines: &[Line]) -> Self {
        Self(lines.iter().map(|line| format!("{line}\n")).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_to_the_room_that_there_is() {
        let check = |text, most, expected: &str| assert_eq!(Line::cut(text, most).to_string(), expected);
        check("abcdef", 5, "abc..");
        check("abcde", 5, "abcde");
        check("ab", 1, ".");
        check("a\x1b[2J\n", 20, "a\\x1b[2J\\n");
    }

    #[test]
    fn json_is_harmless_and_reads_as_it_was() {
        let text = "a\x1b[2J\n\x7f\u{9b}\u{202e}\u{e0041}\u{1f642}";
        let page = Page::json(&[text]);
        assert_eq!(page.as_str(), "[\"a\\u001b[2J\\n\\u007f\\u009b\\u202e\\udb40\\udc41\u{1f642}\"]\n");
        assert_eq!(serde_json::from_str::<[String; 1]>(page.as_str()).unwrap(), [text]);
    }

    #[test]
    fn only_our_own_sequences_are_on_a_page() {
        let mut page = Page::default();
        page.add_heading("A\x1bB", true);
        page.add("x\ny");
        page.append(&Page::note("one\ntwo\x07"));
        assert_eq!(page.as_str(), "\x1b[1mA\\x1bB\x1b[m\nx\\ny\ngantry: one\n  two\\x07\n");
    }
}
