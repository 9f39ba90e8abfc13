//! Finds the user of this machine at the other end of a TCP connection.
//!
//! The kernel's socket diagnostics (sock_diag(7)) answer for one connection in a few microseconds, for any user,
//! without a scan of all connections as in `/proc/net/tcp`. If they are not available, or the peer is in another
//! network namespace, the answer is none.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr};

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UnixStream;

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const REQUEST: u16 = 1;
const HEADER_BYTES: usize = 16;
const ESTABLISHED: u8 = 1;
const ANY_COOKIE: [u8; 8] = [0xff; 8];
/// Offsets in the answer: state and user.
const STATE_AT: usize = HEADER_BYTES + 1;
const USER_AT: usize = HEADER_BYTES + 4 + 48 + 12;

/// Queries the kernel about connections.
#[derive(Debug)]
pub(super) struct PeerUsers {
    socket: Socket,
    asked: u32,
}

impl PeerUsers {
    /// # Errors
    /// The kernel has no socket diagnostics.
    pub(super) fn new() -> io::Result<Self> {
        let protocol = Protocol::from(libc::NETLINK_SOCK_DIAG);
        let socket = Socket::new(Domain::from(libc::AF_NETLINK), Type::RAW, Some(protocol))?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, asked: 0 })
    }

    /// The user at `peer` of the connection to `ours`, if both are on this machine.
    pub(super) fn find(&mut self, peer: SocketAddr, ours: SocketAddr) -> Option<u32> {
        if !is_local(peer, ours) {
            return None;
        }
        self.asked = self.asked.wrapping_add(1);
        self.socket.write_all(&build_request(peer, ours, self.asked)).ok()?;
        let mut answer = [0; 1024];
        loop {
            // The kernel answers before `send` returns.
            let length = self.socket.read(&mut answer).ok()?;
            let answer = answer.get(..length)?;
            if read_u32(answer, 8)? == self.asked {
                return parse_answer(answer);
            }
        }
    }
}

/// The user of this process.
pub(super) fn find_own_user() -> Option<u32> {
    let (one, _other) = UnixStream::pair().ok()?;
    Some(one.peer_cred().ok()?.uid())
}

fn is_local(peer: SocketAddr, ours: SocketAddr) -> bool {
    let peer = peer.ip().to_canonical();
    peer.is_loopback() || peer == ours.ip().to_canonical()
}

/// `struct nlmsghdr` and `struct inet_diag_req_v2` for the socket at the other end: its source is the peer.
fn build_request(peer: SocketAddr, ours: SocketAddr, number: u32) -> Vec<u8> {
    let family = match peer.ip().to_canonical() {
        IpAddr::V4(_) => libc::AF_INET,
        IpAddr::V6(_) => libc::AF_INET6,
    };
    let mut body =
        vec![u8::try_from(family).unwrap_or(0), u8::try_from(libc::IPPROTO_TCP).unwrap_or(0), 0, 0];
    body.extend(u32::MAX.to_ne_bytes());
    body.extend(peer.port().to_be_bytes());
    body.extend(ours.port().to_be_bytes());
    for ip in [peer.ip(), ours.ip()] {
        body.extend(match ip.to_canonical() {
            IpAddr::V4(ip) => {
                let [a, b, c, d] = ip.octets();
                [a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
            }
            IpAddr::V6(ip) => ip.octets(),
        });
    }
    body.extend(0_u32.to_ne_bytes());
    body.extend(ANY_COOKIE);
    let length = u32::try_from(HEADER_BYTES + body.len()).unwrap_or(0);
    let mut message = Vec::with_capacity(HEADER_BYTES + body.len());
    message.extend(length.to_ne_bytes());
    message.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    message.extend(REQUEST.to_ne_bytes());
    message.extend(number.to_ne_bytes());
    message.extend(0_u32.to_ne_bytes());
    message.extend(body);
    message
}

/// The user of an established connection. A closing one belongs to no process any more, and the kernel reports root.
fn parse_answer(answer: &[u8]) -> Option<u32> {
    let [low, high] = *answer.get(4..6)?.first_chunk()?;
    if u16::from_ne_bytes([low, high]) != SOCK_DIAG_BY_FAMILY || *answer.get(STATE_AT)? != ESTABLISHED {
        return None;
    }
    read_u32(answer, USER_AT)
}

fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    #[tokio::test]
    async fn the_kernel_names_the_user_of_a_connection_of_this_machine() {
        let own = find_own_user().unwrap();
        for (listen, dial) in [("127.0.0.1:0", "127.0.0.1"), ("[::]:0", "127.0.0.1"), ("[::]:0", "::1")] {
            let Ok(listener) = TcpListener::bind(listen).await else { continue };
            let port = listener.local_addr().unwrap().port();
            let Ok(dialled) = TcpStream::connect((dial, port)).await else { continue };
            let (stream, peer) = listener.accept().await.unwrap();
            let ours = stream.local_addr().unwrap();
            let mut users = PeerUsers::new().unwrap();
            assert_eq!(users.find(peer, ours), Some(own), "{listen} {dial}");
            drop(dialled);
            assert_ne!(users.find(peer, ours), Some(own), "{listen} {dial}: it is closed");
        }
    }

    #[test]
    fn only_connections_of_this_machine_are_asked_about() {
        let check = |peer: &str, ours: &str, expected| {
            assert_eq!(is_local(peer.parse().unwrap(), ours.parse().unwrap()), expected, "{peer} {ours}");
        };
        check("127.0.0.1:5", "127.0.0.1:6", true);
        check("10.0.0.1:5", "10.0.0.1:6", true);
        check("[::ffff:10.0.0.1]:5", "10.0.0.1:6", true);
        check("10.0.0.2:5", "10.0.0.1:6", false);
    }

    #[test]
    fn malformed_answers_name_no_user() {
        for answer in [&[][..], &[0; 20], &[0xff; 200]] {
            assert_eq!(parse_answer(answer), None);
        }
    }
}
