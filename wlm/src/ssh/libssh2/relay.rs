//! Relays the command's input and output in one loop that waits for all descriptors. Data is forwarded as soon as the
//! receiver has room.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use ssh2::{BlockDirections, Channel, Session};

use crate::{End, FAILED, Way};

/// After this much silence the host gets a keep-alive request.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The host is lost after this many unanswered requests.
const UNANSWERED: u32 = 4;

/// The buffer size in each direction.
const BUFFER_BYTES: usize = 64 * 1024;

/// A buffer of bytes that were received and not sent yet.
#[derive(Debug)]
struct Pipe {
    bytes: Vec<u8>,
    from: usize,
    to: usize,
    /// No more input will arrive.
    ended: bool,
    /// The receiver has gone, so further bytes are dropped.
    broken: bool,
}

impl Pipe {
    fn new() -> Self {
        Self { bytes: vec![0; BUFFER_BYTES], from: 0, to: 0, ended: false, broken: false }
    }

    fn is_empty(&self) -> bool {
        self.from == self.to
    }

    /// Reads available bytes, if there is room, and returns their number. None: it would block.
    fn fill(&mut self, source: &mut dyn Read) -> io::Result<Option<usize>> {
        if self.ended || !self.is_empty() {
            return Ok(None);
        }
        let read = tried(source.read(&mut self.bytes))?;
        (self.from, self.to) = (0, read.unwrap_or(0));
        Ok(read)
    }

    /// Writes available bytes. Returns whether some were written.
    fn drain(&mut self, sink: &mut dyn Write) -> io::Result<bool> {
        if self.is_empty() {
            return Ok(false);
        }
        let written = tried(sink.write(&self.bytes[self.from..self.to]))?.unwrap_or(0);
        self.from += written;
        Ok(written > 0)
    }

    /// As [`Pipe::drain`], but a receiver that has gone is not an error.
    fn drain_or_drop(&mut self, sink: &mut dyn Write) -> bool {
        if self.broken {
            self.from = self.to;
        }
        self.drain(sink).unwrap_or_else(|_| {
            self.broken = true;
            self.from = self.to;
            true
        })
    }
}

/// The result. None: it would block.
fn tried<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(done) => Ok(Some(done)),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Relays everything until the command has ended; returns its exit status.
///
/// # Errors
/// The connection ended before.
pub(crate) fn relay(session: &Session, channel: Channel, socket: BorrowedFd<'_>, host: &str) -> Way<u8> {
    let lost = |_: io::Error| End::Failed(vec![format!("Connection to {host} closed by remote host.")]);
    let (stdin, stdout, stderr) = (io::stdin(), io::stdout(), io::stderr());
    let ends = [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()];
    let flags = ends.map(|end| without_waiting(end).ok());
    session.set_blocking(false);
    let mut relay = Relay::new(session, channel, ends);
    let ended = relay.run(socket).map_err(lost);
    for (end, flags) in ends.into_iter().zip(flags) {
        if let Some(flags) = flags {
            // Other processes may share this terminal.
            fcntl(end, FcntlArg::F_SETFL(flags)).unwrap_or_default();
        }
    }
    match ended? {
        Some(code) => Ok(code),
        None => Err(End::Failed(vec![format!("Timeout, server {host} not responding.")])),
    }
}

/// Makes a descriptor non-blocking; returns its previous flags.
fn without_waiting(end: BorrowedFd<'_>) -> nix::Result<OFlag> {
    let flags = OFlag::from_bits_retain(fcntl(end, FcntlArg::F_GETFL)?);
    fcntl(end, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    Ok(flags)
}

struct Relay<'a> {
    session: &'a Session,
    channel: Channel,
    ends: [BorrowedFd<'a>; 3],
    input: Pipe,
    output: Pipe,
    errors: Pipe,
    /// The host knows that the input has ended.
    told_end: bool,
    heard: Instant,
}

impl<'a> Relay<'a> {
    fn new(session: &'a Session, channel: Channel, ends: [BorrowedFd<'a>; 3]) -> Self {
        let (input, output, errors) = (Pipe::new(), Pipe::new(), Pipe::new());
        Self { session, channel, ends, input, output, errors, told_end: false, heard: Instant::now() }
    }

    /// Returns the command's exit status. `None`: the host is silent.
    fn run(&mut self, socket: BorrowedFd<'_>) -> io::Result<Option<u8>> {
        self.session.set_keepalive(true, u32::try_from(KEEP_ALIVE.as_secs()).unwrap_or(15));
        loop {
            while self.pass_on()? {}
            if let Some(code) = self.code()? {
                return Ok(Some(code));
            }
            let next = tried(self.session.keepalive_send().map_err(io::Error::from))?;
            if self.heard.elapsed() > KEEP_ALIVE * (UNANSWERED + 1) {
                return Ok(None);
            }
            let pause = next.map_or(KEEP_ALIVE, |seconds| Duration::from_secs(u64::from(seconds.max(1))));
            self.wait(socket, pause)?;
        }
    }

    /// Moves data once in each direction. Returns whether any data moved.
    fn pass_on(&mut self) -> io::Result<bool> {
        // Zero bytes do not mean the end: the channel reports its end separately.
        let mut moved = self.output.fill(&mut self.channel)?.is_some_and(|read| read > 0);
        moved |= self.errors.fill(&mut self.channel.stderr())?.is_some_and(|read| read > 0);
        moved |= self.output.drain_or_drop(&mut Local(self.ends[1]));
        moved |= self.errors.drain_or_drop(&mut Local(self.ends[2]));
        // An input that cannot be read counts as ended.
        let read = self.input.fill(&mut Local(self.ends[0])).unwrap_or(Some(0));
        self.input.ended |= read == Some(0);
        moved |= read.is_some();
        // An ended command takes no more input. Its earlier output may still arrive, and reading shows whether the
        // connection is alive.
        moved |= self.input.drain_or_drop(&mut self.channel);
        if self.input.ended && self.input.is_empty() && !self.told_end {
            self.told_end = tried(self.channel.send_eof().map_err(io::Error::from))?.is_some();
        }
        Ok(moved)
    }

    /// The exit status, once the command has ended and all its output is written.
    fn code(&mut self) -> io::Result<Option<u8>> {
        if !self.channel.eof() || !self.output.is_empty() || !self.errors.is_empty() {
            return Ok(None);
        }
        if tried(self.channel.wait_close().map_err(io::Error::from))?.is_none() {
            return Ok(None);
        }
        let signal = self.channel.exit_signal().ok().and_then(|signal| signal.exit_signal);
        let status = self.channel.exit_status().unwrap_or(i32::from(FAILED));
        Ok(Some(match signal {
            Some(_) => FAILED,
            None => u8::try_from(status & 0xff).unwrap_or(FAILED),
        }))
    }

    /// Waits until data can move.
    fn wait(&mut self, socket: BorrowedFd<'_>, at_most: Duration) -> io::Result<()> {
        let out = match self.session.block_directions() {
            BlockDirections::Outbound | BlockDirections::Both => PollFlags::POLLOUT,
            _ => PollFlags::empty(),
        };
        let [stdin, stdout, stderr] = self.ends;
        let mut polled = vec![PollFd::new(socket, PollFlags::POLLIN | out)];
        if self.input.is_empty() && !self.input.ended {
            polled.push(PollFd::new(stdin, PollFlags::POLLIN));
        }
        for (pipe, end) in [(&self.output, stdout), (&self.errors, stderr)] {
            if !pipe.is_empty() {
                polled.push(PollFd::new(end, PollFlags::POLLOUT));
            }
        }
        let timeout = PollTimeout::try_from(at_most).unwrap_or(PollTimeout::MAX);
        match poll(&mut polled, timeout) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let spoke = polled.first().and_then(PollFd::revents);
        if spoke.is_some_and(|events| events.contains(PollFlags::POLLIN)) {
            self.heard = Instant::now();
        }
        Ok(())
    }
}

/// One of this process's own descriptors, without a buffer.
struct Local<'a>(BorrowedFd<'a>);

impl Read for Local<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        Ok(nix::unistd::read(self.0, bytes)?)
    }
}

impl Write for Local<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(nix::unistd::write(self.0, bytes)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
