//! Signals that users and systems send to stop gantry.

use gantry_shared::signals::is_ignored;
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

/// The signals of this process. Once this exists, they no longer end the process. Ignored ones stay ignored.
#[derive(Debug)]
pub(super) struct Interrupts {
    int: Listener,
    term: Listener,
    hup: Listener,
    relayed: Option<Relayed>,
}

/// Receives a signal. Absent: gantry was started with it ignored, as by `nohup`, and goes on ignoring it.
type Listener = Option<Signal>;

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
        let listen = |kind: SignalKind| -> Result<Listener, Fault> {
            let is_handled = !is_ignored(kind.as_raw_value());
            let listener = is_handled.then(|| signal(kind)).transpose();
            listener.map_err(|e| Fault::io("cannot listen to signals", &e))
        };
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
            () = heard(&mut self.int) => Interrupt::Ask,
            () = heard(&mut self.term) => Interrupt::End(libc::SIGTERM),
            () = heard(&mut self.hup) => Interrupt::End(libc::SIGHUP),
        }
    }
}

/// Waits for a signal. Cancel-safe.
async fn heard(listener: &mut Listener) {
    match listener {
        Some(signal) => drop(signal.recv().await),
        None => std::future::pending().await,
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
