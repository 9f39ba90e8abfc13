//! Numbers of process groups: unique for a user on a machine, and never reused while the runtime directory exists.
//!
//! The last number in use is the name of an empty folder. Creating a folder is atomic, so a process that is killed
//! here leaves nothing to repair. A lock on the parent folder serialises all users of it, even within one process.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use nix::fcntl::{Flock, FlockArg};

use super::registry::Registry;
use crate::error::{Error, Result};

impl Registry {
    /// A new number, which no process group of this user has had.
    ///
    /// # Errors
    /// The runtime directory cannot be written.
    pub(crate) fn new_group_number(&self) -> Result<u32> {
        let failed = |e| Error::io(format!("cannot number a group in {}", self.path().display()), e);
        take_number(&self.groups_dir()).map_err(failed)
    }
}

fn take_number(dir: &Path) -> io::Result<u32> {
    let make = |path: &Path| match DirBuilder::new().mode(0o700).create(path) {
        Err(e) if e.kind() == ErrorKind::AlreadyExists => Ok(()),
        made => made,
    };
    make(dir)?;
    // Open the folder again: a lock belongs to the open file, not to the process.
    let opened =
        OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW).open(dir)?;
    let _lock = Flock::lock(opened, FlockArg::LockExclusive).map_err(|(_, errno)| io::Error::from(errno))?;
    let mut used = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        used.extend(entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()));
    }
    let last = used.iter().copied().max().unwrap_or(0);
    let next = last.checked_add(1).ok_or_else(|| io::Error::other("all numbers are used up"))?;
    make(&dir.join(next.to_string()))?;
    for old in used {
        // A folder that stays is older than the next one, so it does no harm.
        drop(std::fs::remove_dir(dir.join(old.to_string())));
    }
    Ok(next)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn concurrent_callers_get_different_numbers_and_no_number_is_reused() {
        let dir = tempfile::tempdir().unwrap();
        let groups = dir.path().join("groups");
        let take = || std::iter::repeat_with(|| take_number(&groups).unwrap()).take(50).collect::<Vec<_>>();
        let all: Vec<u32> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(all.iter().copied().collect::<BTreeSet<_>>(), (1..=200).collect());
        let left: Vec<_> =
            std::fs::read_dir(&groups).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["200"]);
        // As after a death between creating one folder and removing the other.
        std::fs::create_dir(groups.join("7")).unwrap();
        assert_eq!(take_number(&groups).unwrap(), 201);
    }
}
