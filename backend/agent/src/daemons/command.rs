//! The file that is executed for a program: the program itself, its interpreter, or its loader.
//!
//! A session's program was made on the login side, and names files of the login side. A script names its interpreter in
//! its first line; any other program names its loader. The kernel would use those files of the node. If the node lacks
//! that interpreter, if another user could have put it there, or if the C library is too old, the session has its own. This
//! module looks for them there.
//!
//! A program that is run through a loader differs in two ways. `/proc/PID/exe` is the loader, and the program's
//! children use the node's own loader. `--argv0` passes on the program's name, which loaders support since glibc 2.33.
//! An older loader would take that word for the program. So the loader's bytes are searched for the word. Without it
//! the program sees its path as its name.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use crate::tree;
use gantry_shared::elf::read_interpreter;
use gantry_shared::storage::LOADER_DIR;
use gantry_types::error::{Failure, Kind};
use gantry_types::session_dirs::SessionDirs;
use nix::fcntl::AT_FDCWD;

use super::program::look_at;

/// How much of a script's first line the kernel reads (`BINPRM_BUF_SIZE`).
const FIRST_LINE_BYTES: usize = 256;

/// Most bytes of a loader that are searched.
const MAX_LOADER_BYTES: u64 = 16 * 1024 * 1024;

/// A file to execute and all arguments, the name first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Command {
    pub(super) program: PathBuf,
    pub(super) argv: Vec<OsString>,
}

impl Command {
    /// The program itself, under the requested name.
    pub(super) fn new(program: PathBuf, name: &OsStr, args: &[OsString]) -> Self {
        let argv = std::iter::once(name.to_owned()).chain(args.iter().cloned()).collect();
        Self { program, argv }
    }

    /// Runs a script of the session by the session's interpreter, if the node lacks the one that it names, or has one
    /// that another user could have put there.
    ///
    /// `env NAME` would find the session's interpreter, but would start it as the node does. So `env` is left out if
    /// the session has that name.
    pub(super) fn by_interpreter(self, dirs: &SessionDirs) -> Self {
        if !is_in(&self.program, &dirs.bin) {
            return self;
        }
        let Some((interpreter, arg)) = read_first_line(&self.program) else { return self };
        let ours = |name: &OsStr| Some(dirs.bin.join(name)).filter(|path| look_at(path).is_ok());
        let (found, arg) = match (interpreter.file_name(), arg) {
            (Some(name), Some(arg)) if name == "env" && is_plain_name(&arg) => (ours(&arg), None),
            (Some(name), arg) if interpreter.is_absolute() && tree::open_trusted(&interpreter).is_err() => {
                (ours(name), arg)
            }
            _ => return self,
        };
        let Some(found) = found else { return self };
        let mut argv = vec![found.clone().into_os_string()];
        argv.extend(arg);
        argv.push(self.program.into_os_string());
        argv.extend(self.argv.into_iter().skip(1));
        Self { program: found, argv }
    }

    /// Runs a dynamically linked program of the session by the session's loader.
    ///
    /// # Errors
    /// `NotFound` if the loader was not sent.
    pub(super) fn by_loader(
        self,
        name: &OsStr,
        dirs: &SessionDirs,
        mut libraries: Vec<PathBuf>,
        rest: &OsStr,
    ) -> Result<Self, Failure> {
        let interpreter = || read_interpreter(&tree::open_regular(AT_FDCWD, &self.program).ok()?).ok()?;
        if !is_in(&self.program, &dirs.bin) || interpreter().is_none() {
            return Ok(self);
        }
        let dir = dirs.root.join(LOADER_DIR);
        let loader = dir.join(name);
        if look_at(&loader).is_err() {
            let message = format!(
                "start {} through its own loader {}: no such program",
                self.program.display(),
                loader.display()
            );
            return Err(Failure::new(Kind::NotFound, message).with_hint(
                "this node's C library is too old for the program: stage the files that the node lacks",
            ));
        }
        libraries.push(dir);
        let mut argv =
            vec![loader.clone().into_os_string(), "--library-path".into(), prepend(&libraries, rest)];
        let mut own = self.argv.into_iter();
        let own_name = own.next().unwrap_or_default();
        if knows_argv0(&loader) {
            argv.extend(["--argv0".into(), own_name]);
        }
        argv.push(self.program.into_os_string());
        argv.extend(own);
        Ok(Self { program: loader, argv })
    }
}

/// Whether the path, as written, is below the directory.
fn is_in(path: &Path, dir: &Path) -> bool {
    path.starts_with(dir) && path.components().all(|part| part != Component::ParentDir)
}

/// Whether `env` takes the argument for a program's name.
fn is_plain_name(arg: &OsStr) -> bool {
    let bytes = arg.as_bytes();
    !bytes.starts_with(b"-") && !bytes.iter().any(|byte| b"=/ \t".contains(byte))
}

fn knows_argv0(loader: &Path) -> bool {
    let file = tree::open_regular(AT_FDCWD, loader);
    file.is_ok_and(|file| crate::provide::holds(file.take(MAX_LOADER_BYTES), b"--argv0\0").unwrap_or(false))
}

/// A script's interpreter and its one argument.
fn read_first_line(script: &Path) -> Option<(PathBuf, Option<OsString>)> {
    let file: File = tree::open_regular(AT_FDCWD, script).ok()?;
    // With room for the whole line, one call reads it.
    let mut bytes = Vec::with_capacity(FIRST_LINE_BYTES);
    file.take(FIRST_LINE_BYTES as u64).read_to_end(&mut bytes).ok()?;
    parse_first_line(&bytes)
}

/// Splits a first line as the kernel does: everything after the interpreter is one argument. Source: execve(2),
/// "Interpreter scripts".
fn parse_first_line(bytes: &[u8]) -> Option<(PathBuf, Option<OsString>)> {
    let line = bytes.strip_prefix(b"#!")?.split(|byte| matches!(byte, b'\n' | 0)).next()?;
    let text = trim(line);
    let end = text.iter().position(is_space).unwrap_or(text.len());
    let (interpreter, arg) = text.split_at(end);
    let to_text = |bytes: &[u8]| OsStr::from_bytes(bytes).to_owned();
    let arg = trim(arg);
    (!interpreter.is_empty())
        .then(|| (PathBuf::from(to_text(interpreter)), (!arg.is_empty()).then(|| to_text(arg))))
}

fn trim(mut text: &[u8]) -> &[u8] {
    while let Some((_, rest)) = text.split_first().filter(|(first, _)| is_space(first)) {
        text = rest;
    }
    while let Some((_, rest)) = text.split_last().filter(|(last, _)| is_space(last)) {
        text = rest;
    }
    text
}

fn is_space(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// A search path with more directories in front. An empty rest adds no separator: an empty part would mean the current
/// directory.
pub(super) fn prepend(dirs: &[PathBuf], rest: &OsStr) -> OsString {
    let parts: Vec<&OsStr> =
        dirs.iter().map(|dir| dir.as_os_str()).chain(Some(rest).filter(|rest| !rest.is_empty())).collect();
    parts.join(OsStr::new(":"))
}

#[cfg(test)]
mod tests;
