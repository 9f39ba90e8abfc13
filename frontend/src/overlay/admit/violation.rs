//! What a node may not say.

use std::fmt;

use gantry_shared::wire::window::Overrun;

/// The most bytes of a text in which a node says why something happened.
pub(super) const MAX_TEXT_BYTES: usize = 16 * 1024;

/// What a node said that cannot be true, or must not be said. Fits after the node's name.
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

    /// It sent more than its window allows.
    pub(super) fn overran(what: impl fmt::Display, overrun: Overrun) -> Self {
        Self(format!("overran its window for {what}: {overrun}"))
    }
}

/// What becomes of something that a node may say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is news.
    News,
    /// It no longer matters.
    Old,
}

/// Whether something is admitted.
pub(super) type Admitted = Result<Verdict, Violation>;

/// Checks the length of a text that a node sent.
pub(super) fn check_text(text: &str, what: &str) -> Result<(), Violation> {
    if text.len() > MAX_TEXT_BYTES {
        return Err(Violation(format!("sent {what} of {} bytes", text.len())));
    }
    Ok(())
}
