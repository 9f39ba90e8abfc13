//! Open descriptors of this process, for tests that use the libraries in-process.
//!
//! The tests of one file run in one process at the same time. So a test that counts descriptors is alone in its file,
//! or every test of the file takes one lock.

use std::collections::BTreeMap;
use std::fs;

use nix::sys::resource::{Resource, getrlimit};

/// The open descriptors at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Census(BTreeMap<i32, String>);

impl Census {
    /// Looks at every descriptor of this process.
    #[must_use]
    pub fn take() -> Self {
        let Ok(entries) = fs::read_dir("/proc/self/fd") else { return Self(BTreeMap::new()) };
        let open = entries.flatten().filter_map(|entry| {
            let number = entry.file_name().to_str()?.parse().ok()?;
            // The descriptor of this listing itself is closed by now.
            let target = fs::read_link(entry.path()).ok()?.to_string_lossy().into_owned();
            (!target.starts_with("/proc/") || !target.ends_with("/fd")).then_some((number, target))
        });
        Self(open.collect())
    }

    /// Number and target of every descriptor that is open now and was not then.
    #[must_use]
    pub fn new_since(&self) -> Vec<(i32, String)> {
        let now = Self::take().0;
        now.into_iter().filter(|(number, target)| self.0.get(number) != Some(target)).collect()
    }

    /// Fails the test when more descriptors are open than at that moment. Waits up to `deadline`, because tasks may
    /// still close theirs.
    ///
    /// # Panics
    /// With the list of the new ones.
    #[track_caller]
    pub fn assert_no_growth(&self, deadline: std::time::Duration) {
        let back = crate::becomes_true(deadline, || fd_count() <= self.0.len());
        assert!(back, "{} descriptors more than before: {:?}", fd_count() - self.0.len(), self.new_since());
    }
}

/// Whether a process may have so many descriptors open that raises its soft limit, for `require!`.
///
/// # Errors
/// The reason for the skip.
pub fn may_open(count: u64) -> Result<(), String> {
    let hard = getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(_, hard)| hard);
    if hard < count { Err(format!("there may be {hard} open files only")) } else { Ok(()) }
}

/// How many descriptors this process has open.
#[must_use]
pub fn fd_count() -> usize {
    Census::take().0.len()
}
