//! The folder of a bed on this machine: the data about it outside its namespaces, and how to remove it.
//!
//! Everything else of a bed is inside: its mounts, interfaces and processes belong to namespaces that end with the init
//! of the *hall* (see [`hall`](super::hall)). So the folder only has to identify that init: by pid, start time and boot
//! id, because pids are reused.

use std::fs::{self, File};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::Signal;

use super::cgroup;
use super::command::{Result, err};
use super::config::Config;
use crate::proc::{self, Pidfd};

/// The name of the hall in a process' command line, where hosts have theirs.
pub(crate) const HALL: &str = "hall";

/// How long a bed may take to end before it is killed.
const ENDING: Duration = Duration::from_secs(15);

/// A bed's folder, as an absolute path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place(PathBuf);

impl Place {
    pub(crate) fn new(dir: impl Into<PathBuf>) -> Self {
        Self(dir.into())
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.0
    }

    /// Where the hall mounts its own small file system.
    pub(crate) fn mount_point(&self) -> PathBuf {
        self.0.join("mnt")
    }

    /// The log with the stderr of a host's init and its daemons.
    pub(crate) fn log(&self, host: &str) -> PathBuf {
        self.0.join(format!("{host}.log"))
    }

    /// Makes the folder and writes the configuration into it. Other users may pass through: the user's programs look at
    /// mounts.
    pub(crate) fn create(&self, config: &Config) -> Result<()> {
        let made = fs::DirBuilder::new().recursive(true).mode(0o755).create(self.mount_point());
        made.map_err(err(self.mount_point().display()))?;
        let text = serde_json::to_vec(config).map_err(err("the configuration"))?;
        fs::write(self.0.join("config.json"), text).map_err(err(self.0.display()))
    }

    pub(crate) fn config(&self) -> Result<Config> {
        let path = self.0.join("config.json");
        let text = fs::read(&path).map_err(err(path.display()))?;
        serde_json::from_slice(&text).map_err(err(path.display()))
    }

    /// Records that the bed is complete.
    pub(crate) fn set_ready(&self) -> Result<()> {
        fs::write(self.0.join("ready"), "").map_err(err(self.0.display()))
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.0.join("ready").exists()
    }

    /// Writes down that process `pid` is the hall's init.
    pub(crate) fn set_hall(&self, pid: i32) -> Result<()> {
        let start = proc::stat(pid).ok_or("the hall has no /proc entry")?.start_ticks;
        // Renamed into place, so a reader sees all of it or nothing.
        let fresh = self.0.join("hall.new");
        fs::write(&fresh, format!("{pid} {start} {}\n", boot_id())).map_err(err(fresh.display()))?;
        fs::rename(&fresh, self.0.join("hall")).map_err(err(self.0.display()))
    }

    /// The hall's init, when it lives.
    pub(crate) fn hall(&self) -> Option<(i32, Pidfd)> {
        let (pid, start) = parse_hall(&fs::read_to_string(self.0.join("hall")).ok()?, &boot_id())?;
        let process = Pidfd::open(pid).ok()?;
        // This is checked after the pidfd is open, so the pid cannot pass to another process in between.
        let stat = proc::stat(pid)?;
        (stat.start_ticks == start && !matches!(stat.state, 'Z' | 'X')).then_some((pid, process))
    }

    /// The init of one of the bed's hosts, if it lives: process 1 of a namespace, with this bed and this host in its
    /// argv.
    pub(crate) fn host(&self, name: &str) -> Option<i32> {
        let wanted = format!(" inside init {} {name}", self.0.display());
        proc::all().into_iter().find(|pid| proc::command_line(*pid).ends_with(&wanted) && is_init(*pid))
    }

    /// Ends all processes of the bed and removes its remains on this machine. Returns whether there were any. A bed
    /// whose hall was killed has no processes any more, but a folder and cgroups.
    pub(crate) fn sweep(&self) -> Result<bool> {
        if !self.0.exists() {
            return Ok(false);
        }
        if let Some((pid, process)) = self.hall() {
            // An error means that it has ended in this moment.
            drop(process.signal(Signal::SIGTERM));
            if !process.wait_end(ENDING) {
                drop(process.signal(Signal::SIGKILL));
                if !process.wait_end(ENDING) {
                    return Err(format!("process {pid} of {} does not die", self.0.display()));
                }
            }
        }
        if let Ok(config) = self.config() {
            cgroup::remove(&config)?;
        }
        self.remove()?;
        Ok(true)
    }

    /// Removes the folder. It is no error if another process has removed it already.
    pub(crate) fn remove(&self) -> Result<()> {
        match fs::remove_dir_all(&self.0) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(format!("{}: {error}", self.0.display()))
            }
            _ => Ok(()),
        }
    }
}

/// Holds a folder of beds against other commands, and makes it when it is not there.
#[derive(Debug)]
pub(crate) struct Held {
    folder: PathBuf,
    _lock: Flock<File>,
}

impl Held {
    pub(crate) fn new(folder: &Path) -> Result<Self> {
        loop {
            fs::create_dir_all(folder).map_err(err(folder.display()))?;
            let file = File::open(folder).map_err(err(folder.display()))?;
            let lock = Flock::lock(file, FlockArg::LockExclusive)
                .map_err(|(_, error)| format!("lock {}: {error}", folder.display()))?;
            // The previous holder may have removed the folder because it was empty.
            let same = |here: fs::Metadata| lock.metadata().is_ok_and(|held| held.ino() == here.ino());
            if fs::metadata(folder).is_ok_and(same) {
                return Ok(Self { folder: folder.to_path_buf(), _lock: lock });
            }
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // This fails while it contains a bed, as intended.
        drop(fs::remove_dir(&self.folder));
    }
}

/// Pid and start time from `PID START BOOT`, when it is of this boot.
fn parse_hall(text: &str, boot: &str) -> Option<(i32, u64)> {
    let [pid, start, of] = text.split_ascii_whitespace().collect::<Vec<_>>()[..] else { return None };
    (of == boot).then_some((pid.parse().ok()?, start.parse().ok()?))
}

/// Whether a process is number 1 of its pid namespace, and that is not ours.
fn is_init(pid: i32) -> bool {
    own_number(pid) == Some(1)
}

/// A process's pid in its innermost namespace.
pub(crate) fn own_number(pid: i32) -> Option<i32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    numbers.split_ascii_whitespace().next_back()?.parse().ok()
}

fn boot_id() -> String {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    text.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Option<(i32, u64)>) {
        assert_eq!(parse_hall(text, "b-1"), expected, "{text:?}");
    }

    #[test]
    fn a_hall_of_another_boot_is_not_believed() {
        check("12 345 b-1\n", Some((12, 345)));
        check("12 345 b-0\n", None);
        check("12 b-1", None);
        check("", None);
    }

    #[test]
    fn a_pid_that_was_given_away_is_not_the_hall() {
        let folder = tempfile::tempdir().expect("a folder");
        let place = Place::new(folder.path());
        let own = i32::try_from(std::process::id()).expect("a pid");
        place.set_hall(own).expect("written");
        assert_eq!(place.hall().map(|(pid, _)| pid), Some(own));
        fs::write(folder.path().join("hall"), format!("{own} 1 {}", boot_id())).expect("written");
        assert!(place.hall().is_none());
    }

    #[test]
    fn a_bed_that_is_not_there_needs_no_sweeping() {
        assert_eq!(Place::new("/nonexistent/bed").sweep(), Ok(false));
    }
}
