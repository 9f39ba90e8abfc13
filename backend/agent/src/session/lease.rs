//! The lease of an app's directory: a file whose lock says that the owner lives, and whose text names the owner.
//!
//! The kernel drops the lock when the owner ends, however it ends. So no code checks whether a pid still means the same
//! process. The text is for people, and for one question that the lock cannot answer. On a directory that several
//! machines share, some file systems keep locks to one machine (Lustre with `localflock`). There, a successful lock
//! proves nothing about an owner on another machine.
//!
//! A lease never exists under its name without its lock: an agent makes it as `lease.new`, locks it, writes it and then
//! renames it.
//!
//! Several agents of one app can share a directory: on a machine that plays several nodes, or on a file system that
//! several nodes share. So agents take a shared lock on a lease. An agent that gets the exclusive lock is alone, and
//! only such an agent removes anything.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, SystemTime};

use gantry_shared::storage::LEASE_FILE;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag, openat, renameat};
use nix::sys::stat::{Mode, SFlag, fchmod, fstat};
use nix::unistd::geteuid;

use crate::tree;

/// The lease's name during its creation.
pub(super) const NEW_LEASE: &str = "lease.new";

/// A directory without a complete lease counts as under construction until it has been unchanged for this long, unless
/// the agent that makes it works on our kernel.
pub(super) const CONSTRUCTION: Duration = Duration::from_secs(60);

/// A longer text is not a lease of gantry.
const MAX_TEXT_BYTES: u64 = 4096;

/// The lock of a lease, held until dropped.
#[derive(Debug)]
pub(super) struct Lease(Option<Flock<File>>);

impl Lease {
    /// Releases our share. The last holder gets the exclusive lease, so it can remove what the lease protects; any
    /// other gets `None`.
    ///
    /// The share is released first. If two agents leave at once, the later one to ask finds no other share.
    ///
    /// # Errors
    /// When the file system fails.
    pub(super) fn leave(mut self) -> io::Result<Option<Self>> {
        match self.0.take().map(Flock::unlock) {
            Some(Ok(file)) => lock(file),
            Some(Err((held, error))) => {
                std::mem::forget(held);
                Err(error.into())
            }
            None => Ok(None),
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // The lock's own drop panics when the system refuses to unlock. Closing the file unlocks it as well, so skip
        // that drop.
        if let Some(Err((lock, _))) = self.0.take().map(Flock::unlock) {
            std::mem::forget(lock);
        }
    }
}

/// The holder of a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Owner {
    /// The process.
    pub(super) pid: u32,
    /// Its start in clock ticks after boot. With the pid and the boot it identifies one process for ever.
    pub(super) start: u64,
    /// The kernel's id of this boot.
    pub(super) boot: String,
    /// The machine's name.
    pub(super) host: String,
}

impl Owner {
    /// This process.
    ///
    /// # Errors
    /// When `/proc` is missing.
    pub(super) fn this_process() -> io::Result<Self> {
        let stat = std::fs::read_to_string("/proc/self/stat")?;
        let start = parse_start(&stat).ok_or_else(|| io::Error::other("no start time in /proc/self/stat"))?;
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned();
        let host = nix::unistd::gethostname()?.to_string_lossy().into_owned();
        Ok(Self { pid: std::process::id(), start, boot, host })
    }

    /// Whether getting the lock proves that this owner is dead: it ran on this kernel, or on this machine before a
    /// reboot.
    pub(super) fn is_judged_here(&self, here: &Self) -> bool {
        self.boot == here.boot || self.host == here.host
    }

    fn build_text(&self) -> String {
        format!("pid {}\nstart {}\nboot {}\nhost {}\n", self.pid, self.start, self.boot, self.host)
    }
}

/// The owner in a lease's text; `None` when the text is incomplete.
fn parse_owner(text: &str) -> Option<Owner> {
    let mut lines = text.strip_suffix('\n')?.split('\n');
    let mut field = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
    Some(Owner {
        pid: field("pid")?.parse().ok()?,
        start: field("start")?.parse().ok()?,
        boot: field("boot")?.to_owned(),
        host: field("host")?.to_owned(),
    })
}

/// The start time in `/proc/PID/stat`: field 22, counted after the command's name, which may have blanks and brackets.
fn parse_start(stat: &str) -> Option<u64> {
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// Makes the lease of a new directory and takes a share of it for the lifetime of the result. `None`: a sweep has taken
/// the directory for one of a dead agent, and removes it.
///
/// # Errors
/// When the file system fails or has no locks.
pub(super) fn take(dir: impl AsFd, here: &Owner) -> io::Result<Option<Lease>> {
    let dir = dir.as_fd();
    let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let file = match openat(dir, NEW_LEASE, flags, Mode::S_IRUSR | Mode::S_IWUSR) {
        Ok(fd) => File::from(fd),
        Err(Errno::EEXIST | Errno::ENOENT) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    fchmod(&file, Mode::S_IRUSR | Mode::S_IWUSR)?;
    let Some(mut lease) = share_named(dir, NEW_LEASE, file)? else { return Ok(None) };
    if let Some(lock) = &mut lease.0 {
        lock.write_all(here.build_text().as_bytes())?;
    }
    renameat(dir, NEW_LEASE, dir, LEASE_FILE)?;
    Ok(Some(lease))
}

/// Result of joining the agents in a directory.
#[derive(Debug)]
pub(super) enum Joined {
    /// We have a share of its lease.
    Share(Lease),
    /// The last agent there is removing it, or has.
    Gone,
    /// Its agents are dead. No other agent touches the directory while we hold the lock.
    Dead(Lease),
    /// An agent on that machine made it, and locks do not reach other machines there. So nothing shows whether that
    /// agent lives.
    Apart(String),
}

/// Takes a share of the lease of a directory that another agent of our app has made. Waits while that agent removes it.
///
/// # Errors
/// When the lease is not a file of ours, or cannot be locked.
pub(super) fn join(dir: impl AsFd, here: &Owner) -> io::Result<Joined> {
    let dir = dir.as_fd();
    let Some(file) = open(dir, LEASE_FILE, OFlag::empty())? else { return Ok(Joined::Gone) };
    // The maker holds a share. If we get the exclusive lock all the same, the maker is dead, or its locks do not reach
    // us.
    let file = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Err((file, Errno::EWOULDBLOCK)) => file,
        Err((_, error)) => return Err(error.into()),
        Ok(mut whole) => {
            return Ok(match read_owner(&mut whole) {
                Some(owner) if !owner.is_judged_here(here) => Joined::Apart(owner.host),
                _ => Joined::Dead(Lease(Some(whole))),
            });
        }
    };
    Ok(share_named(dir, LEASE_FILE, file)?.map_or(Joined::Gone, Joined::Share))
}

/// Takes a share of a lease inside an app's directory, and makes the lease if it is missing.
///
/// Waits while the last holder removes what the lease protects.
///
/// # Errors
/// When the name belongs to anything but a file of ours, or the file cannot be locked.
pub(super) fn share(dir: impl AsFd, name: &str) -> io::Result<Lease> {
    let dir = dir.as_fd();
    loop {
        // The flag creates the file, so it exists.
        let file = open(dir, name, OFlag::O_CREAT)?.ok_or(io::ErrorKind::NotFound)?;
        if let Some(lease) = share_named(dir, name, file)? {
            return Ok(lease);
        }
    }
}

/// Takes a shared lock on the file. `None`: its name was removed meanwhile.
fn share_named(dir: BorrowedFd<'_>, name: &str, file: File) -> io::Result<Option<Lease>> {
    let share = Flock::lock(file, FlockArg::LockShared).map_err(|(_, error)| error)?;
    let ours = fstat(&*share)?;
    let is_named = match tree::lstat(dir, name) {
        Ok(named) => (named.st_dev, named.st_ino) == (ours.st_dev, ours.st_ino),
        Err(Errno::ENOENT) => false,
        Err(error) => return Err(error.into()),
    };
    let lease = Lease(Some(share));
    Ok(is_named.then_some(lease))
}

/// A sweep's verdict on a directory, from its lease.
#[derive(Debug)]
pub(super) enum Verdict {
    /// The owner is dead. No other sweep touches the directory while we hold the lock.
    Dead(Lease),
    /// The owner lives, or cannot be judged from here, or the directory is under construction.
    Leave,
}

/// Judges the owner of an app's directory. `here` is this process, `now` the time, `is_ours` whether the directory's
/// maker works on our kernel.
///
/// # Errors
/// When the lease cannot be read or locked; then the caller must leave the directory alone.
pub(super) fn judge(dir: impl AsFd, here: &Owner, now: SystemTime, is_ours: bool) -> io::Result<Verdict> {
    let dir = dir.as_fd();
    if let Some(file) = open(dir, LEASE_FILE, OFlag::empty())? {
        return judge_lease(dir, file, here, now);
    }
    if !is_ours && !is_older_than_construction(dir, now)? {
        return Ok(Verdict::Leave);
    }
    // The owner died before its lease was complete, or works on it just now. Making `lease.new` ourselves stops a living
    // owner: it makes that file only if it does not exist, and locks it before it goes on. It then makes another
    // directory. Locks may not reach an owner on another machine, so that one has had its time before.
    let Some(file) = open(dir, NEW_LEASE, OFlag::O_CREAT)? else { return Ok(Verdict::Leave) };
    let Some(lease) = lock(file)? else { return Ok(Verdict::Leave) };
    // The owner may have completed its lease between our two checks.
    Ok(match tree::lstat(dir, LEASE_FILE) {
        Err(Errno::ENOENT) => Verdict::Dead(lease),
        _ => {
            // Only our own empty file is removed: the owner's rename took the name along.
            nix::unistd::unlinkat(dir, NEW_LEASE, nix::unistd::UnlinkatFlags::NoRemoveDir).ok();
            Verdict::Leave
        }
    })
}

fn judge_lease(dir: impl AsFd, mut file: File, here: &Owner, now: SystemTime) -> io::Result<Verdict> {
    let dir = dir.as_fd();
    let owner = read_owner(&mut file);
    let Some(lease) = lock(file)? else { return Ok(Verdict::Leave) };
    let judged = match owner {
        Some(owner) => owner.is_judged_here(here),
        // A machine that lost power may have kept the file and lost the text.
        None => is_older_than_construction(dir, now)?,
    };
    Ok(if judged { Verdict::Dead(lease) } else { Verdict::Leave })
}

/// Reads the owner in a lease. Bytes that are not text are no lease of ours, like a truncated text.
fn read_owner(file: &mut File) -> Option<Owner> {
    let mut text = String::new();
    file.take(MAX_TEXT_BYTES).read_to_string(&mut text).ok()?;
    parse_owner(&text)
}

/// Opens a lease of ours: a regular file, never a link or a pipe.
fn open(dir: impl AsFd, name: &str, extra: OFlag) -> io::Result<Option<File>> {
    let flags = OFlag::O_RDWR | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC | extra;
    let file = match openat(dir, name, flags, Mode::S_IRUSR | Mode::S_IWUSR) {
        Ok(fd) => File::from(fd),
        Err(Errno::ENOENT) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let stat = fstat(&file)?;
    if tree::is_kind(&stat, SFlag::S_IFREG) && stat.st_uid == geteuid().as_raw() {
        Ok(Some(file))
    } else {
        Err(io::Error::other("its lease is not a file of ours"))
    }
}

fn lock(file: File) -> io::Result<Option<Lease>> {
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => Ok(Some(Lease(Some(lock)))),
        Err((_, Errno::EWOULDBLOCK)) => Ok(None),
        Err((_, error)) => Err(error.into()),
    }
}

fn is_older_than_construction(dir: impl AsFd, now: SystemTime) -> io::Result<bool> {
    let changed = u64::try_from(fstat(dir)?.st_ctime).unwrap_or(0);
    let changed = SystemTime::UNIX_EPOCH + Duration::from_secs(changed);
    // A change in the future: the clocks differ, so the age is unknown.
    Ok(now.duration_since(changed).is_ok_and(|age| age > CONSTRUCTION))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_reads_back_and_anything_else_does_not() {
        let owner = Owner { pid: 7, start: 99, boot: "b-1".into(), host: "n 1".into() };
        let text = owner.build_text();
        assert_eq!(parse_owner(&text), Some(owner));
        for cut in 0..text.len() {
            assert_eq!(parse_owner(&text[..cut]), None, "{:?}", &text[..cut]);
        }
        assert_eq!(parse_owner("pid x\nstart 1\nboot b\nhost h\n"), None);
    }

    #[test]
    fn the_start_time_is_found_behind_any_name() {
        let rest = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 21";
        for name in ["cat", "a b", ") S 1 (", "((("] {
            assert_eq!(parse_start(&format!("5 ({name}) {rest}")), Some(4242), "{name:?}");
        }
        assert_eq!(parse_start("5 (cat) S 1 2"), None);
        let this = Owner::this_process().unwrap();
        assert!(this.start > 0 && !this.boot.is_empty());
    }

    #[test]
    fn an_owner_on_another_machine_is_not_judged() {
        let owner = |boot: &str, host: &str| Owner { pid: 1, start: 1, boot: boot.into(), host: host.into() };
        let here = owner("now", "n1");
        assert!(owner("now", "n1").is_judged_here(&here), "same boot");
        assert!(owner("before", "n1").is_judged_here(&here), "this machine, started anew");
        assert!(owner("now", "container").is_judged_here(&here), "same kernel");
        assert!(!owner("other", "n2").is_judged_here(&here), "another machine");
    }
}
