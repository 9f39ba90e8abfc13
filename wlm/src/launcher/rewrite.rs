//! Puts a program of ours in front of each program of a launcher's arguments, and options of ours behind the user's.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use super::dialect::Dialect;
use super::options::{Part, find_verb};

/// The arguments with `shim` in front of each program that stands in them, and with `options(i)` behind the options of part `i`, so that
/// ours count where the launcher takes the last. A file with programs is left alone: see [`replace_file`].
pub(crate) fn rewrite(
    dialect: &Dialect,
    args: &[OsString],
    parts: &[Part],
    options: impl Fn(usize) -> Vec<OsString>,
    shim: &[OsString],
) -> Vec<OsString> {
    let mut written: Vec<OsString> = Vec::with_capacity(args.len() + parts.len() * (shim.len() + 2));
    let verb = find_verb(dialect, args).cloned();
    written.extend(verb.or_else(|| dialect.verbs.first().map(OsString::from)));
    for (index, part) in parts.iter().enumerate() {
        if index > 0 {
            written.push(":".into());
        }
        written.extend_from_slice(&args[part.options.clone()]);
        written.extend(options(index));
        if dialect.knows_marker && part.options.end < part.program {
            written.push("--".into());
        }
        if part.file.is_none() {
            written.extend_from_slice(shim);
        }
        written.extend_from_slice(&args[part.program..part.end]);
    }
    written
}

/// Names another file with programs instead of the one that `part` names. Returns the old one's name. No index changes.
pub(crate) fn replace_file(args: &mut [OsString], part: &Part, path: &OsStr) -> Option<OsString> {
    let file = part.file?;
    let arg = args.get_mut(file.at)?;
    let bytes = arg.as_bytes();
    let old = OsString::from_vec(bytes[file.prefix_bytes..].to_vec());
    *arg = OsString::from_vec([&bytes[..file.prefix_bytes], path.as_bytes()].concat());
    Some(old)
}
