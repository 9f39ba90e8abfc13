//! How apps that ran in the background have ended: a file for each in the runtime directory, for an hour.
//!
//! The frontend process of such an app is gone after the app's end, and with it the app's socket. A record tells a
//! later client that the app was there, and its exit code. Nothing depends on a record. A file that is not exactly what
//! [`Registry::record_end`] writes counts as none.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use gantry_types::id::AppId;
use serde::{Deserialize, Serialize};

use super::registry::Registry;
use crate::error::{Error, Result};
use crate::event::{Event, Exit};

/// For how long a record is kept.
const KEPT: Duration = Duration::from_secs(3600);

/// A record that is still being written at this age belonged to a process that died.
const STALE_NEW: Duration = Duration::from_secs(60);

/// How many records are kept. The oldest ones go first.
const MOST_RECORDS: usize = 256;

/// A longer file is no record. An app with more ranks than fit is recorded without them.
const MAX_BYTES: usize = 1024 * 1024;

const SUFFIX: &str = ".json";

/// The suffix of a record that is being written.
const NEW_SUFFIX: &str = ".new";

/// The end of an app that ran in the background.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Ended {
    /// How it ended. The record of an app with very many ranks lacks the ranks.
    pub exit: Exit,
    /// If output of it could not be written: the first event that said so.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub lost: Option<Event>,
}

impl Ended {
    /// The end of an app, with the event of its lost output.
    #[must_use]
    pub fn new(exit: Exit, lost: Option<Event>) -> Self {
        Self { exit, lost }
    }
}

impl Registry {
    /// Records the end of an app for [`Registry::find_ended`]. A record of the same app is replaced. Old records go.
    ///
    /// # Errors
    /// The record cannot be written.
    pub fn record_end(&self, ended: &Ended) -> Result<()> {
        let app = ended.exit.app;
        let failed =
            |e| Error::io(format!("cannot record the end of app {app} in {}", self.path().display()), e);
        let records = Records::open(self, true).map_err(failed)?;
        records.write(ended).map_err(failed)?;
        records.sweep(SystemTime::now());
        Ok(())
    }

    /// The recorded ends of apps whose id begins with `name`, in order of their ids. Old records go.
    #[must_use]
    pub fn find_ended(&self, name: &str) -> Vec<Ended> {
        let Ok(records) = Records::open(self, false) else { return Vec::new() };
        records.sweep(SystemTime::now());
        let wanted = name.to_ascii_lowercase();
        let mut apps: Vec<AppId> =
            records.list().into_iter().filter_map(|(name, _)| parse_name(&name)).collect();
        apps.retain(|app| app.as_str().starts_with(&wanted));
        apps.sort_unstable();
        apps.into_iter().filter_map(|app| records.read(app)).collect()
    }

    /// Removes old records.
    pub(crate) fn sweep_ended(&self) {
        if let Ok(records) = Records::open(self, false) {
            records.sweep(SystemTime::now());
        }
    }
}

/// The opened folder of the records, checked to be private.
struct Records {
    opened: File,
    uid: u32,
}

impl Records {
    fn open(registry: &Registry, create: bool) -> io::Result<Self> {
        let path = registry.ended_dir();
        if create {
            match DirBuilder::new().mode(0o700).create(&path) {
                Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(e),
                _ => {}
            }
        }
        let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        let opened = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
        let (about, uid) = (opened.metadata()?, registry.uid());
        if about.uid() != uid || about.mode() & 0o077 != 0 {
            return Err(ErrorKind::PermissionDenied.into());
        }
        Ok(Self { opened, uid })
    }

    /// The path of an entry through the opened folder.
    fn inside(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{name}", self.opened.as_raw_fd()))
    }

    fn write(&self, ended: &Ended) -> io::Result<()> {
        let mut bytes = serde_json::to_vec(ended)?;
        if bytes.len() > MAX_BYTES {
            let exit = Exit { ranks: Vec::new(), ..ended.exit.clone() };
            bytes = serde_json::to_vec(&Ended { exit, lost: ended.lost.clone() })?;
        }
        let app = ended.exit.app;
        let (new, done) = (
            self.inside(&format!("{app}.{}{NEW_SUFFIX}", std::process::id())),
            self.inside(&format!("{app}{SUFFIX}")),
        );
        // Left by a process that had this number.
        drop(std::fs::remove_file(&new));
        let written = (|| {
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
            file.set_permissions(Permissions::from_mode(0o600))?;
            file.write_all(&bytes)?;
            std::fs::rename(&new, &done)
        })();
        if written.is_err() {
            drop(std::fs::remove_file(&new));
        }
        written
    }

    /// The record of an app. None: there is none that this user has written, or it is damaged.
    fn read(&self, app: AppId) -> Option<Ended> {
        // A fifo must not block this.
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
        let path = self.inside(&format!("{app}{SUFFIX}"));
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
        let about = file.metadata().ok()?;
        if !about.is_file() || about.uid() != self.uid || about.mode() & 0o077 != 0 {
            return None;
        }
        let mut bytes = Vec::new();
        file.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes).ok()?;
        if bytes.len() > MAX_BYTES {
            return None;
        }
        let ended: Ended = serde_json::from_slice(&bytes).ok()?;
        let is_its_own = match &ended.lost {
            None => true,
            Some(Event::OutputLost { app: of, .. }) => *of == app,
            Some(_) => false,
        };
        (ended.exit.app == app && is_its_own).then_some(ended)
    }

    /// All entries with the time of their last change.
    fn list(&self) -> Vec<(String, SystemTime)> {
        let entries = std::fs::read_dir(self.inside("")).into_iter().flatten().flatten();
        let named = entries.filter_map(|entry| {
            // The entry itself counts, not what a link points to.
            let changed = entry.metadata().and_then(|about| about.modified()).ok()?;
            Some((entry.file_name().into_string().ok()?, changed))
        });
        named.collect()
    }

    /// Removes records that are too old or too many, and the remains of processes that died while they wrote one.
    fn sweep(&self, now: SystemTime) {
        let is_older =
            |changed: SystemTime, than: Duration| now.duration_since(changed).is_ok_and(|age| age > than);
        let mut kept = Vec::new();
        for (name, changed) in self.list() {
            let limit = if name.ends_with(NEW_SUFFIX) { STALE_NEW } else { KEPT };
            if is_older(changed, limit) {
                // A later sweep tries again.
                drop(std::fs::remove_file(self.inside(&name)));
            } else if name.ends_with(SUFFIX) {
                kept.push((changed, name));
            }
        }
        kept.sort_unstable();
        for (_, name) in kept.iter().take(kept.len().saturating_sub(MOST_RECORDS)) {
            drop(std::fs::remove_file(self.inside(name)));
        }
    }
}

/// The app whose record has that name.
fn parse_name(name: &str) -> Option<AppId> {
    name.strip_suffix(SUFFIX)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use gantry_types::id::Rank;
    use gantry_types::output::Stream;

    use super::*;
    use crate::event::{Ending, RankExit};

    const APP: &str = "3kx9w0fz";

    fn end_of(app: &str, code: i32, ranks: u32) -> Ended {
        let status = Ending { code: Some(code), ..Ending::default() };
        let ranks = (0..ranks).map(|rank| RankExit { rank: Rank(rank), status }).collect();
        Ended::new(Exit { app: app.parse().unwrap(), ranks, code, cause: None }, None)
    }

    fn registry() -> (tempfile::TempDir, Registry) {
        let base = tempfile::tempdir().unwrap();
        let registry = Registry::open(Some(&base.path().join("r"))).unwrap();
        (base, registry)
    }

    fn file_of(registry: &Registry, app: &str) -> PathBuf {
        registry.path().join("ended").join(format!("{app}.json"))
    }

    fn age(path: &Path, by: Duration) {
        let file = File::open(path).unwrap();
        file.set_modified(SystemTime::now() - by).unwrap();
    }

    #[test]
    fn the_end_of_an_app_is_found_by_its_id_or_the_beginning_of_it() {
        let (_base, registry) = registry();
        assert_eq!(registry.find_ended(APP), []);
        assert!(!registry.path().join("ended").exists(), "a question makes no folder");
        let mut ended = end_of(APP, 7, 2);
        let app = ended.exit.app;
        registry.record_end(&ended).unwrap();
        assert_eq!(registry.find_ended(APP), [ended.clone()]);
        let message = "No space left on device".to_owned();
        ended.lost = Some(Event::OutputLost { app, stream: Stream::Stdout, message });
        registry.record_end(&ended).unwrap();
        assert_eq!(registry.find_ended("3KX"), [ended]);
        assert_eq!(registry.find_ended("3ky"), []);
        assert_eq!(registry.find_ended("../3kx9w0fz"), []);
        let about = fs::metadata(file_of(&registry, APP)).unwrap();
        assert_eq!(about.mode() & 0o777, 0o600);
    }

    #[test]
    fn a_record_of_very_many_ranks_has_the_code_alone() {
        let (_base, registry) = registry();
        registry.record_end(&end_of(APP, 3, 100_000)).unwrap();
        assert_eq!(registry.find_ended(APP), [end_of(APP, 3, 0)]);
    }

    #[test]
    fn a_damaged_or_foreign_file_is_no_record() {
        let (base, registry) = registry();
        registry.record_end(&end_of(APP, 7, 1)).unwrap();
        let path = file_of(&registry, APP);
        let good = fs::read(&path).unwrap();
        let check = |what: &str| assert_eq!(registry.find_ended(APP), [], "{what}");
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        check("others can read it");
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        for bytes in [&good[..good.len() - 1], b"", b"null", &vec![b' '; MAX_BYTES + 1]] {
            fs::write(&path, bytes).unwrap();
            check("damaged");
        }
        fs::write(&path, String::from_utf8(good.clone()).unwrap().replace(APP, "4kx9w0fz")).unwrap();
        check("of another app");
        fs::remove_file(&path).unwrap();
        fs::write(base.path().join("elsewhere"), &good).unwrap();
        fs::set_permissions(base.path().join("elsewhere"), Permissions::from_mode(0o600)).unwrap();
        symlink(base.path().join("elsewhere"), &path).unwrap();
        check("a link");
        fs::remove_file(&path).unwrap();
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRUSR | nix::sys::stat::Mode::S_IWUSR).unwrap();
        check("a fifo");
        fs::remove_file(&path).unwrap();
        fs::write(&path, &good).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        if nix::unistd::geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(65534), None).unwrap();
            check("of another user");
            std::os::unix::fs::chown(&path, Some(0), None).unwrap();
        }
        assert_eq!(registry.find_ended(APP).len(), 1);
        fs::set_permissions(path.parent().unwrap(), Permissions::from_mode(0o755)).unwrap();
        check("in a folder that others can read");
        registry.record_end(&end_of(APP, 7, 1)).unwrap_err();
    }

    #[test]
    fn records_go_when_they_are_old_or_too_many() {
        let (_base, registry) = registry();
        let id = |number: usize| format!("{number:08}");
        for number in 0..MOST_RECORDS + 3 {
            registry.record_end(&end_of(&id(number), 0, 1)).unwrap();
            let path = file_of(&registry, &id(number));
            age(&path, Duration::from_secs(3000 - number as u64));
        }
        registry.sweep_ended();
        let left = registry.find_ended("");
        assert_eq!(left.len(), MOST_RECORDS);
        assert_eq!(left[0].exit.app.as_str(), id(3));
        let new = registry.path().join("ended").join(format!("{APP}.1.new"));
        fs::write(&new, "").unwrap();
        age(&file_of(&registry, &id(5)), KEPT + Duration::from_secs(1));
        registry.sweep_ended();
        assert!(new.exists() && !file_of(&registry, &id(5)).exists());
        age(&new, STALE_NEW + Duration::from_secs(1));
        registry.sweep_ended();
        assert!(!new.exists());
    }
}
