//! The host's keys in the user's and the system's files. `ssh-keygen -F` finds the lines, including hashed names and
//! patterns; this module parses and checks them as the OpenSSH client does. Source: sshd(8), SSH_KNOWN_HOSTS FILE
//! FORMAT.

use std::path::{Path, PathBuf};

use crate::keys::type_of_algorithm;

/// The marker of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    /// Nothing: it is the host's key.
    Plain,
    /// The key must not be used any more.
    Revoked,
    /// The key signs hosts' certificates.
    Authority,
}

/// A line for the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) mark: Mark,
    pub(crate) key_type: String,
    /// In base64 without padding.
    pub(crate) key: String,
    /// The file of the line.
    pub(crate) file: PathBuf,
    pub(crate) line: u32,
}

/// All known keys of a host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Known(pub(crate) Vec<Entry>);

/// The verdict about a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict<'a> {
    /// It is the host's key.
    Same,
    /// The host has another key of this type.
    Changed(&'a Entry),
    /// The key is revoked.
    Revoked,
    /// The host has no known key.
    Unknown,
}

/// Parses the output of `ssh-keygen -F` for `file`.
pub(crate) fn parse_found(text: &str, file: &Path) -> Vec<Entry> {
    let mut entries = Vec::new();
    let mut line_number = 0;
    for line in text.lines() {
        if line.starts_with('#') {
            let number = line.split_once(" found: line ").and_then(|(_, rest)| rest.split(' ').next());
            line_number = number.and_then(|number| number.parse().ok()).unwrap_or(0);
            continue;
        }
        let mut words = line.split_whitespace().peekable();
        let mark = match words.peek() {
            Some(&"@revoked") => Mark::Revoked,
            Some(&"@cert-authority") => Mark::Authority,
            // An unknown marker of a later release.
            Some(word) if word.starts_with('@') => continue,
            _ => Mark::Plain,
        };
        if mark != Mark::Plain {
            words.next();
        }
        let (Some(_names), Some(key_type), Some(key)) = (words.next(), words.next(), words.next()) else {
            continue;
        };
        let (key_type, key) = (key_type.to_owned(), key.trim_end_matches('=').to_owned());
        entries.push(Entry { mark, key_type, key, file: file.to_path_buf(), line: line_number });
    }
    entries
}

impl Known {
    fn plain(&self) -> impl Iterator<Item = &Entry> {
        self.0.iter().filter(|entry| entry.mark == Mark::Plain)
    }

    /// Whether some key of the host is known.
    pub(crate) fn has_plain(&self) -> bool {
        self.plain().next().is_some()
    }

    /// Whether a certificate authority is known for this host.
    pub(crate) fn has_authority(&self) -> bool {
        self.0.iter().any(|entry| entry.mark == Mark::Authority)
    }

    /// The algorithms in order of preference: first those of known keys, since a key of another type would look like an
    /// unknown one.
    pub(crate) fn order(&self, algorithms: &[String]) -> Vec<String> {
        let is_known = |name: &String| self.plain().any(|entry| entry.key_type == type_of_algorithm(name));
        let (first, then): (Vec<String>, Vec<String>) = algorithms.iter().cloned().partition(is_known);
        first.into_iter().chain(then).collect()
    }

    /// The verdict about a key.
    pub(crate) fn judge(&self, key_type: &str, key: &str) -> Verdict<'_> {
        if self.0.iter().any(|entry| entry.mark == Mark::Revoked && entry.key == key) {
            return Verdict::Revoked;
        }
        if self.plain().any(|entry| entry.key_type == key_type && entry.key == key) {
            return Verdict::Same;
        }
        match self.plain().find(|entry| entry.key_type == key_type) {
            Some(other) => Verdict::Changed(other),
            None => Verdict::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The output of ssh-keygen from OpenSSH 9.2.
    const FOUND: &str = "# Host n001 found: line 1 \nn001,n1 ssh-ed25519 AAAA1 c\n\
        # Host n001 found: line 2 REVOKED\n@revoked n* ecdsa-sha2-nistp256 AAAA2=\n\
        # Host n001 found: line 3 CA\n@cert-authority *.x,n001 ssh-rsa AAAA3\n\
        # Host n001 found: line 5 \n|1|TJKF=|Hytc= ssh-rsa AAAA5==\n@new n1 ssh-rsa AAAA\n";

    fn known() -> Known {
        Known(parse_found(FOUND, Path::new("/k")))
    }

    #[test]
    fn lines_are_read_with_their_marks() {
        let known = known();
        let short: Vec<_> =
            known.0.iter().map(|it| (it.mark, it.key_type.as_str(), it.key.as_str(), it.line)).collect();
        let expected = [
            (Mark::Plain, "ssh-ed25519", "AAAA1", 1),
            (Mark::Revoked, "ecdsa-sha2-nistp256", "AAAA2", 2),
            (Mark::Authority, "ssh-rsa", "AAAA3", 3),
            (Mark::Plain, "ssh-rsa", "AAAA5", 5),
        ];
        assert_eq!(short, expected);
        assert!(known.has_authority());
    }

    #[test]
    fn keys_are_judged_as_by_the_other_client() {
        let known = known();
        let check = |key_type, key, expected: Verdict<'_>| {
            assert_eq!(known.judge(key_type, key), expected, "{key_type} {key}");
        };
        check("ssh-ed25519", "AAAA1", Verdict::Same);
        check("ssh-ed25519", "AAAA9", Verdict::Changed(&known.0[0]));
        check("ecdsa-sha2-nistp256", "AAAA2", Verdict::Revoked);
        // A revoked key does not affect another key of its type. Neither does an authority's key.
        check("ecdsa-sha2-nistp256", "AAAA9", Verdict::Unknown);
        check("ssh-rsa", "AAAA3", Verdict::Changed(&known.0[3]));
        check("ssh-rsa", "AAAA5", Verdict::Same);
        assert_eq!(Known::default().judge("ssh-rsa", "AAAA5"), Verdict::Unknown);
    }

    #[test]
    fn algorithms_of_known_keys_come_first() {
        let names = ["ecdsa-sha2-nistp256", "rsa-sha2-512", "ssh-ed25519"].map(str::to_owned);
        assert_eq!(known().order(&names), ["rsa-sha2-512", "ssh-ed25519", "ecdsa-sha2-nistp256"]);
        assert_eq!(Known::default().order(&names), names);
    }
}
