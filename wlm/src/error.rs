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
    /// The request is invalid for this WLM.
    #[error("{message}")]
    Invalid {
        /// The problem.
        message: String,
        /// The suggestion.
        hint: Option<String>,
    },
    /// No such WLM.
    #[error("no workload manager is named '{name}'")]
    UnknownWlm {
        /// The requested name.
        name: String,
        /// The known names.
        known: Vec<&'static str>,
    },
    /// No such job or process.
    #[error("{message}")]
    NotFound {
        /// The message: what was not found.
        message: String,
        /// What to try.
        hint: Option<String>,
    },
    /// The job or process is known, but has no ranks yet.
    #[error("{message}")]
    NotYet {
        /// The message: the missing event.
        message: String,
        /// What to try.
        hint: Option<String>,
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
    /// The job or process exists, but this user may not use it.
    #[error("{message}")]
    NoAccess {
        /// The message: what was refused.
        message: String,
        /// What to try.
        hint: Option<String>,
    },
    /// A process could not be started.
    #[error("{0}")]
    NotStarted(
        /// The process, and the reason.
        Failure,
    ),
    /// The launcher or the WLM refused, or ended early.
    #[error("{0}")]
    Refused(
        /// The message of the launcher or the WLM.
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

impl Error {
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::Invalid { message: message.into(), hint: None }
    }

    pub(crate) fn invalid_with(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Invalid { message: message.into(), hint: Some(hint.into()) }
    }

    /// The error of a command that printed no answer. A failure of the way to the WLM says nothing about what was asked
    /// for. An unknown one may be of that sort.
    pub(crate) fn of_answer(failure: Failure) -> Self {
        match failure.kind() {
            Kind::TimedOut | Kind::Lost | Kind::LauncherFailed => Self::Unanswered(failure),
            _ => Self::Refused(failure),
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
        let what = if kind == Kind::TimedOut { "no answer from" } else { "cannot run" };
        let failure = Failure::new(kind, format!("{subject}{what} {}: {error}", line.display()));
        match kind {
            Kind::NotFound | Kind::NoAccess => Self::NotStarted(failure),
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
            Self::Invalid { .. } | Self::UnknownWlm { .. } => Kind::Invalid,
            Self::NotFound { .. } | Self::NotYet { .. } => Kind::NotFound,
            Self::NoAccess { .. } => Kind::NoAccess,
            Self::NotStarted(failure) | Self::Refused(failure) | Self::Unanswered(failure) => failure.kind(),
            Self::Hosts { missing, .. } => missing.first().map_or(Kind::Lost, |(_, failure)| failure.kind()),
            Self::Read { source, .. } => source.into(),
        }
    }

    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Invalid { hint, .. }
            | Self::NotFound { hint, .. }
            | Self::NotYet { hint, .. }
            | Self::NoAccess { hint, .. } => hint.clone(),
            Self::UnknownWlm { known, .. } => Some(format!("known are: {}", known.join(", "))),
            Self::NotStarted(failure) | Self::Refused(failure) | Self::Unanswered(failure) => {
                failure.hint().map(str::to_owned)
            }
            // Of several hints, show the first one.
            Self::Hosts { missing, .. } => missing.iter().find_map(|(_, why)| why.hint().map(str::to_owned)),
            Self::Read { .. } => None,
        }
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
            assert!(matches!(run(kind), Error::NotStarted(_)) && !run(kind).is_temporary(), "{kind}");
        }
        let late = run(io::ErrorKind::TimedOut);
        assert!(late.is_temporary() && late.to_string().starts_with("no answer from /bin/ask 7: "), "{late}");
    }
}
