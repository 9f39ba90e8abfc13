//! Reaches live apps of any tool of this user, without a daemon of ours running anywhere.
//!
//! Every live frontend serves one private Unix socket per app in the user's runtime directory. `gantry ps`, `gantry release` and the
//! others are clients of it; so may be a graphical tool, in Rust by [`list`] and [`Client`], in any language by the lines of [`protocol`].
//!
//! - [`registry`]: the runtime directory, and which sockets are in it.
//! - [`protocol`]: what is said, one JSON object per line.
//! - `server`: the frontend's end; `target` is what it needs of an app.
//! - [`client`]: the other end.

pub mod client;
mod line;
pub mod protocol;
pub mod registry;
mod server;
mod target;

pub use client::{Client, Listing, RemoteEvents, list, resolve};
pub use protocol::{DaemonOrder, Text};
pub use registry::Registry;
pub use server::{ControlSocket, serve};
