//! What a node must not send.

use std::fmt;

use gantry_shared::wire::window::Overrun;

/// Longest text in which a node gives a reason.
pub(super) const MAX_TEXT_BYTES: usize = 16 * 1024;

/// Why a message of a node cannot be true, or is forbidden. The text fits after the node's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Violation(String);

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Violation {
    pub(in crate::overlay) fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }

    /// The node sent an answer that means nothing. Agents on the way did not read it.
    pub(in crate::overlay) fn unread() -> Self {
        Self::new("sent an answer that cannot be read")
    }

    /// The node sent more than its window allows.
    pub(super) fn overran(what: impl fmt::Display, overrun: Overrun) -> Self {
        Self(format!("overran its window for {what}: {overrun}"))
    }
}

/// What to do with an allowed message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Use it.
    News,
    /// Drop it: it no longer matters.
    Old,
}

/// The result of a check.
pub(super) type Admitted = Result<Verdict, Violation>;

/// Checks the length of a text that a node sent.
pub(super) fn check_text(text: &str, what: &str) -> Result<(), Violation> {
    if text.len() > MAX_TEXT_BYTES {
        return Err(Violation(format!("sent {what} of {} bytes", text.len())));
    }
    Ok(())
}
