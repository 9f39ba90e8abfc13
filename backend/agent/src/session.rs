//! Storage on a node: its place, its owner, and its removal.
//!
//! An agent has one [`AppDir`] while sessions are open: a private directory below a [`StageBase`], with a lease that
//! the agent keeps locked. In it every session has its own directories, which the agent removes at the end. If the
//! agent was killed, the next agent of the same user finds an unlocked lease and calls [`sweep()`]. Nothing here waits
//! except for the file system, and for other agents' removals in it.

mod app_dir;
mod base;
mod lease;
mod sweep;

pub(crate) use app_dir::{AppDir, AppDirName, SessionDir};
pub(crate) use base::StageBase;
pub(crate) use sweep::sweep;
