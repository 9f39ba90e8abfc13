//! The process of a gdb, and the thread that reads its output.

use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use gantry_gdb::answer::State;
use gantry_shared::deadline::bounded;
use gantry_types::id::Rank;

use crate::desk::{self, Desk, Gdbs};
use crate::gdb::Gdb;
use crate::symbols::Files;
use crate::watcher::{Pair, Watcher};

/// The variable that marks processes of an app, which are killed at its end. A gdb ends by itself, and first detaches
/// from its rank.
const MARK: &str = "GANTRY_MARK";

/// Time between two attempts to stop a rank for its release. An attempt may come between two messages of gdb.
const GLANCE: Duration = Duration::from_millis(100);

/// The most bytes of one read.
const PIECE_BYTES: usize = 16 << 10;

/// gdb's process; its owner waits for its end.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    reader: Option<JoinHandle<()>>,
}

/// Starts a gdb for a rank, and a thread that passes its output to the desk.
///
/// # Errors
/// The system's error.
pub(crate) fn start(
    program: &Path,
    rank: Rank,
    pid: i32,
    alone: State,
    files: &Files,
    desk: &Arc<Desk>,
    watcher: &Watcher,
) -> io::Result<Process> {
    #[expect(
        clippy::disallowed_methods,
        reason = "this daemon exists to start debuggers, and only this place starts them"
    )]
    let mut command = Command::new(program);
    // gdb gets its own process group. So a signal that kills this daemon's group does not reach it: gdb detaches from
    // the rank and ends by itself.
    command.args(["-i=mi3", "-nx", "-q"]).process_group(0).env_remove(MARK);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let (input, output, errors) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let gdb = i32::try_from(child.id()).map_err(io::Error::other).and_then(|own_pid| {
        let pair = Pair { rank: pid, gdb: own_pid, is_held: is_stopped(pid) };
        Gdb::new(rank, pair, alone, input, files, watcher.clone())
    });
    match gdb {
        Ok(gdb) => desk.change(|gdbs| gdbs.insert(rank, gdb)),
        Err(error) => {
            drop(child.kill());
            drop(child.wait());
            return Err(error);
        }
    };
    let desk = Arc::clone(desk);
    let reader = std::thread::Builder::new().name("gdb".to_owned()).spawn(move || {
        let errors = errors.map(|errors| {
            let desk = Arc::clone(&desk);
            std::thread::spawn(move || {
                read(errors, |bytes| desk.change_one(rank, |gdb| gdb.words.push(bytes)))
            })
        });
        if let Some(output) = output {
            read(output, |bytes| desk.change_one(rank, |gdb| gdb.take(bytes)));
        }
        if let Some(errors) = errors {
            // Its standard error is only kept.
            drop(errors.join());
        }
        desk.change_one(rank, Gdb::end);
    })?;
    Ok(Process { child, reader: Some(reader) })
}

/// Whether a process is stopped by a signal. Source: proc_pid_stat(5).
fn is_stopped(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
}

fn read(mut from: impl Read, mut take: impl FnMut(&[u8])) {
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        match from.read(&mut piece) {
            Ok(0) => return,
            Ok(length) => take(&piece[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

impl Process {
    /// Waits until a gdb whose input is closed has detached from its rank and ended. Kills it at the timeout.
    pub(crate) fn end(mut self, desk: &Desk, rank: Rank, patience: Duration) {
        let until = Instant::now() + bounded(patience);
        let is_over = |gdbs: &mut Gdbs| desk::is_over(gdbs, rank);
        loop {
            // gdb reads the end of its input once the rank is stopped.
            desk.change_one(rank, |gdb| gdb.interrupt());
            let left = until.saturating_duration_since(Instant::now());
            if desk.wait(GLANCE.min(left), is_over) {
                break;
            }
            if left.is_zero() {
                drop(self.child.kill());
                break;
            }
        }
        if let Some(reader) = self.reader.take() {
            drop(reader.join());
        }
        drop(self.child.wait());
    }
}
