//! The error numbers of task management, and those of batch requests that moms pass on.

use std::fmt;

use gantry_types::error::Kind;

/// An error number, of either family.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Code(pub i32);

/// Number, name, meaning, and kind by the caller's remedy.
type Row = (i32, &'static str, &'static str, Kind);

/// Task management's own numbers, and the batch numbers that one mom may pass to another.
const ROWS: [Row; 22] = [
    (15001, "PBSE_UNKJOBID", "the job is not known there", Kind::NotFound),
    (15004, "PBSE_IVALREQ", "an invalid request", Kind::Invalid),
    (15007, "PBSE_PERM", "not permitted", Kind::NoAccess),
    (15008, "PBSE_BADHOST", "access from this host is not allowed", Kind::NoAccess),
    (15009, "PBSE_JOBEXIST", "no such node, task or name on that host", Kind::NotFound),
    (15010, "PBSE_SYSTEM", "a system error of the other mom", Kind::LauncherFailed),
    (15011, "PBSE_INTERNAL", "an internal error of the other mom", Kind::LauncherFailed),
    (15016, "PBSE_BADSTATE", "the job is in the wrong state", Kind::Gone),
    (15031, "PBSE_PROTOCOL", "the other mom does not know the request", Kind::Protocol),
    (17000, "TM_ESYSTEM", "a system error of the mom", Kind::LauncherFailed),
    (17001, "TM_ENOEVENT", "an answer to no request", Kind::Protocol),
    (17002, "TM_ENOTCONNECTED", "the connection to the mom is lost", Kind::Lost),
    (17003, "TM_EUNKNOWNCMD", "a command that the mom does not know", Kind::Unsupported),
    (17004, "TM_ENOTIMPLEMENTED", "PBS does not have this, or not for this job", Kind::Unsupported),
    (17005, "TM_EBADENVIRONMENT", "variables of the job are missing", Kind::Invalid),
    (17006, "TM_ENOTFOUND", "no such node, task, job or name", Kind::NotFound),
    (17007, "TM_BADINIT", "called before tm_init, or tm_init called twice", Kind::Invalid),
    (17008, "TM_ESESSION", "the session is a task already", Kind::Invalid),
    (17009, "TM_EUSER", "the job belongs to another user", Kind::NoAccess),
    (17010, "TM_EOWNER", "the process belongs to another user", Kind::NoAccess),
    (17011, "TM_ENOPROC", "no such process, or one without a session", Kind::NotFound),
    (17012, "TM_EHOOK", "refused by a hook of the site", Kind::NoAccess),
];

impl Code {
    /// The mom cannot be reached, or could not start a process.
    pub const SYSTEM: Self = Self(17000);
    /// The connection is lost.
    pub const NOT_CONNECTED: Self = Self(17002);
    /// No such command.
    pub const UNKNOWN_COMMAND: Self = Self(17003);
    /// PBS does not implement it.
    pub const NOT_IMPLEMENTED: Self = Self(17004);
    /// A variable of the job is missing.
    pub const BAD_ENVIRONMENT: Self = Self(17005);
    /// No such node, task, job or name.
    pub const NOT_FOUND: Self = Self(17006);
    /// It was called before the initialization.
    pub const BAD_INIT: Self = Self(17007);
    /// The number of another host's mom for the own mom's [`NOT_FOUND`](Self::NOT_FOUND).
    pub const NOT_FOUND_ELSEWHERE: Self = Self(15009);

    fn row(self) -> Option<&'static Row> {
        ROWS.iter().find(|(number, ..)| *number == self.0)
    }

    /// Its name in PBS, if it is a number of task management.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        self.row().map(|(_, name, ..)| *name)
    }

    /// The kind by the caller's remedy.
    #[must_use]
    pub fn kind(self) -> Kind {
        self.row().map_or(Kind::LauncherFailed, |(.., kind)| *kind)
    }

    /// Whether it means that a node, task or name does not exist, on any host.
    #[must_use]
    pub fn is_not_found(self) -> bool {
        matches!(self, Self::NOT_FOUND | Self::NOT_FOUND_ELSEWHERE)
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name}({})", self.0),
            None => write!(f, "Code({})", self.0),
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.row() {
            Some((number, name, meaning, _)) => write!(f, "{meaning} ({name}, {number})"),
            None => write!(f, "error {}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(number: i32, text: &str, kind: Kind) {
        let code = Code(number);
        assert_eq!((code.to_string().as_str(), code.kind()), (text, kind));
    }

    #[test]
    fn numbers_of_both_families_have_names() {
        check(17006, "no such node, task, job or name (TM_ENOTFOUND, 17006)", Kind::NotFound);
        check(15009, "no such node, task or name on that host (PBSE_JOBEXIST, 15009)", Kind::NotFound);
        check(17009, "the job belongs to another user (TM_EUSER, 17009)", Kind::NoAccess);
        check(15999, "error 15999", Kind::LauncherFailed);
        assert!(Code(17006).is_not_found() && Code(15009).is_not_found() && !Code(17000).is_not_found());
    }

    #[test]
    fn every_number_stands_there_once_and_in_order() {
        assert!(ROWS.is_sorted_by(|left, right| left.0 < right.0));
    }
}
