//! Unix sockets at paths of any length. Shared by the agent and the library; not part of the public interface.
//!
//! A socket's address holds 108 bytes, and staging directories on clusters are often deeper. In that case both sides
//! open the socket's directory, and name the socket through `/proc/self/fd`.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;

/// Bytes of a path that fit into a socket's address before the final NUL (`sun_path` in unix(7)).
const MAX_BYTES: usize = 107;

/// A path that fits into a socket's address, for as long as this lives.
#[derive(Debug)]
pub struct SocketPath {
    path: PathBuf,
    _dir: Option<OwnedFd>,
}

impl SocketPath {
    /// The path itself if it fits, otherwise a path through its directory, which is opened.
    ///
    /// # Errors
    /// When the directory cannot be opened, or the socket's own name is too long.
    pub fn new(path: &Path) -> io::Result<Self> {
        if path.as_os_str().as_bytes().len() <= MAX_BYTES {
            return Ok(Self { path: path.to_owned(), _dir: None });
        }
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::InvalidFilename.into());
        };
        let dir = open(parent, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?;
        let path = Path::new("/proc/self/fd").join(dir.as_raw_fd().to_string()).join(name);
        if path.as_os_str().as_bytes().len() > MAX_BYTES {
            return Err(io::ErrorKind::InvalidFilename.into());
        }
        Ok(Self { path, _dir: Some(dir) })
    }

    /// The path to bind or to connect to.
    #[must_use]
    pub fn as_path(&self) -> &Path {
        &self.path
    }
}
