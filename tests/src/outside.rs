//! Shows processes and files of other hosts to a test's body. The test process outside of the bed reads them: it sees
//! everything and is root.
//!
//! A body on a host of a bed sends requests through a socket in the home that all hosts share. A request is a few
//! words. Most are the path of a file under the machine's `/proc`, so the body gets the kernel's own text. Pids here
//! are the machine's pids.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

use nix::sys::signal::Signal;

/// In the environment of a body: the path of the socket.
pub(crate) const OUTSIDE: &str = "GANTRY_TEST_OUTSIDE";

/// A number that no process has.
pub(crate) const NOBODY: i32 = -1;

/// No word of a question has it.
pub(crate) const BETWEEN: u8 = 0;

/// The connection of a body on a bed. None: everything is on this machine.
fn connection() -> Option<&'static Mutex<UnixStream>> {
    static MADE: OnceLock<Option<Mutex<UnixStream>>> = OnceLock::new();
    let made = MADE.get_or_init(|| {
        let path = std::env::var_os(OUTSIDE)?;
        Some(Mutex::new(UnixStream::connect(path).expect("the test process outside")))
    });
    made.as_ref()
}

/// Whether this process is on a host of a bed, and so sends requests.
#[must_use]
pub fn is_asked() -> bool {
    connection().is_some()
}

/// Sends a request. None: the requested thing does not exist.
fn ask(stream: &Mutex<UnixStream>, words: &[&[u8]]) -> Option<Vec<u8>> {
    let mut stream = stream.lock().unwrap_or_else(PoisonError::into_inner);
    send(&mut stream, Some(&words.join(&BETWEEN))).expect("a question");
    receive(&mut stream).expect("an answer")
}

fn ask_of(stream: &Mutex<UnixStream>, word: &str, path: &Path) -> Option<Vec<u8>> {
    ask(stream, &[word.as_bytes(), path.as_os_str().as_bytes()])
}

pub(crate) fn send(stream: &mut UnixStream, text: Option<&[u8]>) -> io::Result<()> {
    let length = text.map_or(u64::MAX, |text| text.len() as u64);
    stream.write_all(&length.to_ne_bytes())?;
    stream.write_all(text.unwrap_or_default())
}

pub(crate) fn receive(stream: &mut UnixStream) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 8];
    stream.read_exact(&mut length)?;
    let length = u64::from_ne_bytes(length);
    if length == u64::MAX {
        return Ok(None);
    }
    let mut text = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    stream.read_exact(&mut text)?;
    Ok(Some(text))
}

/// A file's bytes. None: it cannot be read.
#[must_use]
pub fn read(path: impl AsRef<Path>) -> Option<Vec<u8>> {
    match connection() {
        Some(stream) => ask_of(stream, "read", path.as_ref()),
        None => fs::read(path).ok(),
    }
}

/// A file's text; bytes that are not text are replaced. None: it cannot be read.
#[must_use]
pub fn read_text(path: impl AsRef<Path>) -> Option<String> {
    read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// Where a link leads.
#[must_use]
pub fn read_link(path: impl AsRef<Path>) -> Option<PathBuf> {
    match connection() {
        Some(stream) => ask_of(stream, "link", path.as_ref()).map(|target| OsString::from_vec(target).into()),
        None => fs::read_link(path).ok(),
    }
}

/// The names in a folder. None: it cannot be read.
#[must_use]
pub fn list(path: impl AsRef<Path>) -> Option<Vec<OsString>> {
    let Some(stream) = connection() else {
        return Some(fs::read_dir(path).ok()?.flatten().map(|entry| entry.file_name()).collect());
    };
    let names = ask_of(stream, "list", path.as_ref())?;
    let names = names.split(|byte| *byte == BETWEEN).filter(|name| !name.is_empty());
    Some(names.map(|name| OsString::from_vec(name.to_vec())).collect())
}

/// Type and permissions of a file, as `st_mode` has them, and its owner. A link is not followed.
#[must_use]
pub fn mode_and_owner(path: impl AsRef<Path>) -> Option<(u32, u32)> {
    let Some(stream) = connection() else {
        return fs::symlink_metadata(path).ok().map(|it| (it.mode(), it.uid()));
    };
    let said = String::from_utf8(ask_of(stream, "about", path.as_ref())?).ok()?;
    let (mode, owner) = said.split_once(' ')?;
    Some((mode.parse().ok()?, owner.parse().ok()?))
}

/// Whether there is such a file.
#[must_use]
pub fn exists(path: impl AsRef<Path>) -> bool {
    mode_and_owner(path).is_some()
}

/// The path by which a file of a host is looked at here.
#[must_use]
pub fn path_on(host: &str, path: impl AsRef<Path>) -> PathBuf {
    let path = path.as_ref();
    let Some(stream) = connection() else { return path.to_path_buf() };
    let root = ask(stream, &[b"root", host.as_bytes()]).expect("a host that is on");
    PathBuf::from(OsString::from_vec(root)).join(path.strip_prefix("/").unwrap_or(path))
}

/// Translates pids of a host to this machine's pids, which all functions here use. An absent process gets a number that
/// no process has.
#[must_use]
pub fn pids_on(host: &str, numbers: &[i32]) -> Vec<i32> {
    let Some(stream) = connection() else { return numbers.to_vec() };
    let list = join(numbers);
    let found = ask(stream, &[b"pids", host.as_bytes(), list.as_bytes()]).expect("a host that is on");
    split(&String::from_utf8_lossy(&found))
}

/// This process, by the number that everything here calls it by.
#[must_use]
pub fn own_pid() -> i32 {
    static OWN: OnceLock<i32> = OnceLock::new();
    *OWN.get_or_init(|| {
        let number = i32::try_from(std::process::id()).unwrap_or(NOBODY);
        let host = nix::unistd::gethostname().unwrap_or_default();
        pids_on(&host.to_string_lossy(), &[number])[0]
    })
}

/// Has a signal sent to a process of any host.
pub(crate) fn signal(pid: i32, signal: Signal) -> io::Result<()> {
    let (number, name) = (pid.to_string(), signal.as_str());
    let sent = connection().and_then(|it| ask(it, &[b"signal", number.as_bytes(), name.as_bytes()]));
    sent.map(drop).ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))
}

pub(crate) fn join(numbers: &[i32]) -> String {
    numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

pub(crate) fn split(text: &str) -> Vec<i32> {
    text.split(' ').map(|number| number.parse().unwrap_or(NOBODY)).collect()
}
