//! The errors of a node on the wire.
//!
//! Errors of the other side cannot be matched by type, so they have a [`Kind`], sorted by the caller's remedy, with a
//! text for people.

use std::{fmt, io};

use serde::{Deserialize, Serialize};

/// The caller's remedy for an error.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Kind {
    /// A file, host, job or process is not there. Name another one.
    NotFound,
    /// Permission is missing. Ask for it, or act as the owner.
    NoAccess,
    /// A timeout. Wait longer, or look at the nodes that the message names.
    TimedOut,
    /// The launcher or the workload manager refused, or ended early. Read its message.
    LauncherFailed,
    /// This system, workload manager or launcher cannot do it. Use another one, or another option.
    Unsupported,
    /// The request is not valid. Correct it.
    Invalid,
    /// The other side broke the protocol. Compare the versions.
    Protocol,
    /// A node, or the link to it, is lost. Look at that node.
    Lost,
    /// The process, app or session has ended. Start it again.
    Gone,
    /// The operating system refused: too few files, processes, memory or space. Read its message.
    System,
    /// gantry itself is at fault. Report it as a bug.
    Internal,
}

impl Kind {
    /// The kind's name, `not-found` for instance: the same in logs, in JSON and on the command line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotFound => "not-found",
            Self::NoAccess => "no-access",
            Self::TimedOut => "timed-out",
            Self::LauncherFailed => "launcher-failed",
            Self::Unsupported => "unsupported",
            Self::Invalid => "invalid",
            Self::Protocol => "protocol",
            Self::Lost => "lost",
            Self::Gone => "gone",
            Self::System => "system",
            Self::Internal => "internal",
        }
    }
}

/// The remedy for a failed system call.
impl From<&io::Error> for Kind {
    fn from(error: &io::Error) -> Self {
        use io::ErrorKind as E;
        match error.kind() {
            E::NotFound | E::NotADirectory => Self::NotFound,
            E::PermissionDenied => Self::NoAccess,
            E::TimedOut => Self::TimedOut,
            E::IsADirectory | E::AlreadyExists | E::InvalidInput | E::ArgumentListTooLong => Self::Invalid,
            E::ConnectionRefused | E::ConnectionReset | E::ConnectionAborted | E::BrokenPipe => Self::Lost,
            E::UnexpectedEof | E::NotConnected | E::HostUnreachable | E::NetworkUnreachable => Self::Lost,
            _ if error.raw_os_error() == Some(libc::ESRCH) => Self::NotFound,
            _ => Self::System,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// An error in a form for the wire. Prints its message; the hint is a line of its own.
///
/// Message and hint have at most [`Failure::MAX_CHARS`] characters each, also when they come from the wire.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize, thiserror::Error)]
#[serde(from = "Unbounded")]
#[error("{message}")]
pub struct Failure {
    kind: Kind,
    message: String,
    hint: Option<String>,
}

/// A failure as it comes from the wire.
#[derive(Deserialize)]
#[serde(rename = "Failure")]
struct Unbounded {
    kind: Kind,
    message: String,
    hint: Option<String>,
}

impl From<Unbounded> for Failure {
    fn from(read: Unbounded) -> Self {
        Self { kind: read.kind, message: bounded(read.message), hint: read.hint.map(bounded) }
    }
}

impl Failure {
    /// The most characters of a message or a hint; longer ones are cut.
    pub const MAX_CHARS: usize = 4096;

    /// A failure with its text: lower case, no full stop, fits after "failed to".
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: bounded(message.into()), hint: None }
    }

    /// Adds the remedy for the user.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(bounded(hint.into()));
        self
    }

    /// Adds the remedy if there is one.
    #[must_use]
    pub fn with_hint_of(self, hint: Option<impl Into<String>>) -> Self {
        match hint {
            Some(hint) => self.with_hint(hint),
            None => self,
        }
    }

    /// Puts a host or another place in front of the message.
    #[must_use]
    pub fn at(self, place: impl fmt::Display) -> Self {
        Self { message: bounded(format!("{place}: {}", self.message)), ..self }
    }

    /// The caller's remedy.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// The problem, with the evidence.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The remedy for the user.
    #[must_use]
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }
}

fn bounded(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(Failure::MAX_CHARS) {
        text.truncate(end);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_has_one_name_everywhere() {
        use Kind::{
            Gone, Internal, Invalid, LauncherFailed, Lost, NoAccess, NotFound, Protocol, System, TimedOut,
            Unsupported,
        };
        for kind in [
            NotFound,
            NoAccess,
            TimedOut,
            LauncherFailed,
            Unsupported,
            Invalid,
            Protocol,
            Lost,
            Gone,
            System,
            Internal,
        ] {
            assert_eq!(serde_json::to_string(&kind).unwrap(), format!("\"{kind}\""));
            assert_eq!(postcard::from_bytes::<Kind>(&postcard::to_stdvec(&kind).unwrap()).unwrap(), kind);
        }
    }

    #[test]
    fn a_short_resource_is_the_systems_fault_and_not_a_launchers() {
        let check = |number, expected| {
            assert_eq!(Kind::from(&io::Error::from_raw_os_error(number)), expected, "{number}");
        };
        check(libc::ENOENT, Kind::NotFound);
        check(libc::ESRCH, Kind::NotFound);
        check(libc::EPERM, Kind::NoAccess);
        check(libc::ETIMEDOUT, Kind::TimedOut);
        check(libc::EISDIR, Kind::Invalid);
        check(libc::ECONNREFUSED, Kind::Lost);
        for number in [libc::EMFILE, libc::ENFILE, libc::EAGAIN, libc::ENOMEM, libc::ENOSPC] {
            check(number, Kind::System);
        }
    }

    #[test]
    fn a_failure_prints_its_message_and_travels_with_its_hint() {
        let failure =
            Failure::new(Kind::NoAccess, "make a directory in /tmp: read-only").with_hint("set TMPDIR");
        assert_eq!(failure.to_string(), "make a directory in /tmp: read-only");
        let bytes = postcard::to_stdvec(&failure).unwrap();
        let read: Failure = postcard::from_bytes(&bytes).unwrap();
        assert_eq!((read.kind(), read.hint()), (Kind::NoAccess, Some("set TMPDIR")));
        assert_eq!(read, failure);
    }

    #[test]
    fn texts_are_cut_when_made_and_when_read() {
        let long = "é".repeat(Failure::MAX_CHARS + 1);
        let made = Failure::new(Kind::Lost, long.as_str()).with_hint(long.as_str());
        let json = format!(r#"{{"kind":"lost","message":"{long}","hint":"{long}"}}"#);
        let read: Failure = serde_json::from_str(&json).unwrap();
        assert_eq!(made.message().chars().count(), Failure::MAX_CHARS);
        assert_eq!(made.hint().map(|hint| hint.chars().count()), Some(Failure::MAX_CHARS));
        assert_eq!(read, made);
    }
}
