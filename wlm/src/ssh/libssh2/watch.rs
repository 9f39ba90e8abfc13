//! The timeout for the login. Name lookups and libssh2's calls have no timeout of their own. So a thread ends the
//! process at the timeout, and reports the phase.

use std::process::exit;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use gantry_wlm::ssh::Call;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{getpgrp, getpid};

use crate::words::{Peer, not_connected, not_resolved};
use crate::{FAILED, say};

/// The current phase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Phase {
    /// ssh resolves the configuration for this host.
    Ask(String),
    /// Looking up the address of this host.
    Resolve(String),
    /// Connecting to this host at this port.
    Connect(String, u16),
    /// Waiting for the peer's first bytes.
    Banner(Peer),
    /// Key exchange and authentication.
    Login(Peer),
}

impl Phase {
    /// The message at the timeout.
    fn words(&self) -> Vec<String> {
        match self {
            Self::Ask(host) => vec![format!("ssh -G {host} timed out")],
            Self::Resolve(hostname) => not_resolved(hostname, "timed out"),
            Self::Connect(hostname, port) => not_connected(hostname, *port, "Connection timed out"),
            Self::Banner(peer) => {
                vec!["Connection timed out during banner exchange".to_owned(), peer.timed_out()]
            }
            Self::Login(peer) => vec![peer.timed_out()],
        }
    }
}

/// Watches the timeout. Dropping or ending it stops the watch.
#[derive(Debug)]
pub(crate) struct Watch {
    phase: Arc<Mutex<Phase>>,
    _over: SyncSender<()>,
}

impl Watch {
    /// Starts the timeout.
    pub(crate) fn start(call: &Call) -> Self {
        let phase = Arc::new(Mutex::new(Phase::Ask(call.host.to_string())));
        let (sender, over) = sync_channel(0);
        let (seen, time) = (Arc::clone(&phase), call.connect);
        thread::spawn(move || {
            if over.recv_timeout(time) == Err(RecvTimeoutError::Timeout) {
                let phase = seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
                phase.words().iter().for_each(|line| say(line));
                end();
            }
        });
        Self { phase, _over: sender }
    }

    /// Enters another phase.
    pub(crate) fn enter(&self, phase: Phase) {
        *self.phase.lock().unwrap_or_else(PoisonError::into_inner) = phase;
    }

    /// Ends the watch after a successful login.
    pub(crate) fn end(self) {}
}

/// Ends this process, whose main thread may hang in a call that cannot be interrupted. Also ends programs that ssh
/// runs on its behalf, such as the command of a `Match exec`: those in this process's group, if the group is its own.
#[expect(clippy::exit, reason = "the main thread may hang, so it cannot end this process")]
fn end() -> ! {
    if getpgrp() == getpid() {
        killpg(getpgrp(), Signal::SIGKILL).ok();
    }
    exit(i32::from(FAILED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_phase_has_words_that_tell_a_slow_host() {
        let peer = Peer { address: "10.0.0.1".to_owned(), port: 22 };
        let phases = [
            Phase::Ask("n1".to_owned()),
            Phase::Connect("n1".to_owned(), 22),
            Phase::Banner(peer.clone()),
            Phase::Login(peer),
        ];
        for phase in phases {
            assert!(phase.words().concat().contains("timed out"), "{phase:?}");
        }
        let words = Phase::Resolve("n1".to_owned()).words();
        assert_eq!(words, ["ssh: Could not resolve hostname n1: timed out"]);
    }
}
