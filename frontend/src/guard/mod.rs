//! The guard: one small helper per app on the login side that outlives a killed tool to clean up after it.
//!
//! The frontend library lives in somebody else's program: it may have no children, no signal handlers and no say in how that program
//! ends. Whatever needs those is done by the guard, which the kernel tells of the tool's end by closing a socket.
//!
//! - [`protocol`]: what tool and guard say to each other.
//! - [`policy`]: what the guard decides, as a pure state machine.
//! - [`serve`]: the guard's process.
//! - [`starter`]: the same executable inside of a job that brings agents; `last_word`: what it tells when they do not come.
//! - [`held`]: the same executable in a batch script, in the place of a launcher.
//! - `launcher`, `driven`: the app's launcher, started plainly or as a debugger does it.
//! - `table`: what the launcher itself says of its ranks.
//! - `client`: the tool's end.

pub(crate) mod client;
pub mod held;
pub mod policy;
pub mod protocol;
mod driven;
mod launcher;
pub mod serve;
pub mod starter;
mod last_word;
mod sys;
mod table;
