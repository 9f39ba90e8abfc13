//! `$ORIGIN`, `$LIB` and `$PLATFORM`, and lists of folders that may contain them (ld.so(8), "Dynamic string tokens").

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The values of tokens in one object.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tokens<'a> {
    /// The folder of the object. None if the working directory is unknown.
    pub(super) origin: Option<&'a Path>,
    /// The loader's `$LIB`.
    pub(super) lib: &'a str,
    /// The processor's name.
    pub(super) platform: &'a str,
}

/// The most folders of one list.
const MAX_FOLDERS: usize = 1024;

/// A text with its tokens replaced. None: it needs an unknown token.
pub(super) fn expand(text: &OsStr, tokens: Tokens<'_>) -> Option<OsString> {
    let mut rest = text.as_bytes();
    let mut done = Vec::with_capacity(rest.len());
    while let Some(at) = rest.iter().position(|byte| *byte == b'$') {
        done.extend_from_slice(&rest[..at]);
        rest = &rest[at + 1..];
        let known: [(&[u8], Option<&[u8]>); 3] = [
            (b"ORIGIN", tokens.origin.map(|path| path.as_os_str().as_bytes())),
            (b"PLATFORM", Some(tokens.platform.as_bytes())),
            (b"LIB", Some(tokens.lib.as_bytes())),
        ];
        match known.iter().find_map(|(name, value)| Some((token_len(rest, name)?, value))) {
            Some((length, value)) => {
                done.extend_from_slice((*value)?);
                rest = &rest[length..];
            }
            // Any other word is taken literally.
            None => done.push(b'$'),
        }
    }
    done.extend_from_slice(rest);
    Some(OsString::from_vec(done))
}

/// The length of the token at the beginning of `text`, which follows a `$`.
fn token_len(text: &[u8], name: &[u8]) -> Option<usize> {
    if let Some(inner) = text.strip_prefix(b"{") {
        return inner.strip_prefix(name)?.starts_with(b"}").then_some(name.len() + 2);
    }
    let after = text.strip_prefix(name)?.first();
    let goes_on = after.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    (!goes_on).then_some(name.len())
}

/// The folders of a search path, in order, each once. An empty entry is the working directory: an empty path.
pub(super) fn split_path_list(list: &OsStr, separators: &[u8], tokens: Tokens<'_>) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = Vec::new();
    if list.is_empty() {
        return folders;
    }
    for entry in list.as_bytes().split(|byte| separators.contains(byte)).take(MAX_FOLDERS) {
        let folder = if entry.is_empty() { Some(OsString::new()) } else { expand_folder(entry, tokens) };
        let Some(folder) = folder.map(PathBuf::from) else { continue };
        // Compare bytes: the loader also treats two spellings of one folder as two entries.
        if !folders.iter().any(|known| known.as_os_str() == folder.as_os_str()) {
            folders.push(folder);
        }
    }
    folders
}

fn expand_folder(entry: &[u8], tokens: Tokens<'_>) -> Option<OsString> {
    let mut folder = expand(OsStr::from_bytes(entry), tokens)?.into_vec();
    while folder.len() > 1 && folder.last() == Some(&b'/') {
        folder.pop();
    }
    (!folder.is_empty()).then(|| OsString::from_vec(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKENS: Tokens<'_> = Tokens { origin: None, lib: "lib64", platform: "haswell" };

    #[test]
    fn tokens_are_replaced_and_nothing_else() {
        let tokens = Tokens { origin: Some(Path::new("/opt/x/bin")), ..TOKENS };
        let check = |text: &str, expected: &str| {
            assert_eq!(expand(OsStr::new(text), tokens).unwrap(), expected, "{text}");
        };
        check("$ORIGIN/../lib", "/opt/x/bin/../lib");
        check("${ORIGIN}x/$LIB", "/opt/x/binx/lib64");
        check("/p/$PLATFORM/${LIB}", "/p/haswell/lib64");
        check("$ORIGINAL", "$ORIGINAL");
        check("$ORIGIN_", "$ORIGIN_");
        check("${ORIGIN", "${ORIGIN");
        check("a$$LIB$", "a$lib64$");
        check("$HOME", "$HOME");
    }

    #[test]
    fn an_entry_whose_origin_is_unknown_falls_out() {
        let check = |list: &str, separators: &[u8], expected: &[&str]| {
            let folders = split_path_list(OsStr::new(list), separators, TOKENS);
            assert_eq!(folders, expected.iter().map(PathBuf::from).collect::<Vec<_>>(), "{list}");
        };
        check("/a:$ORIGIN/b:/c/", b":", &["/a", "/c"]);
        check("", b":", &[]);
        check(":/a::/a//", b":", &["", "/a"]);
        check("/a;/b:/c", b":;", &["/a", "/b", "/c"]);
        check("/a;/b", b":", &["/a;/b"]);
        check("//", b":", &["/"]);
    }
}
