//! Rendezvous, where they are gathered: of every app, and above apps.
//!
//! Ranks register data and get what others have registered; how they do it is `gantry_backend::rendezvous`. What they register comes up the tree to the app's frontend, which
//! alone knows whether it is complete; what they wait for goes down to the nodes where somebody waits, and to no other.
//!
//! | module | what is there |
//! | --- | --- |
//! | `place` | one rendezvous: what has come, what is on its way, who waits |
//! | `service` | all of one app, as its agents' notices have it |
//! | `deliver` | the way down: small things in orders, large ones as bulk data |
//! | `fences` | fences of an MPI world that is made of several apps |
//! | `of_app`, `wait` | what a tool sees of it; waiting for it |
//! | `multijob` | one whose members are apps, and further levels above it |
//!
//! A tool may look on ([`AppRendezvous`]). To launch apps as one multijob it makes a [`Multijob`] and says which app is which of its subjobs
//! ([`LaunchRequest::subjob`](crate::LaunchRequest::subjob)).

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
