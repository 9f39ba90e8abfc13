//! Cgroups of a bed whose Slurm tracks processes by them.
//!
//! Slurm's plug-ins for cgroup v1 need the root of each hierarchy. They create one folder per node name there. So a
//! machine can have only one such bed at a time, and the folders must be removed when it ends.

use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

use nix::fcntl::{Flock, FlockArg};

use super::command::{Result, err};
use super::config::Config;
use super::files;
use crate::becomes_true;

/// How long a bed waits for its turn. Beds of another test command on this machine may use the cgroups.
pub(crate) const TURN: Duration = Duration::from_secs(300);

/// The folder where Slurm looks for the controller that tracks processes.
const FREEZER: &str = "/sys/fs/cgroup/freezer";

/// The folder where Slurm looks for the controller that limits a task's memory.
const MEMORY: &str = "/sys/fs/cgroup/memory";

/// A file that only the root of a hierarchy of cgroup v1 has. Beds exclude each other by a lock on it. They cannot lock
/// the folder, because Slurm does.
const ROOTS_OWN: &str = "/sys/fs/cgroup/freezer/release_agent";

/// Why Slurm cannot track processes by cgroup on this machine, if so.
pub(crate) fn unusable() -> Option<String> {
    let missing =
        [FREEZER, MEMORY].into_iter().find(|root| !Path::new(root).join("release_agent").exists())?;
    Some(format!("{missing} is no hierarchy of cgroup v1, which proctrack/cgroup and task/cgroup need"))
}

/// Takes the freezer for this bed. This process holds it until it ends.
pub(crate) fn claim(config: &Config) -> Result<()> {
    if let Some(why) = unusable() {
        return Err(why);
    }
    let mut lock = Err(String::new());
    let _came = becomes_true(TURN, || {
        let file = File::open(ROOTS_OWN).map_err(err(ROOTS_OWN));
        lock = file.and_then(|file| {
            let taken = Flock::lock(file, FlockArg::LockExclusiveNonblock);
            taken.map_err(|_| format!("another bed uses {FREEZER}; there can be one with proctrack/cgroup"))
        });
        lock.is_ok()
    });
    let lock = lock?;
    // Existing cgroups are remains of a bed that was killed.
    remove(config)?;
    // Held by the hall's init as long as it lives.
    std::mem::forget(lock);
    Ok(())
}

/// Removes the cgroups of a bed without processes.
pub(crate) fn remove(config: &Config) -> Result<()> {
    if !files::needs_cgroup(config) {
        return Ok(());
    }
    let nodes = config.node_names();
    let mut folders = [FREEZER, MEMORY]
        .into_iter()
        .flat_map(|root| nodes.iter().map(move |node| Path::new(root).join(format!("slurm_{node}"))));
    folders.try_for_each(|folder| remove_tree(&folder))
}

/// Removes a cgroup by rmdir, after the cgroups in it.
fn remove_tree(folder: &Path) -> Result<()> {
    let Ok(entries) = fs::read_dir(folder) else { return Ok(()) };
    for entry in entries.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_tree(&entry.path())?;
        }
    }
    fs::remove_dir(folder).map_err(err(folder.display()))
}
