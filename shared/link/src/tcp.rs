//! TCP options of links.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// The length of the system's queue of connections, up to `net.core.somaxconn`. A client that finds it full retries
/// after a whole second.
const BACKLOG: u32 = 4096;

/// Keep-alive: after this much silence, a probe at this interval, up to this many.
const KEEP_ALIVE: (Duration, Duration, u32) = (Duration::from_secs(20), Duration::from_secs(5), 4);

/// Sends small frames at once, and notices a vanished host: after 40 s a link to it is cut.
///
/// # Errors
/// The system refuses an option; the stream works without it.
pub fn tune(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (idle, interval, count) = KEEP_ALIVE;
    let keep_alive = TcpKeepalive::new().with_time(idle).with_interval(interval).with_retries(count);
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&keep_alive)?;
    // Keep-alive does not probe while data is unacknowledged.
    socket.set_tcp_user_timeout(Some(idle + interval * count))
}

/// Listens there, with a long queue. Must be called within a tokio runtime.
///
/// # Errors
/// The address is not available.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}
