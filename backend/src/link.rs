//! The connection to the agent: one question, one answer, each with a deadline.

use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gantry_shared::wire::backend::{Ask, Tell};
use gantry_shared::wire::frame::{FrameError, decode, encode, read_frame};
use nix::errno::Errno;
use nix::sys::socket::sockopt::{PeerCredentials, SendTimeout};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, connect, getsockopt, send, setsockopt, socket,
};
use nix::sys::time::TimeVal;
use nix::unistd::geteuid;
use serde::de::DeserializeOwned;

use crate::Error;
use crate::dialogue::Patience;
use crate::socket_path::SocketPath;

/// A connection on which every answer belongs to the last question. It is dropped after the first error.
#[derive(Debug)]
pub(crate) struct Link {
    stream: UnixStream,
}

impl Link {
    /// Connects to the agent and checks that our own user runs it.
    pub(crate) fn connect(path: &Path, timeout: Duration) -> Result<Self, Error> {
        let patience = Patience::new("connect to this node's agent", timeout);
        let stream = open_own(|until| open(path, until), patience, || path.to_owned())?;
        Ok(Self { stream })
    }

    /// Sends a request and waits for the answer. After an error, or a refusal, which is also an error, the link is
    /// closed.
    pub(crate) fn exchange(&self, ask: &Ask, phase: &'static str, timeout: Duration) -> Result<Tell, Error> {
        let patience = Patience::new(phase, timeout);
        let frame = encode(ask).map_err(Error::protocol)?;
        let written = Timed { stream: &self.stream, until: patience.until }.write_all(&frame);
        // A refusing agent closes at once: then writing fails, but the reason can still be read.
        let answer = match (read_answer(&self.stream, patience), written) {
            (Err(Error::Lost(_) | Error::TimedOut { .. }), Err(error)) => return Err(patience.failed(error)),
            (answer, _) => answer?,
        };
        match answer {
            Tell::Refused(failure) => Err(Error::Refused(failure)),
            answer => Ok(answer),
        }
    }

    /// The stream, for another protocol. Call this between two exchanges.
    pub(crate) fn into_stream(self) -> UnixStream {
        self.stream
    }
}

/// Reads an answer. After an error the stream must be dropped.
pub(crate) fn read_answer<T: DeserializeOwned>(stream: &UnixStream, patience: Patience) -> Result<T, Error> {
    match read_frame(&mut Timed { stream, until: patience.until }) {
        Ok(Some(body)) => decode(&body).map_err(Error::protocol),
        Ok(None) | Err(FrameError::Cut) => Err(Error::Lost(None)),
        Err(FrameError::Io(error)) => Err(patience.failed(error)),
        Err(error) => Err(Error::protocol(error)),
    }
}

/// Connects by `open` to an agent, and checks that our own user runs it. `socket` is its address for users.
pub(crate) fn open_own(
    open: impl FnOnce(Instant) -> io::Result<UnixStream>,
    patience: Patience,
    socket: impl Fn() -> PathBuf,
) -> Result<UnixStream, Error> {
    let opened = open(patience.until).and_then(|stream| Ok((find_owner(&stream)?, stream)));
    match opened {
        Ok(((found, expected), stream)) if found == expected => Ok(stream),
        Ok(((found, expected), _)) => Err(Error::ForeignAgent { socket: socket(), found, expected }),
        Err(error) if error.kind() == io::ErrorKind::TimedOut => Err(patience.is_over()),
        Err(source) => Err(Error::Unreachable { socket: socket(), source }),
    }
}

/// The user of the listener, and our own. The kernel recorded who called listen(2); that cannot be forged.
fn find_owner(stream: &UnixStream) -> io::Result<(u32, u32)> {
    Ok((getsockopt(stream, PeerCredentials)?.uid(), geteuid().as_raw()))
}

fn open(path: &Path, until: Instant) -> io::Result<UnixStream> {
    let short = SocketPath::new(path)?;
    open_address(&UnixAddr::new(short.as_path())?, until)
}

/// Connects until `until`, and times out then.
pub(crate) fn open_address(address: &UnixAddr, until: Instant) -> io::Result<UnixStream> {
    let fd: OwnedFd = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    loop {
        // While the agent's queue is full, connect(2) blocks. The timeout for sending limits that.
        let left = i64::try_from(time_left(until)?.as_micros()).unwrap_or(i64::MAX);
        setsockopt(&fd, SendTimeout, &TimeVal::new(left / 1_000_000, left % 1_000_000))?;
        match connect(fd.as_raw_fd(), address) {
            Ok(()) => return Ok(UnixStream::from(fd)),
            Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) => return Err(io::ErrorKind::TimedOut.into()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Connects to a socket in the abstract namespace whose listener is this user's process.
///
/// # Errors
/// There is no listener by then, or it belongs to another user. The name may be another user's, so the caller must
/// not trust it before this check.
pub fn connect_abstract(name: &str, until: Instant) -> io::Result<UnixStream> {
    let stream = open_address(&UnixAddr::new_abstract(name.as_bytes())?, until)?;
    let (found, expected) = find_owner(&stream)?;
    if found != expected {
        let why = format!("the socket @{name} belongs to user {found}, not to {expected}");
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    Ok(stream)
}

fn time_left(until: Instant) -> io::Result<Duration> {
    match until.saturating_duration_since(Instant::now()) {
        left if left < Duration::from_micros(1) => Err(io::ErrorKind::TimedOut.into()),
        left => Ok(left),
    }
}

/// A stream with one deadline for all its reads and writes together.
pub(crate) struct Timed<'a> {
    pub(crate) stream: &'a UnixStream,
    pub(crate) until: Instant,
}

fn timed_out(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock { io::ErrorKind::TimedOut.into() } else { error }
}

impl Read for Timed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(time_left(self.until)?))?;
        self.stream.read(buffer).map_err(timed_out)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(time_left(self.until)?))?;
        // Without the flag, a vanished agent would kill a daemon that is not a Rust program, by SIGPIPE.
        send(self.stream.as_raw_fd(), bytes, MsgFlags::MSG_NOSIGNAL).map_err(|error| timed_out(error.into()))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener};
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    use nix::sys::socket::{Backlog, bind, listen};

    use super::*;

    fn name(of: &str) -> String {
        format!("gantry-test-{of}-{}", std::process::id())
    }

    #[test]
    fn the_longest_timeout_of_a_caller_is_taken() {
        let error = Link::connect(Path::new("/nowhere"), Duration::MAX).unwrap_err();
        assert!(
            matches!(error, Error::Unreachable { source, .. } if source.kind() == io::ErrorKind::NotFound)
        );
    }

    #[test]
    fn a_listener_of_our_own_is_reached_and_one_that_takes_nothing_is_given_up() {
        let soon = || Instant::now() + Duration::from_millis(100);
        let name = name("busy");
        assert_eq!(connect_abstract(&name, soon()).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        let busy: OwnedFd =
            socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).unwrap();
        bind(busy.as_raw_fd(), &UnixAddr::new_abstract(name.as_bytes()).unwrap()).unwrap();
        listen(&busy, Backlog::new(0).unwrap()).unwrap();
        // The listener accepts no connection: its queue is full after a few.
        let queued: Vec<_> = (0..64).map_while(|_| connect_abstract(&name, soon()).ok()).collect();
        assert!(!queued.is_empty() && queued.len() < 64, "{}", queued.len());
        assert_eq!(connect_abstract(&name, soon()).unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    /// Another user's process has the name: it is detected before a byte is sent.
    #[test]
    fn a_listener_of_another_user_is_refused() {
        const SQUATTER: &str = "squatter-of-";
        if let Some(name) = std::env::args().find_map(|arg| Some(arg.strip_prefix(SQUATTER)?.to_owned())) {
            let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
            println!("listens");
            let (mut stream, _) = listener.accept().unwrap();
            assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0, "it was told something");
            return;
        }
        if !geteuid().is_root() {
            return crate::skip::skip("only root can start another user's process");
        }
        let name = name("foreign");
        #[expect(clippy::disallowed_methods, reason = "a test starts itself again")]
        let mut command = Command::new("/proc/self/exe");
        let test = "link::tests::a_listener_of_another_user_is_refused";
        command.args(["--exact", test, &format!("{SQUATTER}{name}"), "--nocapture"]).current_dir("/");
        let mut squatter = command.uid(65533).gid(65533).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        let mut stdout = squatter.stdout.take().unwrap();
        while !said.contains("listens") {
            let mut bytes = [0; 256];
            let read = stdout.read(&mut bytes).unwrap();
            assert_ne!(read, 0, "{said}");
            said.push_str(&String::from_utf8_lossy(&bytes[..read]));
        }
        let error = connect_abstract(&name, Instant::now() + Duration::from_secs(10)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        assert!(error.to_string().contains("belongs to user 65533"), "{error}");
        stdout.read_to_string(&mut said).unwrap();
        assert!(squatter.wait().unwrap().success(), "{said}");
    }
}
