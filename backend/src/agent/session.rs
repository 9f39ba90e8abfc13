//! Storage on a node: where it goes, who owns it, and how it comes to an end.
//!
//! An agent has one [`AppDir`]: a private directory below a [`StageBase`], with a lease that is locked for as long as the agent lives. In it
//! every session has its own directories. The agent removes all of it in the end; when the agent was killed, the next one of the same user
//! finds a lease that nobody holds and [`sweep()`]s. Nothing here waits for anything but the file system.

mod app_dir;
mod base;
mod lease;
mod sweep;

pub(crate) use app_dir::AppDir;
pub(crate) use base::StageBase;
pub(crate) use sweep::sweep;

/// Variables by name, as the agent found them: how [`StageBase::choose`] sees the environment.
pub(crate) type Lookup<'a> = &'a dyn Fn(&str) -> Option<std::ffi::OsString>;
