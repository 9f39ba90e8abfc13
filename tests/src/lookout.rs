//! Answers the requests of a test's body on a bed ([`outside`](crate::outside)). It is a thread of the test process
//! outside of the bed, and runs as root.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};

use crate::outside::{BETWEEN, NOBODY, join, list, mode_and_owner, read, read_link, receive, send, split};
use crate::sys::Pidfd;
use crate::testbed::Testbed;

/// The server for one body's requests. It ends with the body or when this is dropped.
#[derive(Debug)]
pub(crate) struct Lookout(PathBuf);

impl Lookout {
    /// Listens at a path that the body can connect to as any user.
    pub(crate) fn new(path: PathBuf, bed: Testbed) -> io::Result<Self> {
        let listener = UnixListener::bind(&path)?;
        fs::set_permissions(&path, PermissionsExt::from_mode(0o777))?;
        std::thread::spawn(move || {
            let Ok((mut stream, _)) = listener.accept() else { return };
            while let Ok(Some(question)) = receive(&mut stream) {
                if send(&mut stream, answer(&bed, &question).as_deref()).is_err() {
                    return;
                }
            }
        });
        Ok(Self(path))
    }
}

impl Drop for Lookout {
    fn drop(&mut self) {
        // Wakes a thread that still waits for a body.
        drop(UnixStream::connect(&self.0));
        drop(fs::remove_file(&self.0));
    }
}

/// The bytes of a file. A link may lead to a file of this host's root only.
fn read_in_root(path: &Path) -> Option<Vec<u8>> {
    let parts: Vec<_> = path.components().take(4).collect();
    let root: PathBuf = parts.iter().collect();
    if !root.ends_with("root") {
        return read(path);
    }
    let (root, rest) = (fs::File::open(&root).ok()?, path.strip_prefix(&root).ok()?);
    let how = OpenHow::new().flags(OFlag::O_RDONLY | OFlag::O_CLOEXEC).resolve(ResolveFlag::RESOLVE_IN_ROOT);
    let mut bytes = Vec::new();
    fs::File::from(openat2(&root, rest, how).ok()?).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

fn answer(bed: &Testbed, question: &[u8]) -> Option<Vec<u8>> {
    let words: Vec<&[u8]> = question.split(|byte| *byte == BETWEEN).collect();
    let path = |word: &[u8]| PathBuf::from(OsString::from_vec(word.to_vec()));
    let text = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
    match words[..] {
        [b"read", file] => read_in_root(&path(file)),
        [b"link", file] => read_link(path(file)).map(|target| target.into_os_string().into_vec()),
        [b"list", file] => list(path(file)).map(|names| names.join(OsStr::from_bytes(&[BETWEEN])).into_vec()),
        [b"about", file] => {
            mode_and_owner(path(file)).map(|(mode, owner)| format!("{mode} {owner}").into_bytes())
        }
        [b"root", host] => Some(bed.host(&text(host))?.path("/").ok()?.into_os_string().into_vec()),
        [b"pids", host, list] => {
            let found = bed.host(&text(host))?.pids_of(&split(&text(list)));
            let found: Vec<i32> = found.into_iter().map(|pid| pid.unwrap_or(NOBODY)).collect();
            Some(join(&found).into_bytes())
        }
        [b"signal", pid, signal] => {
            let process = Pidfd::open(text(pid).parse().ok()?).ok()?;
            process.signal(text(signal).parse().ok()?).ok().map(|()| Vec::new())
        }
        _ => None,
    }
}
