//! Reaches live apps of any tool of this user. No daemon is needed.
//!
//! Every live frontend serves one private Unix socket per app in the user's runtime directory. `gantry ps`, `gantry
//! release` and other commands are its clients. A graphical tool can be a client, too: in Rust by [`list`] and
//! [`Client`], in any language by the lines that `docs/src/reference/control-socket.md` lists.
//!
//! - `registry`: the runtime directory and its sockets.
//! - `protocol`: the messages, one JSON object per line.
//! - `server`: the frontend's end; `target` is the part of an app that it needs.
//! - `client`: the other end.
//! - `groups`: the same apps as process groups; `number`: their numbers; `kept`: ended groups until they are forgotten.
//! - `ended`: how apps of the background have ended, for an hour.

mod client;
mod ended;
mod groups;
mod kept;
mod line;
mod number;
pub(crate) mod protocol;
mod registry;
mod server;
mod target;

pub use client::{Client, Listing, RemoteChannel, RemoteEvents, list};
pub use ended::Ended;
pub(crate) use groups::{GroupListing, list_groups};
pub(crate) use kept::keep;
pub use protocol::{Answer, DaemonOrder, Text};
pub(crate) use registry::Shelf;
pub use registry::{Registry, sweep_machine};
pub(crate) use server::user_name;
pub use server::{ControlSocket, serve};
