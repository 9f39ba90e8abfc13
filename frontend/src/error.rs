//! Errors that a tool can get, sorted by what its author can do about them.

use std::path::PathBuf;
use std::time::Duration;

use gantry_guard::helpers::ONE_VERSION;
use gantry_types::error::{Failure, Kind};
use gantry_types::id::AppId;
use gantry_wlm::host::explain_open_files;

use crate::channel::policy::Missing;

/// Result with this crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// An error of the frontend.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The request makes no sense; nothing was done.
    #[error("{message}")]
    Invalid {
        /// What is wrong with it.
        message: String,
        /// What to write instead.
        hint: Option<String>,
    },
    /// The workload manager, or a launcher, refused or failed.
    #[error(transparent)]
    Wlm(WlmError),
    /// A node failed. If several did, this is the reason of the first.
    #[error("{}{failure}", on_hosts(.hosts))]
    Node {
        /// The nodes' names; empty: this machine.
        hosts: Vec<String>,
        /// The first node's reason.
        failure: Failure,
    },
    /// The timeout expired.
    #[error("no answer within {} s while {phase}{}", .after.as_secs_f32(), missing_hosts(.missing))]
    TimedOut {
        /// What was being waited for.
        phase: &'static str,
        /// How long.
        after: Duration,
        /// Names of the nodes that had not answered.
        missing: Vec<String>,
    },
    /// The launch waited in the queue until its timeout for that expired.
    #[error("{message}")]
    Queued {
        /// What it waited for, and how long.
        message: String,
    },
    /// Something failed while other programs connected to the launch's port. They may be the reason.
    #[error("{error}; meanwhile other programs connected to gantry's port: {strangers}")]
    Crowded {
        /// What failed.
        error: Box<Error>,
        /// Where the other connections came from, how many, and what they did.
        strangers: String,
    },
    /// Something failed after connections of agents could not be accepted. Often too few files may be open.
    #[error("{error}; connections could not be accepted: {source}")]
    NoMoreFiles {
        /// What failed.
        error: Box<Error>,
        /// The system's reason.
        #[source]
        source: std::io::Error,
    },
    /// A batch job could not be attached to. It goes on without an owner, if it has not ended.
    #[error("{error}; job {job} was left as it is")]
    JobLeft {
        /// What failed.
        error: Box<Error>,
        /// The job's name, as the workload manager's own commands know it.
        job: String,
    },
    /// Daemons are missing in an operation on a channel, more than its policy allows.
    #[error("{phase}: {} of {members} daemons are missing: {}", .missing.len(), first_missing(.missing))]
    Incomplete {
        /// What was being done.
        phase: &'static str,
        /// Number of members that had to contribute.
        members: u64,
        /// The members that did not, and why.
        missing: Vec<Missing>,
    },
    /// One of gantry's own executables is not where it should be, or others can change it. The hint names the places.
    #[error("{0}")]
    HelperMissing(Failure),
    /// One of gantry's own executables is of another version, or does not run.
    #[error("{program}: {reason}", program = .program.display())]
    HelperUnfit {
        /// The executable.
        program: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Nodes, or a helper, can no longer be reached.
    #[error("lost {}: {reason}", .what.join(","))]
    Lost {
        /// Names of the nodes, or the helper's.
        what: Vec<String>,
        /// The cause, as observed.
        reason: String,
    },
    /// The app, session or daemon has ended or was closed.
    #[error("{what} is gone")]
    Gone {
        /// What the handle referred to.
        what: String,
    },
    /// No running tool of this user has such an app.
    #[error("no app {app} of yours runs here")]
    UnknownApp {
        /// The app.
        app: AppId,
    },
    /// A system call on this machine failed.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: String,
        /// The system's reason.
        #[source]
        source: std::io::Error,
    },
    /// The other side broke the protocol.
    #[error("{0}")]
    Protocol(String),
    /// gantry itself is at fault: one of its tasks panicked, or something is as it can never be.
    #[error("gantry is at fault: {0}")]
    Internal(String),
}

impl From<tokio::task::JoinError> for Error {
    fn from(error: tokio::task::JoinError) -> Self {
        // The tool has shut its runtime down.
        if error.is_cancelled() {
            return Self::Gone { what: "the runtime".to_owned() };
        }
        Self::Internal(error.to_string())
    }
}

/// The message of a workload manager or a launcher. [`Error::kind`] classifies it, as every other error.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct WlmError(pub(crate) gantry_wlm::Error);

impl From<gantry_wlm::Error> for Error {
    fn from(error: gantry_wlm::Error) -> Self {
        Self::Wlm(WlmError(error))
    }
}

impl Error {
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::Invalid { message: message.into(), hint: None }
    }

    pub(crate) fn io(what: impl Into<String>, source: std::io::Error) -> Self {
        Self::Io { what: what.into(), source }
    }

    /// The kind of error, the same at every layer of gantry.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Invalid { .. } => Kind::Invalid,
            Self::Wlm(WlmError(error)) => error.kind(),
            Self::Node { failure, .. } => failure.kind(),
            Self::TimedOut { .. } | Self::Queued { .. } => Kind::TimedOut,
            Self::Crowded { error, .. } | Self::NoMoreFiles { error, .. } | Self::JobLeft { error, .. } => {
                error.kind()
            }
            Self::Incomplete { missing, .. } => {
                missing.first().map_or(Kind::TimedOut, |first| first.why.kind())
            }
            Self::HelperMissing(failure) => failure.kind(),
            Self::UnknownApp { .. } => Kind::NotFound,
            Self::HelperUnfit { .. } => Kind::Unsupported,
            Self::Lost { .. } => Kind::Lost,
            Self::Gone { .. } => Kind::Gone,
            Self::Io { source, .. } => source.into(),
            Self::Internal(_) => Kind::Internal,
            Self::Protocol(_) => Kind::Protocol,
        }
    }

    /// Whether a launch has failed because it waited in the queue for too long.
    pub fn is_queue_timeout(&self) -> bool {
        match self {
            Self::Queued { .. } => true,
            Self::Crowded { error, .. } | Self::NoMoreFiles { error, .. } | Self::JobLeft { error, .. } => {
                error.is_queue_timeout()
            }
            _ => false,
        }
    }

    /// What the user can do about it: specific to this error if possible, else to its kind.
    pub fn hint(&self) -> Option<String> {
        self.own_hint().or_else(|| remedy_of(self.kind()).map(str::to_owned))
    }

    /// The hint that is specific to this error.
    fn own_hint(&self) -> Option<String> {
        match self {
            Self::Invalid { hint, .. } => hint.clone(),
            Self::Wlm(WlmError(error)) => error.hint(),
            Self::Node { failure, .. } | Self::HelperMissing(failure) => failure.hint().map(str::to_owned),
            Self::Queued { .. } => Some(
                "--queue-timeout gives it more time; without that option it waits as long as it takes"
                    .to_owned(),
            ),
            Self::HelperUnfit { .. } => Some(ONE_VERSION.to_owned()),
            Self::UnknownApp { .. } => Some("'gantry ps' lists the apps that run".to_owned()),
            Self::Gone { .. } => Some("it has ended, or was closed: launch or attach anew".to_owned()),
            Self::Io { source, .. } => {
                explain_open_files(source).or_else(|| hint_of(source).map(str::to_owned))
            }
            Self::NoMoreFiles { source, .. } => explain_open_files(source),
            Self::JobLeft { error, job } => Some(error.own_hint().unwrap_or_else(|| {
                format!(
                    "'gantry attach {job}' tries again; the workload manager's own command cancels the job"
                )
            })),
            Self::Crowded { error, .. } => Some(error.own_hint().unwrap_or_else(|| {
                "see which programs connect to all ports of this host, with 'ss -tnp' as root".to_owned()
            })),
            Self::TimedOut { .. }
            | Self::Incomplete { .. }
            | Self::Lost { .. }
            | Self::Protocol(_)
            | Self::Internal(_) => None,
        }
    }

    /// The error in the form for the wire: kind, text and hint.
    pub fn to_failure(&self) -> Failure {
        Failure::new(self.kind(), self.to_string()).with_hint_of(self.hint())
    }
}

/// A remedy against every error of a kind, if there is one.
fn remedy_of(kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::TimedOut => {
            Some("look at the nodes or the process that the message names, or set a longer timeout")
        }
        Kind::Protocol => Some("install all of gantry from one version on every node; else report a bug"),
        Kind::Internal => Some("report it as a bug, with the output of the same command with -vv"),
        Kind::Lost => Some("see whether that node or process still runs, then launch or attach again"),
        Kind::Gone => Some("it has ended: launch, attach or start it again"),
        _ => None,
    }
}

fn hint_of(error: &std::io::Error) -> Option<&'static str> {
    use std::io::ErrorKind as E;
    match error.kind() {
        E::NotFound | E::NotADirectory => Some("see that the path is right and that it is there"),
        E::PermissionDenied => {
            Some("see that its permissions, and those of the folders above it, let you use it")
        }
        E::IsADirectory => Some("name a file in it"),
        E::AlreadyExists => Some("remove it, or choose another name"),
        E::StorageFull | E::QuotaExceeded => Some("free some space there, or choose another directory"),
        E::ReadOnlyFilesystem => Some("choose a directory on a file system that you can write to"),
        E::OutOfMemory => Some("free memory on this machine, or raise the limit (ulimit -v)"),
        E::WouldBlock => Some("try again; if a limit of processes is reached, raise ulimit -u"),
        E::AddrInUse => Some("end what uses that address, or choose another one"),
        E::AddrNotAvailable | E::NetworkUnreachable | E::HostUnreachable => {
            Some("see whether this machine has that network address, and a route to the nodes")
        }
        E::ConnectionRefused | E::ConnectionReset | E::BrokenPipe | E::UnexpectedEof => {
            Some("the process at the other end has ended: see why, then try again")
        }
        _ => None,
    }
}

fn on_hosts(hosts: &[String]) -> String {
    match hosts {
        [] => String::new(),
        hosts => format!("on {}: ", gantry_types::host_set::fold_hosts(hosts)),
    }
}

fn missing_hosts(missing: &[String]) -> String {
    match missing {
        [] => String::new(),
        missing => format!("; no answer from {}", gantry_types::host_set::fold_hosts(missing)),
    }
}

/// How many missing members a message names.
const NAMED: usize = 4;

fn first_missing(missing: &[Missing]) -> String {
    let name = |it: &Missing| format!("daemon {} on {}: {}", it.member.daemon, it.host, it.why);
    let mut text = missing.iter().take(NAMED).map(name).collect::<Vec<_>>().join("; ");
    if missing.len() > NAMED {
        text.push_str("; ...");
    }
    text
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn an_error_without_a_hint_of_its_own_has_that_of_its_kind() {
        for kind in [Kind::TimedOut, Kind::Protocol, Kind::Internal, Kind::Lost, Kind::Gone] {
            let node = |failure: Failure| Error::Node { hosts: vec!["n1".to_owned()], failure }.to_failure();
            assert_eq!(node(Failure::new(kind, "it failed")).hint(), remedy_of(kind));
            assert!(remedy_of(kind).is_some());
            let own = Failure::new(kind, "it failed").with_hint("mend it");
            assert_eq!(node(own).hint(), Some("mend it"));
        }
        assert_eq!(Error::invalid("no program").hint(), None);
    }

    #[test]
    fn a_queue_that_took_too_long_is_known_below_other_errors() {
        let queued = Error::Queued { message: "job 1 waits".to_owned() };
        assert_eq!((queued.is_queue_timeout(), queued.kind()), (true, Kind::TimedOut));
        let left = Error::JobLeft { error: Box::new(queued), job: "1".to_owned() };
        assert!(left.is_queue_timeout() && left.hint().is_some_and(|hint| hint.contains("--queue-timeout")));
        assert!(!Error::invalid("wait in the queue").is_queue_timeout());
    }

    #[tokio::test]
    async fn a_panic_is_our_fault_and_a_cancelled_task_is_not() {
        let panicked: tokio::task::JoinHandle<()> = tokio::spawn(async { panic!("of this test") });
        assert_eq!(Error::from(panicked.await.unwrap_err()).kind(), Kind::Internal);
        let cancelled = tokio::spawn(std::future::pending::<()>());
        cancelled.abort();
        assert_eq!(Error::from(cancelled.await.unwrap_err()).kind(), Kind::Gone);
    }

    #[test]
    fn errors_of_the_system_that_users_can_mend_have_a_hint() {
        use libc::{
            EACCES, EAGAIN, ECONNREFUSED, EDQUOT, EEXIST, EMFILE, ENOENT, ENOMEM, ENOSPC, EPERM, EROFS,
        };
        for number in
            [EACCES, EAGAIN, ECONNREFUSED, EDQUOT, EEXIST, EMFILE, ENOENT, ENOMEM, ENOSPC, EPERM, EROFS]
        {
            let error = Error::io("write the log", io::Error::from_raw_os_error(number));
            assert!(error.hint().is_some(), "{error}");
        }
    }
}
