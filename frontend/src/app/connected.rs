//! What an app starts with once its agents are connected.

use gantry_types::id::AppId;
use gantry_wlm::Wlm;
use tokio::sync::mpsc;

use crate::coallocation::Member;
use crate::event::MissingHost;
use crate::guard::{Guard, GuardEvent};
use crate::overlay::{Overlay, OverlayEvent};
use crate::rendezvous::Seat;

/// An app's agents, connected, and the guard that watches over them.
#[derive(Debug)]
pub(super) struct Connected {
    pub(super) overlay: Overlay,
    pub(super) overlay_events: mpsc::UnboundedReceiver<OverlayEvent>,
    pub(super) guard: Guard,
    pub(super) guard_events: mpsc::UnboundedReceiver<GuardEvent>,
    /// The nodes' names, by node number.
    pub(super) hosts: Vec<String>,
    /// Hosts without an agent, which the policy allows.
    pub(super) left_out: Vec<MissingHost>,
}

/// What stays the same for the whole life of an app, and its place in larger jobs.
#[derive(Debug)]
pub(super) struct Membership {
    pub(super) app: AppId,
    pub(super) wlm: &'static dyn Wlm,
    /// As [`LaunchRequest::linger`](crate::LaunchRequest::linger) has it.
    pub(super) linger: bool,
    /// Its place in a multijob.
    pub(super) seat: Option<Seat>,
    /// Its place in a co-allocated job.
    pub(super) member: Option<Member>,
}
