//! For tools on the login side: launch parallel applications held at their first instruction, attach to running ones,
//! start tool daemons beside their ranks.
//!
//! | module | content |
//! | --- | --- |
//! | [`frontend`] | [`Frontend`]: the entry point of a tool |
//! | [`request`] | [`LaunchRequest`], [`DaemonRequest`]: the parameters of a launch and of a daemon |
//! | [`app`] | [`App`], the owner of an app; [`AppHandle`], a view of it that you can clone |
//! | [`batch`] | [`Batch`]: a batch job from its submission to its first ranks |
//! | [`session`], [`manifest`], [`daemon`] | storage on the nodes, the files in it, the daemons that run there |
//! | [`channel`] | messages between the tool and its daemons |
//! | [`staging`] | finds the libraries of a program without running it |
//! | [`event`], [`info`] | news of an app, and its state at one moment |
//! | [`coallocation`] | jobs over several workload managers |
//! | [`control`] | the socket through which other commands of this user reach an app |
//! | [`procgroup`] | finds, signals and starts apps by properties of their processes |
//! | [`rendezvous`] | data that ranks exchange, in an app and among apps |
//! | [`measure`] | speed of the overlay, for benches |
//! | [`error`] | errors |
//!
//! The API is asynchronous and runs on the caller's tokio runtime. Every call that may wait takes a timeout. The
//! library installs no signal handler and waits for its own children only. It never changes the environment or the
//! directory of the process.

pub mod app;
pub mod batch;
pub mod channel;
pub mod coallocation;
pub mod control;
pub mod daemon;
pub mod error;
pub mod event;
pub mod frontend;
pub mod info;
pub mod manifest;
pub mod measure;
pub mod procgroup;
pub mod rendezvous;
pub mod request;
pub mod session;
pub mod staging;

mod as_text;
mod clock;
mod config;
mod guard;
mod helpers;
mod lock;
mod overlay;
mod submission;

pub use app::{App, AppHandle, Events, OutputStream, QueueNews};
pub use batch::Batch;
pub use channel::{Channel, Missing, Policy};
pub use daemon::Daemon;
pub use error::{Error, Result, WlmError};
pub use event::Event;
pub use frontend::{Config, Frontend};
pub use gantry_types as types;
pub use gantry_types::filter;
pub use gantry_types::launch::{HoldChoice, HostsPolicy, SendAgent};
pub use manifest::{Manifest, Staged};
pub use request::{DaemonRequest, HoldMethod, Input, LaunchRequest, Mixed, MixedPart, OutputTo};
pub use session::Session;
