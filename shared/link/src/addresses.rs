//! The addresses at which this machine can be dialled.

use std::io;
use std::net::{IpAddr, SocketAddr};

use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use nix::sys::socket::SockaddrStorage;

/// Most addresses that peers are told.
const MAX_ADDRESSES: usize = 16;

/// Every address at which peers can dial a listener that listens on all of them. Addresses of networks come first.
///
/// Agents try the addresses side by side, and take the first that answers. Neither side looks up a name.
///
/// # Errors
/// The system does not list its interfaces.
pub fn find_addresses(bound: SocketAddr) -> io::Result<Vec<SocketAddr>> {
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

/// Rank of an address, lowest first. `None`: it cannot be dialled from elsewhere, or only with the name of an
/// interface.
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
