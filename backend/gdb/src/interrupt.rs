//! The signal that stops a rank.

use nix::sys::signal::Signal;

/// The signal that stops a rank. A rank without a debugger ignores it, which is the signal's default. So a rank that is
/// released at that moment runs on.
pub(crate) const INTERRUPT: Signal = Signal::SIGURG;
