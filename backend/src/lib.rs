//! For tool daemons: where am I, which ranks of the app run here, where are my files.
//!
//! A tool daemon is a tool's own program that gantry starts on every node of an app. It learns about its place from its
//! node's agent, over a private socket:
//!
//! ```no_run
//! use gantry_backend::{Backend, Error};
//!
//! fn main() -> Result<(), Error> {
//!     let backend = match Backend::connect() {
//!         Err(Error::NotStartedByGantry { .. }) => return Ok(()), // started by hand: do without
//!         connected => connected?,
//!     };
//!     println!("{} has node {} of {}", backend.host(), backend.node(), backend.node_count());
//!     for rank in backend.ranks()? {
//!         println!("rank {} of {} is process {}", rank.rank, backend.rank_count(), rank.pid);
//!     }
//!     let log = backend.dirs().tmp.join("log"); // goes with the session
//!     # drop(log);
//!     Ok(())
//! }
//! ```
//!
//! Calls block, with a deadline. The library starts no threads, installs no signal handlers, and reads its process's
//! environment in [`Backend::connect`] only. A [`Backend`] may be used from several threads; their questions are asked
//! one after the other.
//!
//! [`channel()`] opens the way to the tool itself: see [`Channel`]. The modules [`rendezvous`] and [`runtime`] are for
//! ranks.
//!
//! # Coming from CTI
//!
//! | CTI | here |
//! | --- | --- |
//! | `cti_be_current_wlm`, `cti_be_wlm_type_toString` | [`Backend::wlm`], a name |
//! | `cti_be_getAppId` | [`Backend::app`], the same id on the frontend and on every node |
//! | `cti_be_findAppPids`, `cti_be_destroyPidList` | [`Backend::ranks`]: rank, pid, executable and state of each |
//! | `cti_be_getNodeHostname` | [`Backend::host`], as the WLM knows it; nothing is looked up |
//! | `cti_be_getNodeFirstPE` | [`Backend::first_rank`] |
//! | `cti_be_getNodePEs` | [`Backend::local_rank_count`] |
//! | `cti_be_getRootDir`, `cti_be_getFileDir` | [`dirs().root`](SessionDirs::root): files are in the root |
//! | `cti_be_getBinDir` | [`dirs().bin`](SessionDirs::bin) |
//! | `cti_be_getLibDir` | [`dirs().lib`](SessionDirs::lib) |
//! | `cti_be_getTmpDir` | [`dirs().tmp`](SessionDirs::tmp) |
//! | no call | [`Backend::node`], [`Backend::node_count`], [`Backend::rank_count`] |
//!
//! First rank and number of ranks describe a node only where its ranks follow one another. Under a cyclic layout they
//! do not: take the ranks from [`Backend::ranks`]. Where CTI gives null or -1 and writes to standard error, these calls
//! return an [`Error`].

#[cfg(test)]
mod skip;
mod node;

mod dirs;

mod error;

mod link;
mod dialogue;

pub mod rendezvous;
pub mod runtime;
pub mod channel;

#[doc(hidden)]
pub mod socket_path;

pub use channel::Channel;
pub use dirs::SessionDirs;
pub use error::Error;
pub use gantry_shared::wire::channel::Member;
pub use gantry_types as types;
pub use gantry_types::error::{Failure, Kind};
pub use gantry_types::filter;
pub use gantry_types::id::{AppId, DaemonId, NodeId, Pid, Rank, SessionId};
pub use gantry_types::placement::LocalRank;
pub use gantry_types::status::{ExitStatus, RankState};
pub use link::connect_abstract;
pub use node::{Address, Backend, DEFAULT_TIMEOUT};

/// Opens the channel to the tool that has started this process as a daemon: [`Backend::connect`] and
/// [`Backend::channel`] in one call.
///
/// # Errors
/// As those two.
pub fn channel() -> Result<Channel, Error> {
    Backend::connect()?.channel()
}
