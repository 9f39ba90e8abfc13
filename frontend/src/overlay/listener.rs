//! Where agents report.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::time::Duration;

use gantry_shared::id::AppId;
use gantry_shared::secret::Secret;
use gantry_shared::wire::credit::STALL_TIME;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use super::assembly::Assembly;
use super::{Overlay, OverlayEvent};
use crate::error::{Error, Result};

/// Who can dial the frontend.
#[derive(Debug, Clone, Copy)]
enum Exposure {
    /// Processes of this machine.
    Loopback,
}

/// Agents of other machines need an address of the network; there is no such WLM yet.
const EXPOSURE: Exposure = Exposure::Loopback;

/// What is chosen of the overlay.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    /// Of the tree of orders.
    pub(super) radix: NonZeroU32,
    /// Of the trees of bulk data.
    pub(super) bulk_radix: u32,
    /// How long somebody may owe a sign that it takes bulk data.
    pub(super) stall: Duration,
}

/// The frontend's ear, until all agents have reported.
#[derive(Debug)]
pub(crate) struct Listener {
    app: AppId,
    secret: Secret,
    shape: Shape,
    listener: TcpListener,
    address: SocketAddr,
}

impl Listener {
    /// Starts listening, for agents of `app` that know its secret. `radix` is that of the tree of orders, `bulk_radix` that of bulk data;
    /// 0 there sends bulk data along the tree of orders.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a radix of 0, [`Error::Io`] when there is no port.
    pub(crate) async fn bind(app: AppId, secret: Secret, radix: u32, bulk_radix: u32) -> Result<Self> {
        let Some(radix) = NonZeroU32::new(radix) else {
            return Err(Error::invalid("a tree of agents needs a radix of 1 at least"));
        };
        let ip = match EXPOSURE {
            Exposure::Loopback => IpAddr::V4(Ipv4Addr::LOCALHOST),
        };
        let cannot = |e| Error::io("cannot listen for agents", e);
        let listener = TcpListener::bind((ip, 0)).await.map_err(cannot)?;
        let address = listener.local_addr().map_err(cannot)?;
        let shape = Shape { radix, bulk_radix, stall: STALL_TIME };
        Ok(Self { app, secret, shape, listener, address })
    }

    /// Where agents can dial.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        vec![self.address]
    }

    /// With another stall time of bulk data.
    #[cfg(test)]
    pub(super) fn with_stall(mut self, stall: Duration) -> Self {
        self.shape.stall = stall;
        self
    }

    /// Waits until one agent for each of `hosts` has reported and hangs in the tree. Node numbers are indices into `hosts`. When it fails, or
    /// is dropped, all links are cut.
    ///
    /// # Errors
    /// [`Error::TimedOut`] names the hosts that are missing; [`Error::Lost`] those whose agent died when it had its place.
    pub(crate) async fn assemble(
        self,
        hosts: &[String],
        deadline: Instant,
    ) -> Result<(Overlay, mpsc::UnboundedReceiver<OverlayEvent>)> {
        let started = Instant::now();
        let mut assembly = Assembly::new(self.app, self.secret, self.shape, hosts)?;
        match timeout_at(deadline, assembly.run(self.listener)).await {
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
