//! Where agents connect and report.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU32;
#[cfg(test)]
use std::time::Duration;

use gantry_link::addresses::find_addresses;
use gantry_link::credit::STALL_TIME;
use gantry_link::door::Tally;
use gantry_link::greeting::Door;
use gantry_link::tcp::listen;
use gantry_shared::secret::Secret;
use gantry_shared::wire::message::RankReport;
use gantry_types::id::AppId;
use gantry_wlm::{Reach, Reports};
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use super::assembly::{Assembly, build_refusal};
use super::plan::Shape;
use super::{Overlay, OverlayEvent};
use crate::clock::Clock;
use crate::error::{Error, Result};

/// All agents that a launcher started, and their ranks.
#[derive(Debug)]
pub(crate) struct Mustered {
    pub(crate) overlay: Overlay,
    pub(crate) events: mpsc::UnboundedReceiver<OverlayEvent>,
    /// Name and ranks of every node, by node number.
    pub(crate) nodes: Vec<(String, Vec<RankReport>)>,
}

/// Counts connections at a door that are not from agents.
#[derive(Debug)]
pub(crate) struct DoorWatch(Tally);

impl DoorWatch {
    /// Adds the connections that were not from agents to a launch's error, if they may explain it.
    pub(crate) fn explain(&self, error: Error) -> Error {
        if let Some(source) = self.0.no_descriptor() {
            return Error::NoMoreFiles { error: Box::new(error), source };
        }
        let strangers = self.0.strangers();
        if strangers.matter() {
            Error::Crowded { error: Box::new(error), strangers: strangers.to_string() }
        } else {
            error
        }
    }
}

/// The frontend's listening sockets, until all agents have reported.
#[derive(Debug)]
pub(crate) struct Listener {
    secret: Secret,
    shape: Shape,
    door: Door,
    addresses: Vec<SocketAddr>,
    passing: mpsc::UnboundedSender<UnixStream>,
}

impl Listener {
    /// Starts listening for agents of `app` that know its secret and run within `reach`. `radix` is that of the tree of
    /// orders, `bulk_radix` that of bulk data. With a `bulk_radix` of 0, bulk data goes along the tree of orders.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a radix of 0, [`Error::Io`] when there is no port.
    pub(crate) async fn bind(
        app: AppId,
        secret: Secret,
        radix: u32,
        bulk_radix: u32,
        reach: Reach,
    ) -> Result<Self> {
        let Some(radix) = NonZeroU32::new(radix) else {
            return Err(Error::invalid("a tree of agents needs a radix of 1 at least"));
        };
        let cannot = |e| Error::io("cannot listen for agents", e);
        let listener = match reach {
            Reach::ThisMachine => listen((Ipv4Addr::LOCALHOST, 0).into()),
            // By default the kernel lets this socket accept IPv6 and IPv4. Without IPv6, use IPv4.
            Reach::Network => listen((Ipv6Addr::UNSPECIFIED, 0).into())
                .or_else(|_| listen((Ipv4Addr::UNSPECIFIED, 0).into())),
        };
        let listener = listener.map_err(cannot)?;
        let bound = listener.local_addr().map_err(cannot)?;
        let addresses = match reach {
            Reach::ThisMachine => vec![bound],
            Reach::Network => find_addresses(bound).map_err(cannot)?,
        };
        let shape = Shape { radix, bulk_radix, stall: STALL_TIME };
        let (passing, passed) = mpsc::unbounded_channel();
        let door = Door::new(listener, app, secret.clone(), build_refusal).with_passed(passed);
        Ok(Self { secret, shape, door, addresses, passing })
    }

    /// Accepts streams of agents that cannot dial, until all agents have reported.
    pub(crate) fn links(&self) -> Reports<UnixStream> {
        Reports::new(self.passing.clone())
    }

    /// Counts connections that are not from agents; remains valid after the listener.
    pub(crate) fn strangers(&self) -> DoorWatch {
        DoorWatch(self.door.tally())
    }

    /// Where agents can dial.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.addresses.clone()
    }

    /// Waits for the agents that a launcher starts, until all its ranks exist and the agents have joined the tree.
    /// Nodes are numbered in the order of their first ranks. On failure or drop, all links are cut.
    ///
    /// # Errors
    /// [`Error::TimedOut`] names the ranks that are missing; [`Error::Node`] a node that could not start or hold its
    /// ranks; [`Error::Lost`] nodes whose agent died.
    pub(crate) async fn muster(self, clock: &Clock) -> Result<Mustered> {
        let mut assembly = Assembly::new(self.secret.clone(), self.shape, &[])?;
        let late = tokio::select! {
            biased;
            mustered = assembly.muster(self.door) => Ok(mustered?),
            late = clock.run_out() => Err(late),
        };
        let nodes = late.map_err(|late| {
            let (phase, missing) = assembly.find_missing();
            clock.explain(late, phase, missing)
        })?;
        let (overlay, events) = assembly.finish()?;
        Ok(Mustered { overlay, events, nodes })
    }

    /// Sets another stall timeout for bulk data.
    #[cfg(test)]
    pub(super) fn with_stall(mut self, stall: Duration) -> Self {
        self.shape.stall = stall;
        self
    }

    /// Waits until one agent for each of `hosts` has reported and joined the tree. Node numbers are indices into
    /// `hosts`. On failure or drop, all links are cut.
    ///
    /// # Errors
    /// [`Error::TimedOut`] names the hosts that are missing; [`Error::Lost`] those whose agent died after it had got
    /// its place.
    pub(crate) async fn assemble(
        self,
        hosts: &[String],
        deadline: Instant,
    ) -> Result<(Overlay, mpsc::UnboundedReceiver<OverlayEvent>)> {
        let started = Instant::now();
        let mut assembly = Assembly::new(self.secret.clone(), self.shape, hosts)?;
        match timeout_at(deadline, assembly.run(self.door)).await {
            Ok(assembled) => assembled?,
            Err(_late) => {
                let after = deadline.saturating_duration_since(started);
                let (phase, missing) = assembly.find_missing();
                return Err(Error::TimedOut { phase, after, missing });
            }
        }
        assembly.finish()
    }
}
