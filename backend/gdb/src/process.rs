//! The process of a gdb, and the thread that reads what it writes.

use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use gantry_gdb::answer::State;
use gantry_types::id::Rank;

use crate::desk::{self, Desk, Gdbs};
use crate::gdb::Gdb;
use crate::watcher::Watcher;

/// What marks processes of an app, which are killed at its end. A gdb ends by itself, and lets its rank go before.
const MARK: &str = "GANTRY_MARK";

/// How often a rank is stopped that is to be let go: it may have been between two words of gdb.
const GLANCE: Duration = Duration::from_millis(100);

/// How much is read at a time.
const PIECE_BYTES: usize = 16 << 10;

/// Its process, as who waits for it has it.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    reader: Option<JoinHandle<()>>,
}

/// Starts a gdb for a rank, and has the desk take what it writes.
///
/// # Errors
/// The system's.
pub(crate) fn start(
    program: &Path,
    rank: Rank,
    pid: i32,
    alone: State,
    desk: &Arc<Desk>,
    watcher: &mut Watcher,
) -> io::Result<Process> {
    #[expect(
        clippy::disallowed_methods,
        reason = "this daemon exists to start debuggers, and this is the one place"
    )]
    let mut command = Command::new(program);
    // A group of its own: what kills this daemon lets gdb end by itself, after it has let go of the rank.
    command.args(["-i=mi3", "-nx", "-q"]).process_group(0).env_remove(MARK);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    // Told before it has the rank, which it gets by what is written below.
    let told = i32::try_from(child.id()).map_err(io::Error::other).and_then(|gdb| watcher.tell(pid, gdb));
    if let Err(error) = told {
        drop(child.kill());
        drop(child.wait());
        return Err(error);
    }
    let input = child.stdin.take();
    let (output, errors) = (child.stdout.take(), child.stderr.take());
    desk.change(|gdbs| gdbs.insert(rank, Gdb::new(rank, pid, alone, is_stopped(pid), input)));
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
            // It has nothing to say but words that are kept.
            drop(errors.join());
        }
        desk.change_one(rank, |gdb| gdb.dialogue.end());
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
    /// Waits until a gdb whose input is closed has let go of its rank and ended. Kills it when it takes too long.
    pub(crate) fn end(mut self, desk: &Desk, rank: Rank, patience: Duration) {
        let until = Instant::now() + patience;
        let is_over = |gdbs: &mut Gdbs| desk::is_over(gdbs, rank);
        loop {
            // It reads the end of its input when the rank stands.
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
