//! Whether a path can be trusted: only trusted users can change where it leads.
//!
//! Trusted are root, the effective user, and each owner that the caller names. The check follows the path as the
//! kernel does, from `/` on, through each symbolic link. It refuses a component
//! - that another user owns,
//! - that others may write to, or a group that is not private.
//!
//! A sticky directory such as `/tmp` may be writable for others: they cannot replace a trusted user's files in it.
//! But each of them may create a name there, even by a hard link. So a program is not accepted directly in such a
//! directory, only in a trusted directory below it.
//!
//! **Private groups.** With a umask of 002 a user's files are writable for a group that contains only this user. By
//! convention its number is the user's. So the group of that number is private if a trusted user owns the number,
//! `/etc/group` lists no other member, and `/etc/passwd` gives it to no other account. For the effective user it must
//! also be the group of this process. Members that only a directory service knows are not found.
//!
//! **Access lists.** If a file has a POSIX access list, the mode's group bits are the list's mask. So the list can
//! give write access only if these bits do, and a path with both is refused. Access lists of NFSv4 servers are not
//! visible: only the mode counts.
//!
//! **Appointed users.** A caller may also trust those to whom a trusted user has given a directory: the owner and the group
//! of what is in a directory that not all users may write to. A site's software often belongs to such an account. Nobody
//! becomes one by planting files: the members of a group that may write to a sticky directory are strangers there.
//!
//! **User namespaces.** If root is not mapped, its files seem to belong to an unknown user. So the owner of `/` is
//! trusted as well, except in a directory that others may write to.
//!
//! The result remains valid: only a trusted user can change the path afterwards.

mod group;
mod sys;

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fmt;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use gantry_types::error::{Failure, Kind};

/// The most symbolic links on the way, as in the kernel.
const MAX_LINKS: usize = 40;

/// The trusted users.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trust {
    uid: u32,
    gid: u32,
    others: Vec<u32>,
    with_appointed: bool,
}

impl Trust {
    /// Trusts root and the effective user of this process.
    #[must_use]
    pub fn of_process() -> Self {
        let (uid, gid) = sys::effective_ids();
        Self { uid, gid, others: Vec::new(), with_appointed: false }
    }

    /// Trusts that user as well.
    #[must_use]
    pub fn and_owner(mut self, uid: u32) -> Self {
        self.others.push(uid);
        self
    }

    /// Trusts also the users and groups that trusted users have appointed; see the module.
    #[must_use]
    pub fn and_appointed(mut self) -> Self {
        self.with_appointed = true;
        self
    }

    /// Checks a program before its execution: a regular file. Others may not write to a directory in which its name is
    /// looked up.
    ///
    /// # Errors
    /// Why it is not trusted. [`Distrust::is_missing`] tells whether it exists.
    pub fn check_program(&self, path: &Path) -> Result<(), Distrust> {
        self.check_by(path, Wanted::Program, &Machine)
    }

    /// Checks a directory from which programs are taken by name, or whose content only trusted users may create. Others
    /// may not write to it.
    ///
    /// # Errors
    /// Why it is not trusted.
    pub fn check_own_dir(&self, path: &Path) -> Result<(), Distrust> {
        self.check_by(path, Wanted::OwnDir, &Machine)
    }

    /// Checks a directory in which a private one is to be created, under a new name. Others may write to it if it is
    /// sticky.
    ///
    /// # Errors
    /// Why it is not trusted.
    pub fn check_dir(&self, path: &Path) -> Result<(), Distrust> {
        self.check_by(path, Wanted::Dir, &Machine)
    }

    fn check_by(&self, path: &Path, wanted: Wanted, look: &dyn Look) -> Result<(), Distrust> {
        let mut way =
            Way { trust: self, look, at: PathBuf::from("/"), shared: Vec::new(), top: self.uid, links: 0 };
        let walked = way.walk(path, wanted);
        walked.map_err(|(component, why)| Distrust { path: path.to_owned(), component, why })
    }

    fn owns(&self, uid: u32) -> bool {
        uid == 0 || uid == self.uid || self.others.contains(&uid)
    }

    /// Whether only trusted users are in that group.
    fn is_private(&self, gid: u32, look: &dyn Look) -> bool {
        // A user may get files of a group with the user's own number without being its only member.
        let conventional = self.owns(gid) && (gid != self.uid || gid == self.gid);
        conventional && group::is_alone(gid, &look.accounts("/etc/group"), &look.accounts("/etc/passwd"))
    }
}

/// Why a path is not trusted: the component, and the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Distrust {
    /// The checked path.
    pub path: PathBuf,
    /// The component at fault, with all links before it resolved.
    pub component: PathBuf,
    /// The reason.
    pub why: Why,
}

/// What is wrong with a component of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Why {
    /// An untrusted user owns it.
    Owner(u32),
    /// All users may write to it; with the mode's last twelve bits.
    OthersWrite(u32),
    /// A group may write to it that is not known to be private.
    GroupWrites(u32),
    /// It has an access list, which may let others write to it.
    AccessList,
    /// Others may create names in this directory.
    Planted,
    /// The path does not begin at `/`.
    NotAbsolute,
    /// It does not exist.
    Missing,
    /// It is not a directory.
    NotADirectory,
    /// It is not a regular file.
    NotAFile,
    /// There are too many symbolic links on the way.
    TooManyLinks,
    /// It cannot be examined.
    Unreadable(ErrorKind),
}

impl Distrust {
    /// Whether the path does not exist. Otherwise it exists, but others may be able to change it.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        matches!(
            self.why,
            Why::Missing | Why::NotADirectory | Why::NotAFile | Why::Unreadable(_) | Why::TooManyLinks
        )
    }

    /// The remedy.
    #[must_use]
    pub fn hint(&self) -> String {
        let component = self.component.display();
        match self.why {
            Why::Owner(_) => format!("use a path that only you and root own, or 'chown' {component}"),
            Why::OthersWrite(_) => format!("chmod o-w {component}"),
            Why::GroupWrites(_) => format!("chmod g-w {component}"),
            Why::AccessList => format!("setfacl -b {component}; chmod g-w {component}"),
            Why::Planted => format!("use a directory of your own in {component}"),
            Why::NotAbsolute => "give it as an absolute path".to_owned(),
            Why::Missing | Why::NotADirectory | Why::NotAFile | Why::Unreadable(_) | Why::TooManyLinks => {
                "name another path".to_owned()
            }
        }
    }

    /// The kind of failure, by the caller's remedy.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self.why {
            Why::NotAbsolute | Why::NotADirectory | Why::NotAFile => Kind::Invalid,
            Why::Missing => Kind::NotFound,
            _ => Kind::NoAccess,
        }
    }

    /// Converts it to a failure; `what` names the attempt.
    #[must_use]
    pub fn to_failure(&self, what: impl fmt::Display) -> Failure {
        Failure::new(self.kind(), format!("{what}: {self}")).with_hint(self.hint())
    }
}

impl std::error::Error for Distrust {}

impl fmt::Display for Distrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.component != self.path {
            write!(f, "{}: ", self.path.display())?;
        }
        write!(f, "{} {}", self.component.display(), self.why)
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Owner(uid) => write!(f, "belongs to user {uid}"),
            Self::OthersWrite(mode) => write!(f, "is writable for everybody (mode {mode:o})"),
            Self::GroupWrites(gid) => write!(f, "is writable for group {gid}, which may have other members"),
            Self::AccessList => f.write_str("has an access control list that lets other users write to it"),
            Self::Planted => f.write_str("is a directory in which other users may put a file of that name"),
            Self::NotAbsolute => f.write_str("is not an absolute path"),
            Self::Missing => f.write_str("is missing"),
            Self::NotADirectory => f.write_str("is not a directory"),
            Self::NotAFile => f.write_str("is not a regular file"),
            Self::TooManyLinks => f.write_str("leads through too many symbolic links"),
            Self::Unreadable(kind) => write!(f, "cannot be looked at: {kind}"),
        }
    }
}

/// The expected target of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Program,
    OwnDir,
    Dir,
}

/// The entry of one name; links are not followed.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    kind: EntryKind,
    uid: u32,
    gid: u32,
    /// The last twelve bits.
    mode: u32,
    has_access_list: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum EntryKind {
    Dir,
    File,
    Link(PathBuf),
    Other,
}

/// Access to a machine's files.
trait Look {
    fn look(&self, path: &Path) -> io::Result<Entry>;

    /// The text of `/etc/group` or `/etc/passwd`; empty if there is none.
    fn accounts(&self, path: &str) -> String;
}

/// This machine.
struct Machine;

impl Look for Machine {
    fn look(&self, path: &Path) -> io::Result<Entry> {
        let meta = std::fs::symlink_metadata(path)?;
        let file_type = meta.file_type();
        let kind = if file_type.is_symlink() {
            EntryKind::Link(std::fs::read_link(path)?)
        } else if file_type.is_dir() {
            EntryKind::Dir
        } else if file_type.is_file() {
            EntryKind::File
        } else {
            EntryKind::Other
        };
        let mode = meta.mode() & 0o7777;
        // Without these bits the list gives no write access.
        let has_access_list = mode & 0o020 != 0 && !file_type.is_symlink() && sys::has_access_list(path);
        Ok(Entry { kind, uid: meta.uid(), gid: meta.gid(), mode, has_access_list })
    }

    fn accounts(&self, path: &str) -> String {
        String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
    }
}

/// A path during its resolution.
struct Way<'a> {
    trust: &'a Trust,
    look: &'a dyn Look,
    /// The directory reached so far.
    at: PathBuf,
    /// For that directory and each one above, from `/` on: whether untrusted users may create names in it.
    shared: Vec<bool>,
    /// The owner of `/`.
    top: u32,
    links: usize,
}

type Blame = (PathBuf, Why);

impl Way<'_> {
    fn walk(&mut self, path: &Path, wanted: Wanted) -> Result<(), Blame> {
        if !path.is_absolute() {
            return Err((path.to_owned(), Why::NotAbsolute));
        }
        let root = self.entry(Path::new("/"))?;
        self.top = root.uid;
        let shared = self.judge(Path::new("/"), &root, false)?;
        self.shared.push(shared);
        let mut rest = steps(path);
        let mut reached = EntryKind::Dir;
        while let Some(step) = rest.pop_front() {
            if reached != EntryKind::Dir {
                return Err((self.at.clone(), Why::NotADirectory));
            }
            match step {
                Step::Top => self.shared.truncate(1),
                Step::Up if self.shared.len() > 1 => drop(self.shared.pop()),
                Step::Up => {}
                Step::Into(name) => {
                    reached = self.enter(&name, &mut rest, wanted)?;
                    continue;
                }
            }
            let depth = self.shared.len();
            self.at = self.at.components().take(depth).collect();
        }
        let shared = self.shared.last() == Some(&true);
        match (wanted, reached) {
            (Wanted::Program, EntryKind::File) | (Wanted::Dir, EntryKind::Dir) => Ok(()),
            (Wanted::OwnDir, EntryKind::Dir) if !shared => Ok(()),
            (Wanted::OwnDir, EntryKind::Dir) => Err((self.at.clone(), Why::Planted)),
            (Wanted::Program, _) => Err((self.at.clone(), Why::NotAFile)),
            (Wanted::Dir | Wanted::OwnDir, _) => Err((self.at.clone(), Why::NotADirectory)),
        }
    }

    /// Takes one step. A link's target is put in front of the rest.
    fn enter(
        &mut self,
        name: &OsString,
        rest: &mut VecDeque<Step>,
        wanted: Wanted,
    ) -> Result<EntryKind, Blame> {
        let path = self.at.join(name);
        let entry = self.entry(&path)?;
        let in_shared = self.shared.last() == Some(&true);
        if let EntryKind::Link(target) = &entry.kind {
            self.links += 1;
            if self.links > MAX_LINKS {
                return Err((path, Why::TooManyLinks));
            }
            // A link cannot be changed, only replaced. So its owner matters only if its directory does not protect it.
            if in_shared {
                self.check_owner(&path, &entry, true)?;
            }
            self.check_planted(in_shared, rest, wanted)?;
            for step in steps(target).into_iter().rev() {
                rest.push_front(step);
            }
            return Ok(EntryKind::Dir);
        }
        let shared = self.judge(&path, &entry, in_shared)?;
        if entry.kind != EntryKind::Dir {
            self.check_planted(in_shared, rest, wanted)?;
        }
        self.at = path;
        self.shared.push(shared);
        Ok(entry.kind)
    }

    /// Refuses a program under a name that any user could have created: a hard link to a trusted user's file belongs to
    /// that user as well.
    fn check_planted(&self, in_shared: bool, rest: &VecDeque<Step>, wanted: Wanted) -> Result<(), Blame> {
        match in_shared && wanted == Wanted::Program && rest.is_empty() {
            true => Err((self.at.clone(), Why::Planted)),
            false => Ok(()),
        }
    }

    /// Checks owner and mode of an entry that is not a link. Returns whether it is a directory in which untrusted users
    /// may create names.
    fn judge(&self, path: &Path, entry: &Entry, in_shared: bool) -> Result<bool, Blame> {
        self.check_owner(path, entry, in_shared)?;
        let is_sticky = entry.kind == EntryKind::Dir && entry.mode & 0o1000 != 0;
        if self.trust.with_appointed && !in_shared && !is_sticky && entry.mode & 0o002 == 0 {
            return Ok(false);
        }
        match self.find_writers(entry) {
            None => Ok(false),
            Some(_) if is_sticky => Ok(true),
            Some(why) => Err((path.to_owned(), why)),
        }
    }

    fn check_owner(&self, path: &Path, entry: &Entry, in_shared: bool) -> Result<(), Blame> {
        let given = !in_shared && (entry.uid == self.top || self.trust.with_appointed);
        let owned = self.trust.owns(entry.uid) || given;
        if owned { Ok(()) } else { Err((path.to_owned(), Why::Owner(entry.uid))) }
    }

    /// Finds untrusted users with write access.
    fn find_writers(&self, entry: &Entry) -> Option<Why> {
        if entry.mode & 0o002 != 0 {
            return Some(Why::OthersWrite(entry.mode));
        }
        if entry.mode & 0o020 == 0 {
            return None;
        }
        if entry.has_access_list {
            return Some(Why::AccessList);
        }
        (!self.trust.is_private(entry.gid, self.look)).then_some(Why::GroupWrites(entry.gid))
    }

    fn entry(&self, path: &Path) -> Result<Entry, Blame> {
        self.look.look(path).map_err(|error| {
            let why = match error.kind() {
                ErrorKind::NotFound => Why::Missing,
                ErrorKind::NotADirectory => Why::NotADirectory,
                kind => Why::Unreadable(kind),
            };
            (path.to_owned(), why)
        })
    }
}

/// One step on the way.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Top,
    Up,
    Into(OsString),
}

fn steps(path: &Path) -> VecDeque<Step> {
    let step = |component| match component {
        Component::RootDir | Component::Prefix(_) => Some(Step::Top),
        Component::ParentDir => Some(Step::Up),
        Component::CurDir => None,
        Component::Normal(name) => Some(Step::Into(name.to_owned())),
    };
    path.components().filter_map(step).collect()
}

#[cfg(test)]
mod tests;
