//! Storage on a node: where it goes, who owns it, and how it comes to an end.
//!
//! An agent has one [`AppDir`] while sessions are open: a private directory below a [`StageBase`], with a lease that is locked meanwhile. In it
//! every session has its own directories. The agent removes them in the end; when the agent was killed, the next one of the same user
//! finds an unlocked lease and [`sweep()`]s. Nothing here waits for anything but the file system, and other agents' removals in it.

mod app_dir;
mod base;
mod lease;
mod sweep;

pub(crate) use app_dir::{AppDir, AppDirName, SessionDir};
pub(crate) use base::StageBase;
pub(crate) use sweep::sweep;

/// Variables by name, as the agent found them: how [`StageBase::choose`] sees the environment.
pub(crate) type Lookup<'a> = &'a dyn Fn(&str) -> Option<std::ffi::OsString>;
