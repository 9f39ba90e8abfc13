//! The leak check: reports a test's remains, with their origin.

use std::fmt;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::outside::own_pid;
use crate::proc::{self, Found, Pidfd};

/// Every process that a world starts has this variable, with the world's own value.
pub(crate) const TAG: &str = "GANTRY_TEST_TAG";

/// Remains of a test; one line for each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Leaks {
    /// Processes that live on: pid, state, parent, sockets, command line.
    pub processes: Vec<String>,
    /// Ended children of this process that were not waited for.
    pub zombies: Vec<String>,
    /// Files, sockets and folders under the watched folders.
    pub files: Vec<String>,
}

impl Leaks {
    /// Whether there are no remains.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.processes.is_empty() && self.zombies.is_empty() && self.files.is_empty()
    }
}

impl fmt::Display for Leaks {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (what, lines) in [("process", &self.processes), ("zombie", &self.zombies), ("file", &self.files)]
        {
            for line in lines {
                writeln!(out, "  {what} {line}")?;
            }
        }
        Ok(())
    }
}

/// The subjects of the check, and when the world began.
#[derive(Debug)]
pub(crate) struct Watch<'a> {
    /// The world's value of the tag.
    pub(crate) tag: &'a str,
    /// Processes that must be gone, but may lack the tag.
    pub(crate) tracked: &'a [(i32, Pidfd)],
    /// Folders that must be empty at the end, also without empty folders in them.
    pub(crate) empty: &'a [&'a Path],
    /// Folders in which empty folders may stay.
    pub(crate) no_files: &'a [&'a Path],
    /// Clock ticks since boot at which the world began.
    pub(crate) since: u64,
}

impl Watch<'_> {
    /// Waits up to `patience` for everything to end, then reports the rest. The end of a process is an event. Files and
    /// zombies have no event, so they are polled until the timeout.
    pub(crate) fn look(&self, patience: Duration) -> Leaks {
        let end = Instant::now() + patience;
        let left = || end.saturating_duration_since(Instant::now());
        let mut processes = Vec::new();
        for (pid, process) in self.tracked {
            if !process.wait_end(left()) {
                processes.push(*pid);
            }
        }
        processes.extend(wait_for_tagged(self.tag, end));
        processes.sort_unstable();
        processes.dedup();
        // This uses the result of the last poll. A later look would also count children of other tests in this process.
        let (mut zombies, mut files) = (Vec::new(), Vec::new());
        let _settled = proc::becomes_true(left(), || {
            (zombies, files) = (self.zombies(), self.files());
            zombies.is_empty() && files.is_empty()
        });
        Leaks { processes: processes.into_iter().map(describe).collect(), zombies, files }
    }

    fn zombies(&self) -> Vec<String> {
        let unreaped = |pid: &i32| {
            proc::stat(*pid).is_some_and(|stat| stat.state == 'Z' && stat.start_ticks >= self.since)
        };
        proc::children(own_pid()).into_iter().filter(unreaped).map(describe).collect()
    }

    /// Files in places where no file may remain.
    pub(crate) fn files(&self) -> Vec<String> {
        let mut found = Vec::new();
        for folder in self.empty {
            walk(folder, true, &mut found);
        }
        for folder in self.no_files {
            walk(folder, false, &mut found);
        }
        found
    }
}

/// Waits until `end` for the end of every process with this tag. Returns the remaining ones.
fn wait_for_tagged(tag: &str, end: Instant) -> Vec<i32> {
    loop {
        let alive = proc::bearing(TAG, tag);
        if alive.is_empty() {
            return alive;
        }
        // All of them before the next search, which reads the environments of all processes.
        let left = || end.saturating_duration_since(Instant::now());
        let has_ended = |pid: &i32| Found::open(*pid).map_or(true, |process| process.wait_end(left()));
        if !alive.iter().all(has_ended) {
            return proc::bearing(TAG, tag);
        }
    }
}

/// Describes and kills every process with this tag. Repeats this until none is left, because a dying parent may still
/// start a child.
pub(crate) fn describe_and_kill(tag: &str) -> Vec<String> {
    let mut killed = Vec::new();
    let gone = proc::becomes_true(Duration::from_secs(5), || {
        let alive = proc::bearing(TAG, tag);
        for pid in &alive {
            let Ok(process) = Found::open(*pid) else { continue };
            // Looked at again now that the pidfd holds it: the pid may have gone to another process in between.
            if proc::variable(*pid, TAG).as_deref() == Some(tag) {
                killed.push(describe(*pid));
                // An error means that it has ended of itself.
                drop(process.signal(Signal::SIGKILL));
                let _ended = process.wait_end(Duration::from_secs(1));
            }
        }
        alive.is_empty()
    });
    if !gone {
        killed.push("(and more that do not die)".to_owned());
    }
    killed
}

/// Describes a process in one line.
fn describe(pid: i32) -> String {
    let state = proc::stat(pid).map_or_else(
        || "gone".to_owned(),
        |stat| format!("state {}, parent {}, group {}", stat.state, stat.parent, stat.group),
    );
    let sockets = proc::tcp_sockets(pid);
    let sockets = if sockets.is_empty() { String::new() } else { format!(", tcp {}", sockets.join(" ")) };
    let tracer = proc::tracer(pid).map_or_else(String::new, |tracer| format!(", traced by {tracer}"));
    format!("{pid} ({state}{tracer}{sockets}): {}", proc::command_line(pid))
}

/// Lists the content of a folder; folders themselves only on request, and never the top one.
/// Whether it is the record of an app's end, which gantry keeps for a while in the runtime directory.
fn is_record(path: &Path) -> bool {
    let in_place = path.parent().is_some_and(|folder| folder.ends_with("runtime/ended"));
    let bytes = if in_place { fs::read(path).unwrap_or_default() } else { Vec::new() };
    serde_json::from_slice::<serde_json::Value>(&bytes).is_ok_and(|record| record["exit"]["code"].is_i64())
}

fn walk(folder: &Path, folders_too: bool, found: &mut Vec<String>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if folders_too || !(is_folder || is_record(&entry.path())) {
            found.push(entry.path().display().to_string());
        }
        if is_folder {
            walk(&entry.path(), folders_too, found);
        }
    }
}
