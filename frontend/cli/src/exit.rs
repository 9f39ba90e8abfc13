//! The exit codes of `gantry`. They are part of its interface.

use gantry_frontend::event::Ending;
use gantry_types::error::{Failure, Kind};

/// All went well.
pub(crate) const SUCCESS: u8 = 0;
/// `gantry doctor` found something that fails.
pub(crate) const UNFIT: u8 = 1;
/// The command line makes no sense.
pub(crate) const USAGE: u8 = 2;
/// What was asked makes no sense.
pub(crate) const INVALID: u8 = 64;
/// A program, file, node, process or app is not there.
pub(crate) const NOT_FOUND: u8 = 65;
/// It is there and may not be used.
pub(crate) const NO_ACCESS: u8 = 66;
/// It was not done in time.
pub(crate) const TIMED_OUT: u8 = 67;
/// The launcher, or a program that gantry needs, failed.
pub(crate) const LAUNCHER_FAILED: u8 = 68;
/// This system cannot do it.
pub(crate) const UNSUPPORTED: u8 = 69;
/// The other side does not speak as it should.
pub(crate) const PROTOCOL: u8 = 70;
/// A node, or a process of gantry, is gone.
pub(crate) const LOST: u8 = 71;
/// What was asked about has ended.
pub(crate) const GONE: u8 = 72;
/// The operating system refused.
pub(crate) const SYSTEM: u8 = 73;
/// gantry itself is at fault.
pub(crate) const INTERNAL: u8 = 74;
/// `gantry why --watch --exit` saw that nothing moves.
pub(crate) const STALLED: u8 = 75;
/// An error of a kind that has no code of its own.
pub(crate) const OTHER: u8 = 79;
/// Added to the number of the signal that ended an app, a daemon, or gantry.
pub(crate) const SIGNAL: u8 = 128;

/// The table for `--help`.
pub(crate) const HELP: &str = "\
Exit codes:
  'launch', 'attach', 'submit', 'coalloc', 'mpir', 'wait' and 'stack --launch' end with
  the app's code: the highest of its ranks.
  A rank that signal N has ended counts as 128 + N. 'daemon' does the same.
  If the command cannot write output, 0 becomes 73. 'wait' does the same for the output
  of an app in the background.
  gantry's own codes:
    0  done
    1  'doctor' found something that fails, or a command of 'gdb --batch' failed
    2  the command line makes no sense
   64  the request makes no sense
   65  a program, file, node, process or app was not found
   66  no access
   67  timed out
   68  the launcher failed, or a program that gantry needs
   69  this system cannot do it
   70  the other side broke the protocol
   71  a node was lost, or a process of gantry
   72  the process or app has ended
   73  the operating system refused: files, processes, memory or space are short
   74  gantry itself is at fault
   75  'why --watch --exit' saw that nothing moves
   79  any other error
  130  Ctrl-C ended all; SIGHUP gives 129, SIGTERM 143";

/// The code for a failure of gantry itself.
pub(crate) fn of_kind(kind: Kind) -> u8 {
    match kind {
        Kind::Invalid => INVALID,
        Kind::NotFound => NOT_FOUND,
        Kind::NoAccess => NO_ACCESS,
        Kind::TimedOut => TIMED_OUT,
        Kind::LauncherFailed => LAUNCHER_FAILED,
        Kind::Unsupported => UNSUPPORTED,
        Kind::Protocol => PROTOCOL,
        Kind::Lost => LOST,
        Kind::Gone => GONE,
        Kind::System => SYSTEM,
        Kind::Internal => INTERNAL,
        // The enum may grow in another crate; the test below lists all kinds.
        _ => OTHER,
    }
}

/// The code of an app. A code beyond the range of a process becomes the highest code, so a failure stays a failure.
pub(crate) fn of_app(code: i32) -> u8 {
    u8::try_from(code).unwrap_or(u8::MAX)
}

/// The code of a command whose own code is `code`, when output of the app could not be written.
pub(crate) fn of_lost_output(code: u8) -> u8 {
    if code == SUCCESS { SYSTEM } else { code }
}

/// The code of one process, as a shell shows it. An unknown ending counts as a failure.
pub(crate) fn of_ending(ending: &Ending) -> u8 {
    match (ending.code, ending.signal) {
        (Some(code), _) => of_app(code),
        (None, Some(signal)) => of_signal(signal.number()),
        (None, None) => 1,
    }
}

/// The code of a process that a signal ended.
pub(crate) fn of_signal(number: i32) -> u8 {
    u8::try_from(number).map_or(u8::MAX, |number| SIGNAL.saturating_add(number))
}

/// The reason of a command's failure.
#[derive(Debug)]
pub(crate) struct Fault(pub(crate) Failure);

impl From<gantry_frontend::Error> for Fault {
    fn from(error: gantry_frontend::Error) -> Self {
        Self(error.to_failure())
    }
}

impl From<gantry_wlm::Error> for Fault {
    fn from(error: gantry_wlm::Error) -> Self {
        gantry_frontend::Error::from(error).into()
    }
}

impl Fault {
    /// An operation on this machine failed.
    pub(crate) fn io(what: &str, error: &std::io::Error) -> Self {
        let again = || std::io::Error::new(error.kind(), error.to_string());
        let source = error.raw_os_error().map_or_else(again, std::io::Error::from_raw_os_error);
        gantry_frontend::Error::Io { what: what.to_owned(), source }.into()
    }

    /// What was asked makes no sense.
    pub(crate) fn invalid(message: impl Into<String>, hint: &str) -> Self {
        Self(Failure::new(Kind::Invalid, message).with_hint(hint))
    }
}

/// The text of a fault: its cause and hint.
pub(crate) fn text_of(fault: &Fault) -> String {
    match fault.0.hint() {
        Some(hint) => format!("{}; hint: {hint}", fault.0.message()),
        None => fault.0.message().to_owned(),
    }
}

/// The result of a command: its exit code, or the reason of its failure.
pub(crate) type Outcome = Result<u8, Fault>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_code_of_its_own_that_help_lists() {
        let kinds = [
            Kind::Invalid,
            Kind::NotFound,
            Kind::NoAccess,
            Kind::TimedOut,
            Kind::LauncherFailed,
            Kind::Unsupported,
            Kind::Protocol,
            Kind::Lost,
            Kind::Gone,
            Kind::System,
            Kind::Internal,
        ];
        let codes: std::collections::BTreeSet<u8> = kinds.into_iter().map(of_kind).collect();
        assert_eq!(codes.len(), kinds.len());
        assert!(!codes.contains(&OTHER));
        for code in codes.into_iter().chain([SUCCESS, UNFIT, USAGE, STALLED, OTHER]) {
            assert!(HELP.lines().any(|line| line.trim_start().starts_with(&format!("{code}  "))), "{code}");
        }
    }

    #[test]
    fn no_failure_reads_as_success() {
        let check = |code, signal: Option<&str>, expected| {
            let mut ending = Ending::default();
            ending.code = code;
            ending.signal = signal.map(|signal| signal.parse().unwrap());
            assert_eq!(of_ending(&ending), expected);
        };
        check(Some(0), None, 0);
        check(Some(256), None, 255);
        check(None, Some("KILL"), 137);
        check(None, None, 1);
        assert_eq!(of_app(-1), 255);
    }
}
