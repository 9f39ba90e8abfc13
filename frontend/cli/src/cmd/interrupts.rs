//! Signals that people and systems send to make gantry stop.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::{self, Fault};

/// What was asked by a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Interrupt {
    /// Ctrl-C.
    Ask,
    /// The signal of that number: end everything.
    End(i32),
}

/// The signals of this process. From when this is made they no longer end it by themselves.
#[derive(Debug)]
pub(super) struct Interrupts {
    int: Signal,
    term: Signal,
    hup: Signal,
}

impl Interrupts {
    pub(super) fn new() -> Result<Self, Fault> {
        let listen = |kind| signal(kind).map_err(|e| Fault::io("cannot listen to signals", &e));
        Ok(Self {
            int: listen(SignalKind::interrupt())?,
            term: listen(SignalKind::terminate())?,
            hup: listen(SignalKind::hangup())?,
        })
    }

    /// Waits for the next one; may be cancelled without loss.
    pub(super) async fn next(&mut self) -> Interrupt {
        tokio::select! {
            _ = self.int.recv() => Interrupt::Ask,
            _ = self.term.recv() => Interrupt::End(libc::SIGTERM),
            _ = self.hup.recv() => Interrupt::End(libc::SIGHUP),
        }
    }
}

impl Interrupt {
    /// The exit code of a command that it ends. To let go of something that was attached to is what Ctrl-C is for.
    pub(super) fn code(self, attached: bool) -> u8 {
        match self {
            Self::Ask if attached => exit::SUCCESS,
            Self::Ask => exit::of_signal(libc::SIGINT),
            Self::End(number) => exit::of_signal(number),
        }
    }
}
