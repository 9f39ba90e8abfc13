//! The connection to gantry-mpir, if that program started this process. gantry-mpir holds MPIR's symbols and shows a
//! debugger the reported state.

mod sys;

use std::io;
use std::net::Shutdown;
use std::os::fd::RawFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gantry_frontend::event::{Event, RankInfo};
use gantry_shared::wire::frame::{decode, read_frame, write_frame};
use gantry_shared::wire::starter::{FromStarter, Process, RANKS_AT_ONCE, ToStarter};
use gantry_wlm::host::Machine;
use gantry_wlm::{Host, Reach, reach, registry};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// The timeout for the last message: a debugger may have stopped gantry-mpir.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// The connection to the debugger.
#[derive(Debug)]
pub(crate) struct Debugger {
    pub(crate) starter: Arc<Starter>,
    pub(crate) heard: Heard,
}

/// A message to gantry-mpir.
#[derive(Debug)]
pub(crate) struct Starter {
    debugged: bool,
    words: Mutex<Option<Sender<ToStarter>>>,
    written: Mutex<Option<Receiver<()>>>,
    failed: AtomicBool,
}

/// Messages from gantry-mpir.
#[derive(Debug)]
pub(crate) struct Heard {
    /// The debugger has continued it.
    pub(crate) releases: UnboundedReceiver<()>,
    /// Signals that gantry-mpir received. The stream ends with that process.
    pub(crate) signals: UnboundedReceiver<i32>,
}

impl Starter {
    /// Connects to gantry-mpir at the descriptor `raw`. `debugged`: a debugger waits for the ranks.
    ///
    /// # Errors
    /// `raw` is not a socket.
    pub(crate) fn connect(raw: RawFd, debugged: bool) -> io::Result<(Self, Heard)> {
        let stream = UnixStream::from(sys::inherited(raw)?);
        stream.peer_addr()?;
        let to_starter = stream.try_clone()?;
        let (words, to_write) = channel();
        let (done, written) = channel();
        std::thread::Builder::new().name("starter-words".to_owned()).spawn(move || {
            write(to_starter, &to_write);
            drop(done);
        })?;
        let (release, releases) = unbounded_channel();
        let (signal, signals) = unbounded_channel();
        std::thread::Builder::new().name("starter-heard".to_owned()).spawn(move || {
            read(stream, |word| match word {
                FromStarter::Release => release.send(()).unwrap_or_default(),
                FromStarter::Signal(number) => signal.send(number).unwrap_or_default(),
            });
        })?;
        let starter = Self {
            debugged,
            words: Mutex::new(Some(words)),
            written: Mutex::new(Some(written)),
            failed: AtomicBool::new(false),
        };
        Ok((starter, Heard { releases, signals }))
    }

    /// Whether a debugger waits for the ranks.
    pub(crate) fn is_debugged(&self) -> bool {
        self.debugged
    }

    /// Reports an event that the debugger needs.
    pub(crate) fn hear(&self, event: &Event) {
        match event {
            Event::Held { app, wlm, ranks }
            | Event::Started { app, wlm, ranks }
            | Event::Attached { app, wlm, ranks } => self.tell_ranks(&app.to_string(), wlm, ranks),
            Event::MpiFailed { message, .. } | Event::EndedBy { message, .. } => self.fail(message),
            Event::NodesLost { hosts, reason, .. } => {
                self.fail(&format!("lost {}: {reason}", gantry_types::host_set::fold_hosts(hosts)));
            }
            _ => {}
        }
    }

    fn tell_ranks(&self, app: &str, wlm: &str, ranks: &[RankInfo]) {
        // A debugger reaches the hosts by their names. The names of simulated nodes do not resolve, so they are all this
        // machine.
        let is_here = registry::find(wlm).is_ok_and(|wlm| reach(wlm) == Reach::ThisMachine);
        let host = is_here.then(|| Machine.hostname());
        for piece in ranks.chunks(RANKS_AT_ONCE) {
            let processes = piece.iter().map(|rank| Process {
                host: host.as_ref().unwrap_or(&rank.host).clone(),
                exe: rank.exe.clone(),
                pid: rank.pid.map_or(0, |pid| pid.get()),
            });
            self.tell(ToStarter::Ranks(processes.collect()));
        }
        self.tell(ToStarter::Complete(app.to_owned()));
    }

    /// Reports why the app has failed. Later failures are consequences and are ignored.
    pub(crate) fn fail(&self, reason: &str) {
        if !self.failed.swap(true, Ordering::SeqCst) {
            self.tell(ToStarter::Aborted(reason.to_owned()));
        }
    }

    fn tell(&self, word: ToStarter) {
        let words = self.words.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(words) = words.as_ref() {
            // gantry-mpir may have gone. The end of its messages shows that.
            words.send(word).unwrap_or_default();
        }
    }

    /// Waits until all messages are sent.
    pub(crate) fn finish(&self) {
        drop(self.words.lock().unwrap_or_else(PoisonError::into_inner).take());
        if let Some(written) = self.written.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // The channel closes when the writer ends.
            written.recv_timeout(LAST_WORDS).unwrap_or_default();
        }
    }
}

fn write(mut stream: UnixStream, words: &Receiver<ToStarter>) {
    for word in words {
        if write_frame(&mut stream, &word).is_err() {
            // After a partial message the stream is useless.
            drop(stream.shutdown(Shutdown::Both));
            return;
        }
    }
}

fn read(mut stream: UnixStream, mut hear: impl FnMut(FromStarter)) {
    while let Ok(Some(body)) = read_frame(&mut stream) {
        match decode(&body) {
            Ok(word) => hear(word),
            Err(_) => return,
        }
    }
}
