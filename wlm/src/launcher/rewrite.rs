//! Inserts a program of ours before each program in a launcher's arguments, and options of ours behind the user's
//! options.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use super::dialect::Dialect;
use super::options::{Part, find_verb};

/// Returns the arguments with `shim` before each program, and with `options(i)` behind the options of part `i`.
/// Launchers use the last value of an option, so ours win. A file with programs is not changed: see [`replace_file`].
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

/// Makes `part` read another file with programs. Returns the old file's name. No index changes.
pub(crate) fn replace_file(args: &mut [OsString], part: &Part, path: &OsStr) -> Option<OsString> {
    let file = part.file?;
    let arg = args.get_mut(file.at)?;
    let bytes = arg.as_bytes();
    let old = OsString::from_vec(bytes[file.prefix_bytes..].to_vec());
    *arg = OsString::from_vec([&bytes[..file.prefix_bytes], path.as_bytes()].concat());
    Some(old)
}
