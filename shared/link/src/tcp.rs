//! TCP as links want it.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// Connections that wait in the system's queue, as far as `net.core.somaxconn` allows. One that finds it full tries again after a whole second.
const BACKLOG: u32 = 4096;

/// A peer whose host has said nothing for this long is asked, and asked again at this interval, so many times.
const KEEP_ALIVE: (Duration, Duration, u32) = (Duration::from_secs(20), Duration::from_secs(5), 4);

/// Has small frames leave at once, and a host that vanished noticed: after 40 s a link to it is cut.
///
/// # Errors
/// The system does not take an option; the stream works without.
pub fn tune(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (idle, interval, count) = KEEP_ALIVE;
    let keep_alive = TcpKeepalive::new().with_time(idle).with_interval(interval).with_retries(count);
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&keep_alive)?;
    // Keep-alive does not look at a peer that owes an acknowledgement.
    socket.set_tcp_user_timeout(Some(idle + interval * count))
}

/// Listens there, with a long queue. Must be called within a tokio runtime.
///
/// # Errors
/// The address cannot be had.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}
