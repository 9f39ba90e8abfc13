//! Reaches live apps of any tool of this user, without a daemon of ours running anywhere.
//!
//! Every live frontend serves one private Unix socket per app in the user's runtime directory. `gantry ps`, `gantry release` and the
//! others are clients of it; so may be a graphical tool, in Rust by [`list`] and [`Client`], in any language by the lines that `docs/src/reference/control-socket.md` lists.
//!
//! - `registry`: the runtime directory, and which sockets are in it.
//! - `protocol`: what is said, one JSON object per line.
//! - `server`: the frontend's end; `target` is what it needs of an app.
//! - `client`: the other end.
//! - `groups`: the same apps as process groups; `number`: what they are called; `kept`: those that have ended and are not forgotten.

mod client;
mod groups;
mod kept;
mod line;
mod number;
pub(crate) mod protocol;
mod registry;
mod server;
mod target;

pub use client::{Client, Listing, RemoteChannel, RemoteEvents, list};
pub(crate) use groups::{GroupListing, list_groups};
pub(crate) use kept::keep;
pub use protocol::{Answer, DaemonOrder, Text};
pub(crate) use registry::Shelf;
pub use registry::{Registry, sweep_machine};
pub(crate) use server::user_name;
pub use server::{ControlSocket, serve};
