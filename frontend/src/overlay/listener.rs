//! Where agents report.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU32;
#[cfg(test)]
use std::time::Duration;

use gantry_link::credit::STALL_TIME;
use gantry_link::door::Tally;
use gantry_link::greeting::Door;
use gantry_link::tcp::listen;
use gantry_shared::secret::Secret;
use gantry_shared::wire::message::RankReport;
use gantry_types::id::AppId;
use gantry_wlm::{AgentLinks, Reach};
use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use nix::sys::socket::SockaddrStorage;
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use super::assembly::{Assembly, build_refusal};
use super::plan::Shape;
use super::{Overlay, OverlayEvent};
use crate::clock::Clock;
use crate::error::{Error, Result};

/// Most addresses that agents are told.
const MAX_ADDRESSES: usize = 16;

/// All agents that a launcher has brought, and their ranks.
#[derive(Debug)]
pub(crate) struct Mustered {
    pub(crate) overlay: Overlay,
    pub(crate) events: mpsc::UnboundedReceiver<OverlayEvent>,
    /// Name and ranks of every node, by node number.
    pub(crate) nodes: Vec<(String, Vec<RankReport>)>,
}

/// What a door has seen of connections that are no agent's.
#[derive(Debug)]
pub(crate) struct DoorWatch(Tally);

impl DoorWatch {
    /// The error of a launch with what has come to its door meanwhile, if that may explain it.
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

/// The frontend's ear, until all agents have reported.
#[derive(Debug)]
pub(crate) struct Listener {
    secret: Secret,
    shape: Shape,
    door: Door,
    addresses: Vec<SocketAddr>,
    passing: mpsc::UnboundedSender<UnixStream>,
}

impl Listener {
    /// Starts listening, for agents of `app` that know its secret and run within `reach`. `radix` is that of the tree of orders, `bulk_radix` that
    /// of bulk data; 0 there sends bulk data along the tree of orders.
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
            // The system's usual setting lets this take both families; where there is no IPv6 there is only the other.
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

    /// Where streams of agents that cannot dial are passed on, until all agents have reported.
    pub(crate) fn links(&self) -> AgentLinks {
        AgentLinks::new(self.passing.clone())
    }

    /// What the door sees of connections that are no agent's; also later.
    pub(crate) fn strangers(&self) -> DoorWatch {
        DoorWatch(self.door.tally())
    }

    /// Where agents can dial.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.addresses.clone()
    }

    /// Waits for the agents that a launcher brings, until all its ranks are there and the agents hang in the tree. Nodes are numbered
    /// in the order of their first ranks. When it fails, or is dropped, all links are cut.
    ///
    /// # Errors
    /// [`Error::TimedOut`] names the ranks that are missing; [`Error::Node`] a node that could not start or hold its ranks; [`Error::Lost`] nodes
    /// whose agent died.
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

/// Every address of this machine at which a listener on all of them can be dialled, those of networks first: agents try them side by side, and the
/// one that answers first is taken. No name is looked up, here or there.
fn find_addresses(bound: SocketAddr) -> io::Result<Vec<SocketAddr>> {
    let mut found: Vec<(u8, IpAddr)> = Vec::new();
    for interface in getifaddrs()? {
        let is_up = interface.flags.contains(InterfaceFlags::IFF_UP);
        let Some(ip) = interface.address.as_ref().and_then(to_ip).filter(|_| is_up) else { continue };
        if let Some(order) = order_of(ip, bound.is_ipv6())
            && found.len() < MAX_ADDRESSES
        {
            found.push((order, ip));
        }
    }
    found.sort();
    found.dedup();
    Ok(found.into_iter().map(|(_, ip)| SocketAddr::new(ip, bound.port())).collect())
}

fn to_ip(address: &SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|it| IpAddr::V4(it.ip()));
    v4.or_else(|| address.as_sockaddr_in6().map(|it| IpAddr::V6(it.ip())))
}

/// Which addresses are told first. None: it cannot be dialled from elsewhere, or not without naming an interface.
fn order_of(ip: IpAddr, both_families: bool) -> Option<u8> {
    match ip {
        IpAddr::V4(ip) if ip.is_loopback() => Some(2),
        IpAddr::V4(ip) if ip.is_link_local() => None,
        IpAddr::V4(_) => Some(0),
        IpAddr::V6(ip) if !both_families || ip.is_loopback() || ip.is_unicast_link_local() => None,
        IpAddr::V6(_) => Some(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_come_first_and_what_needs_an_interface_is_left_out() {
        let check = |ip: &str, expected| assert_eq!(order_of(ip.parse().unwrap(), true), expected, "{ip}");
        check("10.1.2.3", Some(0));
        check("2001:db8::1", Some(1));
        check("127.0.0.1", Some(2));
        check("::1", None);
        check("fe80::1", None);
        check("169.254.0.7", None);
        assert_eq!(order_of("2001:db8::1".parse().unwrap(), false), None);
    }

    #[test]
    fn this_machine_has_its_loopback_address_at_least() {
        let found = find_addresses("[::]:7".parse().unwrap()).unwrap();
        assert!(found.contains(&"127.0.0.1:7".parse().unwrap()), "{found:?}");
    }
}
