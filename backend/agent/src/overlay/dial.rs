//! Reaching a peer that has several addresses, some of which lead nowhere.
//!
//! The addresses race. A refused address is tried again, since the peer may only be about to listen.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use gantry_link::LinkError;
use gantry_link::handshake::connect;
use gantry_link::limits::HANDSHAKE_DEADLINE;
use gantry_link::link::{Link, LinkReader, LinkWriter};
use gantry_link::tcp::tune;
use gantry_shared::secret::Secret;
use gantry_shared::wire::message::Dial;
use gantry_types::id::AppId;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::join_error::JoinError;

/// The head start of each address over the next one (RFC 8305 asks for 100 ms at least).
const STAGGER: Duration = Duration::from_millis(100);
/// The first pause before a retry. Later pauses are longer.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// The longest pause after a cut link. The peer listens then, and only asks this side to make way for a moment.
const LONGEST_PAUSE_AFTER_CUT: Duration = Duration::from_millis(200);

/// The app and the secret that a dial proves.
#[derive(Debug, Clone, Copy)]
pub(super) struct Caller<'a> {
    pub(super) app: AppId,
    pub(super) secret: &'a Secret,
}

/// Sends the first message, which says who dials. Returns the halves of the link.
pub(super) async fn say(link: Link, hello: &Dial) -> Result<(LinkReader, LinkWriter), JoinError> {
    let (reader, mut writer) = link.split();
    writer.send(hello)?;
    writer.flush().await?;
    Ok((reader, writer))
}

/// Dials all `addresses`. Returns the first link that succeeds, and the local address of that link.
///
/// Retries until `deadline`. A peer that answers and refuses this agent is not asked again.
pub(super) async fn dial(
    addresses: &[SocketAddr],
    caller: Caller<'_>,
    deadline: Instant,
) -> Result<(Link, IpAddr), JoinError> {
    dial_telling(addresses, caller, deadline, &Arc::default()).await
}

/// As [`dial`]. Notifies `answered` at the first TCP connection; the handshake may take longer.
pub(super) async fn dial_telling(
    addresses: &[SocketAddr],
    caller: Caller<'_>,
    deadline: Instant,
    answered: &Arc<Notify>,
) -> Result<(Link, IpAddr), JoinError> {
    let begun = Instant::now();
    let mut attempts = JoinSet::new();
    for (address, stagger) in addresses.iter().copied().zip(0_u32..) {
        let (app, secret, answered) = (caller.app, caller.secret.clone(), Arc::clone(answered));
        attempts.spawn(async move {
            // A timer rounds up to its next tick of a millisecond, so a stagger of zero must not wait at all.
            if stagger > 0 {
                sleep_until(begun + STAGGER * stagger).await;
            }
            (address, keep_trying(address, Caller { app, secret: &secret }, deadline, &answered).await)
        });
    }
    let mut reasons = Vec::new();
    while let Some(attempt) = attempts.join_next().await {
        match attempt {
            Ok((_, Ok(reached))) => return Ok(reached),
            Ok((address, Err(error))) => reasons.push(format!("{address}: {error}")),
            Err(error) => reasons.push(error.to_string()),
        }
    }
    Err(JoinError::Unreachable { reasons })
}

async fn keep_trying(
    address: SocketAddr,
    caller: Caller<'_>,
    deadline: Instant,
    answered: &Notify,
) -> Result<(Link, IpAddr), String> {
    let mut pause = FIRST_PAUSE;
    let mut before = None;
    loop {
        let (error, longest) = match attempt(address, caller, deadline, answered).await {
            Ok(reached) => return Ok(reached),
            // A timeout says less than the error before it.
            Err(Missed::Connect(error)) if error.kind() == std::io::ErrorKind::TimedOut => {
                (before.unwrap_or_else(|| error.to_string()), LONGEST_PAUSE)
            }
            // Nothing listens there yet, or no longer.
            Err(Missed::Connect(error)) => (error.to_string(), LONGEST_PAUSE),
            Err(Missed::Link(error)) if error.is_cut() => (error.to_string(), LONGEST_PAUSE_AFTER_CUT),
            Err(Missed::Link(error)) => return Err(error.to_string()),
        };
        let pause_now = jitter(pause.min(longest), address);
        if deadline.saturating_duration_since(Instant::now()) <= pause_now {
            return Err(error);
        }
        before = Some(error);
        sleep(pause_now).await;
        pause = (pause * 2).min(longest);
    }
}

enum Missed {
    Connect(std::io::Error),
    Link(LinkError),
}

async fn attempt(
    address: SocketAddr,
    caller: Caller<'_>,
    deadline: Instant,
    answered: &Notify,
) -> Result<(Link, IpAddr), Missed> {
    let connected = timeout_at(deadline, TcpStream::connect(address)).await;
    let stream =
        connected.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into())).map_err(Missed::Connect)?;
    answered.notify_one();
    tune(&stream).ok();
    let ours = stream.local_addr().map_err(Missed::Connect)?.ip();
    // A thousand agents at once may keep the peer busy, so a handshake may end after the deadline.
    let until = deadline.max(Instant::now() + HANDSHAKE_DEADLINE);
    let link = connect(stream, caller.secret, caller.app.as_str().as_bytes(), until).await;
    Ok((link.map_err(Missed::Link)?, ours))
}

/// A random time between half of `pause` and all of it, so that agents refused together do not retry together.
fn jitter(pause: Duration, address: SocketAddr) -> Duration {
    use std::hash::{BuildHasher, RandomState};
    // The standard library's hash keys are random.
    let part = RandomState::new().hash_one(address) % 512;
    pause / 2 + pause * u32::try_from(part).unwrap_or(0) / 1024
}
