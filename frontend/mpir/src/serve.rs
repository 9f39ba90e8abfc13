//! Starts `gantry`, shows its reports through the symbols, and passes signals on to it.

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};

use gantry_shared::signals::is_ignored;
use gantry_shared::wire::frame::{FrameBuffer, write_frame};
use gantry_shared::wire::starter::{FromStarter, Process, ToStarter};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::find::find_gantry;
use crate::sys::{self, Entry};

/// Signals that `gantry` handles. It takes them only from this process: a terminal sends its signals to both
/// processes, and Ctrl-C in a debugger that stops this process is not meant for the ranks.
const PASSED_ON: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];

/// Stays until `gantry` has ended, and returns its exit code.
///
/// # Errors
/// It cannot start, or violates the protocol.
pub(crate) fn run() -> Result<u8, String> {
    let debugged = sys::is_debugged();
    let failed = |what: &'static str| move |e: io::Error| format!("cannot {what}: {e}");
    let (ours, theirs) = UnixStream::pair().map_err(failed("make a socket"))?;
    let mut gantry = start(&theirs, debugged)?;
    drop(theirs);
    let signals = take_signals().map_err(|e| failed("take signals")(e.into()))?;
    sys::tell_release_to(ours.try_clone().map_err(failed("share a socket"))?);
    let served = Starter::new(&ours, debugged).serve(&signals);
    if served.is_err() {
        // The command cleans up when this end of the socket closes.
        drop(ours.shutdown(std::net::Shutdown::Both));
    }
    let ended = gantry.wait().map_err(failed("wait for gantry"));
    served.and(ended.map(code_of))
}

/// Starts `gantry` with the arguments of this process, and passes its end of the socket.
fn start(socket: &UnixStream, debugged: bool) -> Result<Child, String> {
    let gantry = find_gantry()?;
    // The child inherits this descriptor, and closes it for its own children.
    let inherited = fcntl(socket, FcntlArg::F_SETFD(FdFlag::empty()));
    inherited.map_err(|e| format!("cannot share a socket: {e}"))?;
    #[expect(
        clippy::disallowed_methods,
        reason = "this program is there to start one other, and knows no library"
    )]
    let mut command = Command::new(&gantry);
    command.arg("mpir").arg(format!("--starter={}", socket.as_raw_fd()));
    if debugged {
        command.arg("--debugged");
    }
    command.args(std::env::args_os().skip(1));
    sys::fork_to_start(&mut command);
    command.spawn().map_err(|e| format!("cannot start {}: {e}", gantry.display()))
}

/// From now on a descriptor receives the signals. `gantry` started before, with none of them blocked. Ignored ones stay
/// ignored: the kernel would keep them for a process that blocks them.
fn take_signals() -> Result<SignalFd, Errno> {
    let set: SigSet = PASSED_ON.into_iter().filter(|signal| !is_ignored(*signal as i32)).collect();
    set.thread_block()?;
    SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
}

/// The exit code of a process, as in a shell.
fn code_of(status: ExitStatus) -> u8 {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default());
    u8::try_from(code).unwrap_or(u8::MAX)
}

/// The state so far.
struct Starter<'a> {
    command: &'a UnixStream,
    debugged: bool,
    table: Vec<Entry>,
    texts: Texts,
}

impl<'a> Starter<'a> {
    fn new(command: &'a UnixStream, debugged: bool) -> Self {
        Self { command, debugged, table: Vec::new(), texts: Texts::default() }
    }

    /// Runs until the command has closed its end.
    fn serve(mut self, signals: &SignalFd) -> Result<(), String> {
        let mut frames = FrameBuffer::new();
        let mut bytes = [0; 16 * 1024];
        loop {
            let [heard, signalled] =
                wait_for(self.command, signals).map_err(|e| format!("cannot wait: {e}"))?;
            if signalled {
                self.pass_signals_on(signals);
            }
            if !heard {
                continue;
            }
            match self.command.read(&mut bytes) {
                Ok(0) => return Ok(()),
                Ok(count) => frames.push(&bytes[..count]).map_err(|e| e.to_string())?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                // The command was killed.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(()),
                Err(error) => return Err(format!("cannot hear gantry: {error}")),
            }
            while let Some(word) = frames.next_message().map_err(|e| e.to_string())? {
                self.take(word)?;
            }
        }
    }

    fn pass_signals_on(&self, signals: &SignalFd) {
        while let Ok(Some(signal)) = signals.read_signal() {
            let number = i32::try_from(signal.ssi_signo).unwrap_or_default();
            // The command's end is noticed elsewhere.
            drop(write_frame(&mut &*self.command, &FromStarter::Signal(number)));
        }
    }

    fn take(&mut self, word: ToStarter) -> Result<(), String> {
        match word {
            ToStarter::Ranks(ranks) => {
                for Process { host, exe, pid } in ranks {
                    let (host, exe) = (self.texts.keep(host), self.texts.keep(exe));
                    self.table.push(Entry::new(host, exe, pid));
                }
            }
            ToStarter::Complete(app) => {
                let table = std::mem::take(&mut self.table);
                sys::show_table(Vec::leak(table), self.texts.keep(app))?;
                self.reach_breakpoint();
            }
            ToStarter::Aborted(reason) => {
                sys::show_failure(self.texts.keep(reason));
                self.reach_breakpoint();
            }
        }
        Ok(())
    }

    /// Calls the breakpoint: a debugger may have attached since the start.
    fn reach_breakpoint(&self) {
        if self.debugged || sys::is_debugged() {
            sys::reach_breakpoint();
        }
    }
}

/// Whether the command has sent data, and whether a signal has arrived.
fn wait_for(command: &UnixStream, signals: &SignalFd) -> Result<[bool; 2], Errno> {
    let mut both = [command.as_fd(), signals.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
    match poll(&mut both, PollTimeout::NONE) {
        Err(Errno::EINTR) => Ok([false, false]),
        Err(error) => Err(error),
        Ok(_) => Ok(both.map(|fd| fd.any().unwrap_or(true))),
    }
}

/// Texts that a debugger may read at any time. Each is kept once and never freed.
#[derive(Default)]
struct Texts(HashMap<String, &'static CStr>);

impl Texts {
    fn keep(&mut self, text: String) -> &'static CStr {
        self.0.entry(text).or_insert_with_key(|text| {
            let whole = text.split('\0').next().unwrap_or_default();
            Box::leak(CString::new(whole).unwrap_or_default().into_boxed_c_str())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_kept_once_and_ends_where_c_ends_it() {
        let mut texts = Texts::default();
        let first = texts.keep("n1".to_owned());
        assert!(std::ptr::eq(first, texts.keep("n1".to_owned())));
        assert_eq!((first, texts.keep("a\0b".to_owned())), (c"n1", c"a"));
    }

    #[test]
    fn how_gantry_ended_is_how_the_starter_ends() {
        let check = |raw, expected| assert_eq!(code_of(ExitStatus::from_raw(raw)), expected, "{raw:#x}");
        check(0, 0);
        check(0x0700, 7);
        check(9, 137);
    }
}
