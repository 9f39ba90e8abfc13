//! Signals that people and systems send to make gantry stop.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::UnboundedReceiver;

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
    relayed: Option<Relayed>,
}

/// Signals that another process was sent. This one has its own only because both have one terminal.
#[derive(Debug)]
struct Relayed {
    signals: UnboundedReceiver<i32>,
    /// The other process has ended, and that was told.
    is_gone: bool,
}

impl Interrupts {
    pub(super) fn new() -> Result<Self, Fault> {
        let listen = |kind| signal(kind).map_err(|e| Fault::io("cannot listen to signals", &e));
        Ok(Self {
            int: listen(SignalKind::interrupt())?,
            term: listen(SignalKind::terminate())?,
            hup: listen(SignalKind::hangup())?,
            relayed: None,
        })
    }

    /// As [`Interrupts::new`], of signals that another process passes on. When it ends, that is SIGHUP.
    pub(super) fn relayed(signals: UnboundedReceiver<i32>) -> Result<Self, Fault> {
        Ok(Self { relayed: Some(Relayed { signals, is_gone: false }), ..Self::new()? })
    }

    /// Waits for the next one; may be cancelled without loss.
    pub(super) async fn next(&mut self) -> Interrupt {
        if let Some(relayed) = &mut self.relayed {
            return relayed.next().await;
        }
        tokio::select! {
            _ = self.int.recv() => Interrupt::Ask,
            _ = self.term.recv() => Interrupt::End(libc::SIGTERM),
            _ = self.hup.recv() => Interrupt::End(libc::SIGHUP),
        }
    }
}

impl Relayed {
    async fn next(&mut self) -> Interrupt {
        match self.signals.recv().await {
            Some(libc::SIGINT) => Interrupt::Ask,
            Some(number) => Interrupt::End(number),
            None if self.is_gone => std::future::pending().await,
            None => {
                self.is_gone = true;
                Interrupt::End(libc::SIGHUP)
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_passed_on_is_taken_and_the_end_of_who_does_it_is_told_once() {
        let (send, signals) = tokio::sync::mpsc::unbounded_channel();
        let mut interrupts = Interrupts::relayed(signals).unwrap();
        send.send(libc::SIGINT).unwrap();
        send.send(libc::SIGTERM).unwrap();
        drop(send);
        assert_eq!(interrupts.next().await, Interrupt::Ask);
        assert_eq!(interrupts.next().await, Interrupt::End(libc::SIGTERM));
        assert_eq!(interrupts.next().await, Interrupt::End(libc::SIGHUP));
        let again = tokio::time::timeout(std::time::Duration::from_millis(10), interrupts.next());
        assert!(again.await.is_err());
    }
}
