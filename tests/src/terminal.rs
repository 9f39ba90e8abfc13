//! A user's terminal: a pseudo-terminal with the program at one end, and a keyboard and a screen at the other.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::fcntl::{OFlag, open};
use nix::pty::{Winsize, grantpt, posix_openpt, ptsname_r, unlockpt};
use nix::sys::stat::Mode;

use crate::proc::Pidfd;
use crate::sys;

pub use self::vt::Vt;

mod vt;

/// A program at a separate terminal, which is the controlling terminal of a separate session. Dropping it kills only
/// the program.
#[derive(Debug)]
pub struct Terminal {
    child: Child,
    process: Pidfd,
    keyboard: File,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    vt: Vt,
    bytes: Vec<u8>,
    paused: bool,
    ended: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Opens both ends of a new terminal. Processes that other tests start meanwhile get neither: they would hold it open.
fn open_pair() -> io::Result<(File, File)> {
    let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let master = posix_openpt(flags)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    let slave = File::from(open(ptsname_r(&master)?.as_str(), flags, Mode::empty())?);
    Ok((File::from(OwnedFd::from(master)), slave))
}

impl Terminal {
    /// See [`World::terminal`](crate::World::terminal). `paused`: the program's output is not read until
    /// [`Terminal::resume`].
    #[track_caller]
    pub(crate) fn spawn(mut command: Command, columns: u16, rows: u16, paused: bool) -> Self {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        let (master, slave) = open_pair().expect("a pseudo-terminal");
        sys::set_window_size(master.as_fd(), &size).expect("a terminal with a size");
        let copy = || Stdio::from(slave.try_clone().expect("a descriptor"));
        command.stdin(copy()).stdout(copy()).stderr(copy());
        sys::lead_session(&mut command);
        let child = command.spawn().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        // The program now has the only descriptors of the other end: when it ends, reading ends.
        drop((command, slave));
        let process =
            Pidfd::open(i32::try_from(child.id()).expect("a pid")).expect("a pidfd of our own child");
        let vt = Vt::new(columns.into(), rows.into());
        let state = State { vt, bytes: Vec::new(), paused, ended: false };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let keyboard = master;
        let screen = keyboard.try_clone().expect("a descriptor");
        let read_by = Arc::clone(&shared);
        thread::spawn(move || read(screen, &read_by));
        Self { child, process, keyboard, shared }
    }

    /// The program's pid.
    #[must_use]
    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap_or(0)
    }

    /// Types; `\n` is Enter, `\x03` Ctrl-C.
    ///
    /// # Panics
    /// When the terminal is gone.
    #[track_caller]
    pub fn type_text(&mut self, text: &str) {
        self.type_bytes(text.as_bytes());
    }

    /// Types bytes that may be no text.
    ///
    /// # Panics
    /// When the terminal is gone.
    #[track_caller]
    pub fn type_bytes(&mut self, bytes: &[u8]) {
        self.keyboard.write_all(bytes).expect("a terminal that takes what is typed");
    }

    /// The text on the screen, after all text that has scrolled out of it.
    #[must_use]
    pub fn text(&self) -> String {
        self.shared.lock().vt.text()
    }

    /// Every byte that the program has written.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        self.shared.lock().bytes.clone()
    }

    /// Waits until `wanted` accepts the screen's text, and returns the text.
    ///
    /// # Panics
    /// At the timeout, with the text.
    #[track_caller]
    pub fn wait_for(&self, what: &str, timeout: Duration, wanted: impl Fn(&str) -> bool) -> String {
        let end = Instant::now() + timeout;
        let mut state = self.shared.lock();
        loop {
            let text = state.vt.text();
            if wanted(&text) {
                return text;
            }
            let left = end.saturating_duration_since(Instant::now());
            assert!(!left.is_zero() && !state.ended, "no {what} on the terminal; there is:\n{text}");
            let woken = self.shared.changed.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits until `part` is on the screen.
    ///
    /// # Panics
    /// As [`Terminal::wait_for`].
    #[track_caller]
    pub fn wait_text(&self, part: &str, timeout: Duration) -> String {
        self.wait_for(&format!("{part:?}"), timeout, |text| text.contains(part))
    }

    /// Continues reading the program's output.
    pub fn resume(&self) {
        self.shared.lock().paused = false;
        self.shared.changed.notify_all();
    }

    /// Resizes the terminal, and sends SIGWINCH. The content of the screen is moved as little as possible.
    ///
    /// # Panics
    /// When the terminal is gone.
    #[track_caller]
    pub fn resize(&self, columns: u16, rows: u16) {
        let mut state = self.shared.lock();
        state.vt.resize(columns.into(), rows.into());
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        sys::set_window_size(self.keyboard.as_fd(), &size).expect("a terminal with a size");
    }

    /// Waits for the program's end, and for the end of its output unless reading is paused.
    ///
    /// # Panics
    /// When it has not ended by `timeout`.
    #[track_caller]
    pub fn wait(&mut self, timeout: Duration) -> ExitStatus {
        let end = Instant::now() + timeout;
        assert!(self.process.wait_end(timeout), "no end after {timeout:?}; there is:\n{}", self.text());
        let status = self.child.wait().expect("the status of our own child");
        let mut state = self.shared.lock();
        while !state.ended && !state.paused {
            let left = end.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "it ended, but its terminal is held open");
            let woken = self.shared.changed.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        status
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // std knows whether it was waited for; errors mean that it was.
        drop(self.child.kill());
        drop(self.child.wait());
        self.resume();
    }
}

/// Reads until all writers have closed: Linux then returns EIO.
fn read(mut screen: File, shared: &Shared) {
    let mut buffer = [0; 4096];
    loop {
        let waited = shared.changed.wait_while(shared.lock(), |state| state.paused);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
        let length = screen.read(&mut buffer).unwrap_or(0);
        let mut state = shared.lock();
        state.vt.take(&buffer[..length]);
        state.bytes.extend_from_slice(&buffer[..length]);
        state.ended = length == 0;
        shared.changed.notify_all();
        if length == 0 {
            return;
        }
    }
}
