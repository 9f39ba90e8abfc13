//! Errors between gantry and a workload manager, sorted by what the caller can do about them.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::PathBuf;

use gantry_types::error::{Failure, Kind};
use gantry_types::host_set::fold_hosts;

/// Result with this crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// An error between gantry and a WLM.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The request is invalid, there is no such job or process, this user may not use it, or the launcher or the WLM
    /// refused or ended early. The kind tells which.
    #[error("{0}")]
    Failed(
        /// The problem; from a launcher or a WLM in its own words.
        Failure,
    ),
    /// The job or process is known, but has no ranks yet.
    #[error("{failure}")]
    NotYet {
        /// The missing event.
        failure: Failure,
        /// Whether it waits in a queue for its nodes.
        queued: bool,
    },
    /// The WLM gave no answer to a question: it is busy, is restarted, or cannot be reached. This says nothing about the
    /// job.
    #[error("{0}")]
    Unanswered(
        /// What its command printed instead.
        Failure,
    ),
    /// Agents could not be started on some hosts.
    #[error("{} of {of} hosts have no agent{}", .missing.len(), list_hosts(.missing))]
    Hosts {
        /// The number of requested hosts.
        of: usize,
        /// The hosts without an agent, each with the reason.
        missing: Vec<(String, Failure)>,
    },
    /// A file of this machine could not be read.
    #[error("cannot read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl Error {
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Failure::new(Kind::Invalid, message).into()
    }

    pub(crate) fn invalid_with(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Failure::new(Kind::Invalid, message).with_hint(hint).into()
    }

    /// There is no such thing. The hint says what to try.
    pub(crate) fn not_found<'a>(message: impl Into<String>, hint: impl Into<Option<&'a str>>) -> Self {
        Failure::new(Kind::NotFound, message).with_hint_of(hint.into()).into()
    }

    /// It exists, but this user may not use it. The hint says what to try.
    pub(crate) fn no_access<'a>(message: impl Into<String>, hint: impl Into<Option<&'a str>>) -> Self {
        Failure::new(Kind::NoAccess, message).with_hint_of(hint.into()).into()
    }

    /// There are no ranks yet.
    pub fn not_yet<'a>(message: impl Into<String>, hint: impl Into<Option<&'a str>>, queued: bool) -> Self {
        let failure = Failure::new(Kind::NotFound, message).with_hint_of(hint.into());
        Self::NotYet { failure, queued }
    }

    /// The error of a command that printed no answer. A failure of the way to the WLM says nothing about what was asked
    /// for. An unknown one may be of that sort.
    pub(crate) fn of_answer(failure: Failure) -> Self {
        match failure.kind() {
            Kind::TimedOut | Kind::Lost | Kind::LauncherFailed => Self::Unanswered(failure),
            _ => failure.into(),
        }
    }

    /// The error of a command that did not run to its end.
    pub(crate) fn not_run(command: &[OsString], error: &io::Error) -> Self {
        Self::not_run_for("", command, error)
    }

    /// The same, where the message begins with the `subject` of the command.
    pub(crate) fn not_run_for(subject: &str, command: &[OsString], error: &io::Error) -> Self {
        let line = command.join(OsStr::new(" "));
        let kind = Kind::from(error);
        let what = if kind == Kind::TimedOut { "no answer from the command" } else { "cannot run" };
        let failure = Failure::new(kind, format!("{subject}{what} {}: {error}", line.display()));
        match kind {
            Kind::NotFound | Kind::NoAccess => failure.into(),
            _ => Self::Unanswered(failure),
        }
    }

    /// Whether the same question may get another answer later.
    pub fn is_temporary(&self) -> bool {
        matches!(self, Self::NotYet { .. } | Self::Unanswered(_))
    }

    /// The kind of error, as every layer of gantry sorts them.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Failed(failure) | Self::NotYet { failure, .. } | Self::Unanswered(failure) => {
                failure.kind()
            }
            Self::Hosts { missing, .. } => missing.first().map_or(Kind::Lost, |(_, failure)| failure.kind()),
            Self::Read { source, .. } => source.into(),
        }
    }

    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Failed(failure) | Self::NotYet { failure, .. } | Self::Unanswered(failure) => {
                failure.hint()
            }
            // Of several hints, show the first one.
            Self::Hosts { missing, .. } => missing.iter().find_map(|(_, why)| why.hint()),
            Self::Read { .. } => None,
        };
        hint.map(str::to_owned)
    }

    /// The error in the form for the wire: kind, text and hint.
    pub fn to_failure(&self) -> Failure {
        Failure::new(self.kind(), self.to_string()).with_hint_of(self.hint())
    }
}

/// Each reason with the hosts that it is for.
fn list_hosts(missing: &[(String, Failure)]) -> String {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for (host, failure) in missing {
        match reasons.iter_mut().find(|(reason, _)| *reason == failure.message()) {
            Some((_, hosts)) => hosts.push(host),
            None => reasons.push((failure.message(), vec![host])),
        }
    }
    let line = |(reason, hosts): &(&str, Vec<&str>)| format!("\n  {}: {reason}", fold_hosts(hosts));
    reasons.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_host_is_named_with_its_reason() {
        let why = |text: &str| Failure::new(Kind::Lost, text).with_hint(format!("mend {text}"));
        let missing =
            vec![("n1".to_owned(), why("down")), ("n3".into(), why("slow")), ("n2".into(), why("down"))];
        let error = Error::Hosts { of: 9, missing };
        assert_eq!(error.to_string(), "3 of 9 hosts have no agent\n  n[1-2]: down\n  n3: slow");
        assert_eq!((error.kind(), error.hint().as_deref()), (Kind::Lost, Some("mend down")));
    }

    #[test]
    fn a_program_that_cannot_be_run_is_no_reason_to_ask_again() {
        let run = |error: io::ErrorKind| Error::not_run(&["/bin/ask".into(), "7".into()], &error.into());
        for kind in [io::ErrorKind::NotFound, io::ErrorKind::PermissionDenied] {
            assert!(matches!(run(kind), Error::Failed(_)) && !run(kind).is_temporary(), "{kind}");
        }
        let late = run(io::ErrorKind::TimedOut);
        // Other messages have `no answer from` and a node.
        let told = late.to_string().starts_with("no answer from the command /bin/ask 7: ");
        assert!(late.is_temporary() && told, "{late}");
    }
}
