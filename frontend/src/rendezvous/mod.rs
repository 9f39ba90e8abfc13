//! Gathers the data of rendezvous: of every app, and of levels above apps.
//!
//! Ranks register data and get what others have registered, through `gantry_backend::rendezvous`. The agents send
//! registered data up the tree to the app's frontend, which alone knows when it is complete. The frontend sends the
//! result only to the nodes where processes wait.
//!
//! | module | content |
//! | --- | --- |
//! | `place` | one rendezvous: received data, data in flight, waiting nodes |
//! | `service` | all rendezvous of one app, driven by its agents' notices |
//! | `deliver` | delivery to nodes: small data in orders, large data as bulk data |
//! | `fences` | fences of an MPI world that is made of several apps |
//! | `of_app`, `wait` | a tool's view, and how it waits |
//! | `multijob` | a rendezvous whose members are apps, and further levels above it |
//!
//! A tool may observe them ([`AppRendezvous`]). To launch apps as one multijob, it makes a [`Multijob`] and assigns
//! each app to one of its subjobs ([`LaunchRequest::subjob`](crate::LaunchRequest::subjob)).

mod deliver;
mod multijob;
mod place;
mod fences;
mod of_app;
mod service;
mod wait;

pub use gantry_types::rendezvous::{Data, DataError, Limits, MultijobId, Resource};
pub use gantry_types::rendezvous::{Standing, Status};

pub(crate) use self::fences::{FenceSeat, SharedFences};
pub use self::multijob::Multijob;
pub(crate) use self::multijob::Seat;
pub use self::of_app::AppRendezvous;
pub(crate) use self::service::Service;
