//! Whether launches go over ssh: only where somebody says so. That a machine has ssh says nothing.

use crate::Evidence;

/// What says that a launch with these arguments goes over ssh.
pub(super) fn detect_wish(args: &[std::ffi::OsString]) -> Option<Evidence> {
    let option = super::command::names_hosts(args)?;
    Some(Evidence(format!("{option} names hosts, which are reached by ssh")))
}
