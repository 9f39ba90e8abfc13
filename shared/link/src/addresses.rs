//! The addresses at which this machine can be dialled.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use nix::sys::socket::SockaddrStorage;

/// Most addresses that peers are told.
const MAX_ADDRESSES: usize = 16;

/// The addresses at which peers can dial a listener that listens on all of them, at most 16. Those of the default
/// routes come first, then other networks, then networks without a carrier: a login node may have many bridges of
/// containers that no other machine reaches.
///
/// Agents try the addresses side by side, and take the first that answers. Neither side looks up a name.
///
/// # Errors
/// The system does not list its interfaces.
pub fn find_addresses(bound: SocketAddr) -> io::Result<Vec<SocketAddr>> {
    let up = getifaddrs()?.filter(|interface| interface.flags.contains(InterfaceFlags::IFF_UP));
    let found = up.filter_map(|interface| {
        let ip = interface.address.as_ref().and_then(to_ip)?;
        Some((ip, interface.flags.contains(InterfaceFlags::IFF_RUNNING)))
    });
    // Addresses of documentation (RFC 5737, RFC 3849): only the default route leads there.
    let far: [(IpAddr, IpAddr); 2] = [
        (Ipv4Addr::new(192, 0, 2, 1).into(), Ipv4Addr::UNSPECIFIED.into()),
        (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(), Ipv6Addr::UNSPECIFIED.into()),
    ];
    Ok(choose(found, &far.map(|(there, unbound)| find_source(there, unbound)), bound))
}

/// This machine's address on its route to `there`. Sends nothing.
fn find_source(there: IpAddr, unbound: IpAddr) -> Option<IpAddr> {
    let socket = UdpSocket::bind(SocketAddr::new(unbound, 0)).ok()?;
    socket.connect(SocketAddr::new(there, 9)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// The best of these addresses. Each comes with the information whether its interface has a carrier.
fn choose(
    found: impl Iterator<Item = (IpAddr, bool)>,
    routed: &[Option<IpAddr>],
    bound: SocketAddr,
) -> Vec<SocketAddr> {
    let ordered = found.filter_map(|(ip, runs)| {
        let order = order_of(ip, runs, bound.is_ipv6())?;
        Some((!routed.contains(&Some(ip)), order, ip))
    });
    let mut ordered: Vec<(bool, u8, IpAddr)> = ordered.collect();
    ordered.sort();
    ordered.dedup();
    if let Some(left_out @ 1..) = ordered.len().checked_sub(MAX_ADDRESSES) {
        tracing::warn!(left_out, "this machine has more addresses than peers are told");
    }
    ordered.truncate(MAX_ADDRESSES);
    ordered.into_iter().map(|(_, _, ip)| SocketAddr::new(ip, bound.port())).collect()
}

fn to_ip(address: &SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|it| IpAddr::V4(it.ip()));
    v4.or_else(|| address.as_sockaddr_in6().map(|it| IpAddr::V6(it.ip())))
}

/// Rank of an address, lowest first. `None`: it cannot be dialled from elsewhere, or only with the name of an
/// interface.
fn order_of(ip: IpAddr, runs: bool, both_families: bool) -> Option<u8> {
    let idle = if runs { 0 } else { 2 };
    match ip {
        IpAddr::V4(ip) if ip.is_loopback() => Some(4),
        IpAddr::V4(ip) if ip.is_link_local() => None,
        IpAddr::V4(_) => Some(idle),
        IpAddr::V6(ip) if !both_families || ip.is_loopback() || ip.is_unicast_link_local() => None,
        IpAddr::V6(_) => Some(idle + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each address is that of an interface with a carrier, unless it begins with `idle `. `routed ` begins that of a
    /// default route.
    #[track_caller]
    fn check(found: &[&str], bound: &str, expected: &[&str]) {
        let routed = found.iter().filter_map(|text| text.strip_prefix("routed "));
        let routed: Vec<Option<IpAddr>> = routed.map(|ip| Some(ip.parse().unwrap())).collect();
        let found = found.iter().map(|text| match text.split_once(' ') {
            Some((how, ip)) => (ip.parse().unwrap(), how != "idle"),
            None => (text.parse().unwrap(), true),
        });
        let chosen = choose(found, &routed, bound.parse().unwrap());
        assert_eq!(chosen.iter().map(|it| it.ip().to_string()).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn networks_come_first_and_what_needs_an_interface_is_left_out() {
        let found = ["127.0.0.1", "::1", "fe80::1", "169.254.0.7", "2001:db8::1", "10.1.2.3", "10.1.2.3"];
        check(&found, "[::]:7", &["10.1.2.3", "2001:db8::1", "127.0.0.1"]);
        check(&found, "0.0.0.0:7", &["10.1.2.3", "127.0.0.1"]);
    }

    #[test]
    fn the_default_route_comes_before_a_bridge_with_a_carrier() {
        let found = ["127.0.0.1", "10.88.0.1", "routed 10.120.3.4", "routed 2001:db8::1"];
        check(&found, "[::]:7", &["10.120.3.4", "2001:db8::1", "10.88.0.1", "127.0.0.1"]);
        check(&["10.88.0.1", "routed fe80::1"], "[::]:7", &["10.88.0.1"]);
    }

    #[test]
    fn of_too_many_the_loopback_goes_first_and_then_networks_without_a_carrier() {
        let bridges: Vec<String> = (0..20).map(|number| format!("idle 172.16.{number}.1")).collect();
        let mut found = vec!["127.0.0.1"];
        found.extend(bridges.iter().map(String::as_str));
        found.extend(["172.30.0.1", "2001:db8::1"]);
        let mut expected = vec!["172.30.0.1", "2001:db8::1"];
        expected.extend((0..14).map(|number| bridges[number].strip_prefix("idle ").unwrap()));
        check(&found, "[::]:7", &expected);
    }

    #[test]
    fn this_machine_has_its_loopback_address_at_least() {
        let found = find_addresses("[::]:7".parse().unwrap()).unwrap();
        assert!(found.contains(&"127.0.0.1:7".parse().unwrap()), "{found:?}");
    }
}
