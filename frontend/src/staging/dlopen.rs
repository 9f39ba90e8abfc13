//! `.note.dlopen`: optional libraries that a file may load while it runs
//! (<https://uapi-group.org/specifications/specs/elf_dlopen_metadata/>).

use serde::Deserialize;

/// One optional library.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct DlopenNote {
    /// Names to try, the best first.
    pub soname: Vec<String>,
    /// Its purpose, in one word.
    #[serde(default)]
    pub feature: Option<String>,
    /// Its purpose, for people.
    #[serde(default)]
    pub description: Option<String>,
    /// `required`, `recommended` or `suggested`.
    #[serde(default)]
    pub priority: Option<String>,
}

/// Most entries of one note.
const MAX_ENTRIES: usize = 1024;

/// The entries of a note: JSON, followed by a NUL. A malformed note has none.
pub(super) fn parse_dlopen_note(content: &[u8]) -> Vec<DlopenNote> {
    let end = content.iter().position(|byte| *byte == 0).unwrap_or(content.len());
    let mut notes: Vec<DlopenNote> = serde_json::from_slice(&content[..end]).unwrap_or_default();
    notes.truncate(MAX_ENTRIES);
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes() {
        let check = |text: &str, expected: &[&[&str]]| {
            let notes = parse_dlopen_note(text.as_bytes());
            let names: Vec<_> = notes.iter().map(|note| note.soname.clone()).collect();
            assert_eq!(names, expected, "{text}");
        };
        check(
            r#"[{"soname":["libx.so.2","libx.so.1"],"feature":"x","new":1}]"#,
            &[&["libx.so.2", "libx.so.1"]],
        );
        check("[{\"soname\":[\"a\"]},{\"soname\":[]}]\0\0", &[&["a"], &[]]);
        check(r#"{"soname":"x"}"#, &[]);
        check("", &[]);
    }
}
