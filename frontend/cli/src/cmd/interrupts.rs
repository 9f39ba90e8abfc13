//! Signals that users and systems send to stop gantry.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::UnboundedReceiver;

use crate::exit::{self, Fault};

/// The meaning of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Interrupt {
    /// Ctrl-C.
    Ask,
    /// A signal with this number: end everything.
    End(i32),
}

/// The signals of this process. Once this exists, they no longer end the process.
#[derive(Debug)]
pub(super) struct Interrupts {
    int: Signal,
    term: Signal,
    hup: Signal,
    relayed: Option<Relayed>,
}

/// Signals that another process received and passes on. This process gets them itself only because both share a
/// terminal.
#[derive(Debug)]
struct Relayed {
    signals: UnboundedReceiver<i32>,
    /// The other process has ended, and that was reported.
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

    /// As [`Interrupts::new`], for signals that another process passes on. The end of that process counts as SIGHUP.
    pub(super) fn relayed(signals: UnboundedReceiver<i32>) -> Result<Self, Fault> {
        Ok(Self { relayed: Some(Relayed { signals, is_gone: false }), ..Self::new()? })
    }

    /// Waits for the next interrupt. Cancel-safe.
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
    /// The exit code of a command that the interrupt ends. For an attached app, Ctrl-C is the normal way to detach.
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
    async fn relayed_signals_arrive_and_the_end_of_their_sender_is_reported_once() {
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
