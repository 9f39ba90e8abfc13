//! For tools on the login side: launch parallel applications held at their first instruction, attach to running ones, start tool daemons
//! beside their ranks.
//!
//! | module | what is there |
//! | --- | --- |
//! | [`frontend`] | [`Frontend`]: where a tool begins |
//! | [`request`] | [`LaunchRequest`], [`DaemonRequest`]: what a tool asks for |
//! | [`app`] | [`App`], its owner; [`AppHandle`], everybody else's view |
//! | [`batch`] | [`Batch`]: a batch job from its submission to its first ranks |
//! | [`session`], [`manifest`], [`daemon`] | storage on the nodes, what is put there, what is started there |
//! | [`channel`] | what the tool and its daemons say to each other |
//! | [`staging`] | what programs need, found without running them |
//! | [`event`], [`info`] | what happens, and what is known at one moment |
//! | [`coallocation`] | jobs over several workload managers |
//! | [`control`] | the socket through which other commands of this user reach an app |
//! | [`procgroup`] | apps as process groups: found by what their processes are |
//! | [`rendezvous`] | data that ranks exchange, in an app and among apps |
//! | [`measure`] | how fast the way to the nodes is |
//! | [`error`], [`helpers`] | what goes wrong; where gantry's own executables are |
//! | [`guard`] | the helper that outlives a killed tool |
//!
//! The API is asynchronous and runs on the caller's tokio runtime. Everything that may wait takes a deadline. The library installs no
//! signal handler, waits for no child that is not its own, and never changes the environment or the directory of the process.

pub mod app;
pub mod batch;
pub mod channel;
pub mod coallocation;
pub mod control;
pub mod daemon;
pub mod error;
pub mod event;
pub mod frontend;
pub mod guard;
pub mod helpers;
pub mod info;
mod clock;
mod lock;
pub mod manifest;
pub mod measure;
mod overlay;
pub mod procgroup;
pub mod rendezvous;
pub mod request;
pub mod session;
pub mod staging;

pub use app::{App, AppHandle, Events, OutputStream, QueueNews};
pub use batch::Batch;
pub use channel::{Channel, Missing, Policy};
pub use daemon::Daemon;
pub use error::{Error, Result};
pub use event::Event;
pub use frontend::{Config, Frontend};
pub use gantry_shared::filter;
pub use gantry_wlm::{HoldChoice, HostsPolicy, SendAgent};
pub use manifest::{Manifest, Staged};
pub use request::{DaemonRequest, HoldMethod, Input, LaunchRequest, Mixed, MixedPart, OutputTo};
pub use session::Session;
