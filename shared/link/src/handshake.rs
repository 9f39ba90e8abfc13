//! The start of a link: proves program, version and the app's secret.
//!
//! 1. Preambles of both sides, in clear: magic, version, two zero bytes. A foreign program or another
//!    version gets a refusal, and the link is closed.
//! 2. Noise `NNpsk0` with the app's secret, over a prologue of both preambles and the app's id. So neither can
//!    have been altered on the way. The dialler's last message confirms that it has the keys. Without it, a replayed
//!    first message would look like a peer until a timeout.
//!
//! The dialler's *opening* is its preamble and its first Noise message together: it need not wait for the acceptor's
//! preamble. So an honest peer shows with its first bytes that it belongs here. The acceptor checks them by hashes
//! and one cipher alone. A peer without the secret cannot make it compute a key exchange; only a replayed opening
//! can.
//!
//! The handshake proves that the peer *belongs to the app*, not which node it is. Its hello says that; only holders
//! of the secret can lie in it.

use std::fmt;
use std::time::Duration;

use snow::{HandshakeState, StatelessTransportState};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, timeout_at};

use super::error::{LinkError, Phase};
use super::link::{Link, Stream};
use super::primitives::{PATTERN, Primitives, TAG_BYTES};
use super::record::{HEADER_BYTES, Kind, Meaning};
use super::record::{build_header, build_reason, parse_header, parse_reason};
use gantry_shared::secret::Secret;
use gantry_shared::wire::message::PROTOCOL_VERSION;

const MAGIC: [u8; 4] = *b"gtry";
const PREAMBLE_BYTES: usize = 8;
/// A public key and the seal of an empty payload.
const HANDSHAKE_BYTES: usize = 32 + TAG_BYTES;
/// How long the link of a refused peer stays open, so that it can read the reason.
const DRAIN_TIME: Duration = Duration::from_secs(1);
const DRAIN_BYTES: u64 = 16 * 1024;

/// Makes a link as the dialling side. `app` is the app's id.
///
/// Waits until the peer has answered or `timeout` has passed
/// ([`HANDSHAKE_DEADLINE`](crate::limits::HANDSHAKE_DEADLINE) from now is the usual one). The stream is closed on any
/// error, and when the future is dropped.
///
/// # Errors
/// [`LinkError::TimedOut`] and [`LinkError::Cut`] with the phase; [`LinkError::Version`], [`LinkError::Refused`] (an
/// acceptor with another secret or app says so), [`LinkError::HandshakeFailed`], [`LinkError::Malformed`] where the
/// peer is not gantry, [`LinkError::Io`].
pub async fn connect<S: Stream>(
    stream: S,
    secret: &Secret,
    app: &[u8],
    deadline: Instant,
) -> Result<Link, LinkError> {
    connect_as(PROTOCOL_VERSION, stream, secret, app, deadline).await
}

/// Makes a link as the accepting side. `app` is the app's id.
///
/// Waits as [`connect`] does. After a failure it waits up to a second more, within `timeout`, so that the peer reads
/// the reason: accept each stream in a task of its own. A returned link proves that the peer is there and has the
/// secret.
///
/// # Errors
/// As [`connect`].
pub async fn accept<S: Stream>(
    stream: S,
    secret: &Secret,
    app: &[u8],
    deadline: Instant,
) -> Result<Link, LinkError> {
    accept_as(PROTOCOL_VERSION, stream, secret, app, deadline).await
}

pub(super) async fn connect_as<S: Stream>(
    version: u16,
    mut stream: S,
    secret: &Secret,
    app: &[u8],
    deadline: Instant,
) -> Result<Link, LinkError> {
    let preamble = build_preamble(version);
    let mut noise = build_noise(secret, &[&preamble, &preamble, app].concat(), true)?;
    let opening = [&preamble[..], &build_noise_record(&mut noise)?].concat();
    let greeted = within(deadline, Phase::Preamble, async {
        write_all(&mut stream, Phase::Preamble, &opening).await?;
        let said = read_preamble(&mut stream).await?;
        check_preamble(version, &said)?;
        // Other bytes have no meaning, and would make the proof fail.
        if said == preamble { Ok(()) } else { Err(LinkError::HandshakeFailed) }
    });
    greeted.await?;
    match within(deadline, Phase::Handshake, confirm(&mut stream, noise)).await {
        Ok(noise) => Ok(Link::new(stream, noise, 1, 0)),
        Err(error) => {
            refuse(stream, deadline, &error).await;
            Err(error)
        }
    }
}

pub(super) async fn accept_as<S: Stream>(
    version: u16,
    mut stream: S,
    secret: &Secret,
    app: &[u8],
    deadline: Instant,
) -> Result<Link, LinkError> {
    let proof = match open_as(version, &mut stream, secret, app, deadline).await {
        Ok(opening) => opening.answer(&mut stream, deadline).await,
        Err(error) => Err(error),
    };
    match proof {
        Ok(proven) => Ok(proven.into_link(stream)),
        Err(error) => {
            refuse(stream, deadline, &error).await;
            Err(error)
        }
    }
}

/// The first half of [`accept`]: reads the dialler's opening and checks it, without a key exchange. After an error,
/// pass the stream to [`refuse`].
///
/// # Errors
/// As [`accept`].
pub async fn open<S: Stream>(
    stream: &mut S,
    secret: &Secret,
    app: &[u8],
    deadline: Instant,
) -> Result<Opening, LinkError> {
    open_as(PROTOCOL_VERSION, stream, secret, app, deadline).await
}

async fn open_as<S: Stream>(
    version: u16,
    stream: &mut S,
    secret: &Secret,
    app: &[u8],
    deadline: Instant,
) -> Result<Opening, LinkError> {
    let ours = build_preamble(version);
    let theirs = within(deadline, Phase::Preamble, read_preamble(stream)).await?;
    let opened = within(deadline, Phase::Handshake, async {
        check_preamble(version, &theirs)?;
        let mut noise = build_noise(secret, &[&theirs[..], &ours, app].concat(), false)?;
        read_noise(stream, &mut noise).await?;
        Ok(Opening { ours, noise })
    });
    let opened = opened.await;
    if opened.as_ref().is_err_and(|error| find_refusal(error).is_some()) {
        // The refusal follows it.
        within(deadline, Phase::Preamble, write_all(stream, Phase::Preamble, &ours)).await?;
    }
    opened
}

/// An opening that was made with the secret; possibly a replay.
pub struct Opening {
    ours: [u8; PREAMBLE_BYTES],
    noise: HandshakeState,
}

impl fmt::Debug for Opening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opening").finish_non_exhaustive()
    }
}

impl Opening {
    /// The second half of [`accept`]: the key exchange, and the peer's confirmation. After an error, pass the stream to
    /// [`refuse`].
    ///
    /// # Errors
    /// As [`accept`].
    pub async fn answer<S: Stream>(self, stream: &mut S, deadline: Instant) -> Result<Proven, LinkError> {
        let Self { ours, mut noise } = self;
        within(deadline, Phase::Handshake, async {
            let answer = [&ours[..], &build_noise_record(&mut noise)?].concat();
            write_all(stream, Phase::Handshake, &answer).await?;
            let noise = noise.into_stateless_transport_mode().map_err(|_| LinkError::HandshakeFailed)?;
            let sealed = read_record(stream, 1 + TAG_BYTES).await?;
            let mut plain = [0; 1];
            noise.read_message(0, &sealed, &mut plain).map_err(|_| LinkError::HandshakeFailed)?;
            let confirmed = plain == [Meaning::Confirm.code()];
            if confirmed { Ok(Proven { noise }) } else { Err(LinkError::HandshakeFailed) }
        })
        .await
    }
}

/// A peer that has the secret.
pub struct Proven {
    noise: StatelessTransportState,
}

impl fmt::Debug for Proven {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proven").finish_non_exhaustive()
    }
}

impl Proven {
    /// The link, as [`accept`] gives it.
    #[must_use]
    pub fn into_link<S: Stream>(self, stream: S) -> Link {
        Link::new(stream, self.noise, 0, 1)
    }
}

/// The rest of the dialler's part of the proof. The confirmation takes nonce 0 of its direction.
async fn confirm<S: Stream>(
    stream: &mut S,
    mut noise: HandshakeState,
) -> Result<StatelessTransportState, LinkError> {
    read_noise(stream, &mut noise).await?;
    let noise = noise.into_stateless_transport_mode().map_err(|_| LinkError::HandshakeFailed)?;
    let mut sealed = [0; 1 + TAG_BYTES];
    let length = noise.write_message(0, &[Meaning::Confirm.code()], &mut sealed);
    let length = length.map_err(|_| LinkError::HandshakeFailed)?;
    write_record(stream, Kind::Handshake, &sealed[..length]).await?;
    Ok(noise)
}

fn build_noise(secret: &Secret, prologue: &[u8], dials: bool) -> Result<HandshakeState, LinkError> {
    let build = || {
        let builder = snow::Builder::with_resolver(PATTERN.parse()?, Box::new(Primitives));
        let builder = builder.psk(0, secret.expose())?.prologue(prologue)?;
        if dials { builder.build_initiator() } else { builder.build_responder() }
    };
    build().map_err(|_: snow::Error| LinkError::HandshakeFailed)
}

fn build_noise_record(noise: &mut HandshakeState) -> Result<Vec<u8>, LinkError> {
    let mut message = [0; HANDSHAKE_BYTES];
    let length = noise.write_message(&[], &mut message).map_err(|_| LinkError::HandshakeFailed)?;
    Ok([&build_header(Kind::Handshake, length)?[..], &message[..length]].concat())
}

async fn read_noise<S: Stream>(stream: &mut S, noise: &mut HandshakeState) -> Result<(), LinkError> {
    let message = read_record(stream, HANDSHAKE_BYTES).await?;
    noise.read_message(&message, &mut []).map_err(|_| LinkError::HandshakeFailed)?;
    Ok(())
}

async fn write_record<S: Stream>(stream: &mut S, kind: Kind, body: &[u8]) -> Result<(), LinkError> {
    let record = [&build_header(kind, body.len())?[..], body].concat();
    write_all(stream, Phase::Handshake, &record).await
}

/// The body of the next record: a handshake message of this length or a refusal. Reads nothing beyond its end.
async fn read_record<S: Stream>(stream: &mut S, length: usize) -> Result<Vec<u8>, LinkError> {
    let phase = Phase::Handshake;
    let mut header = [0; HEADER_BYTES];
    read_exact(stream, phase, &mut header).await?;
    match parse_header(header, phase)? {
        (Kind::Handshake, claimed) if claimed == length => {
            let mut body = vec![0; length];
            read_exact(stream, phase, &mut body).await?;
            Ok(body)
        }
        (Kind::Refusal, claimed) => {
            let mut body = vec![0; claimed];
            read_exact(stream, phase, &mut body).await?;
            Err(LinkError::Refused { phase, reason: parse_reason(&body) })
        }
        _ => Err(LinkError::Malformed { phase, what: "a record does not belong in the handshake" }),
    }
}

fn build_preamble(version: u16) -> [u8; PREAMBLE_BYTES] {
    let [high, low] = version.to_be_bytes();
    let [a, b, c, d] = MAGIC;
    [a, b, c, d, high, low, 0, 0]
}

async fn read_preamble<S: Stream>(stream: &mut S) -> Result<[u8; PREAMBLE_BYTES], LinkError> {
    let mut preamble = [0; PREAMBLE_BYTES];
    read_exact(stream, Phase::Preamble, &mut preamble).await?;
    Ok(preamble)
}

fn check_preamble(ours: u16, preamble: &[u8; PREAMBLE_BYTES]) -> Result<(), LinkError> {
    let [a, b, c, d, high, low, ..] = *preamble;
    let theirs = u16::from_be_bytes([high, low]);
    if [a, b, c, d] != MAGIC {
        return Err(LinkError::Malformed { phase: Phase::Preamble, what: "it is not gantry" });
    }
    if theirs == ours { Ok(()) } else { Err(LinkError::Version { ours, theirs }) }
}

/// Sends the peer the reason, if it is still there, and closes.
///
/// If a stream is dropped while bytes of the peer are unread, TCP resets it, and unacknowledged data is not sent
/// again. So this reads for a moment, until the peer has closed, too.
pub async fn refuse<S: Stream>(mut stream: S, deadline: Instant, error: &LinkError) {
    let Some(reason) = find_refusal(error) else { return };
    let tell = async {
        write_record(&mut stream, Kind::Refusal, build_reason(&reason)).await?;
        stream.shutdown().await.map_err(|error| LinkError::io(Phase::Handshake, error))?;
        let mut rest = stream.take(DRAIN_BYTES);
        tokio::io::copy(&mut rest, &mut tokio::io::sink())
            .await
            .map_err(|error| LinkError::io(Phase::Handshake, error))
    };
    let told = timeout_at(deadline.min(Instant::now() + DRAIN_TIME), tell).await;
    tracing::debug!(%error, told = matches!(told, Ok(Ok(_))), "refused a link");
}

/// The text for the peer about an error. None: it is gone, is slow, or has refused itself.
fn find_refusal(error: &LinkError) -> Option<String> {
    match error {
        LinkError::Version { ours, theirs } => Some(format!("this is protocol version {ours}, not {theirs}")),
        LinkError::HandshakeFailed => Some("another secret or another app".to_owned()),
        LinkError::Malformed { what, .. } => Some(format!("protocol error: {what}")),
        LinkError::Oversized { what, limit } => Some(format!("a {what} has {limit} bytes at most")),
        _ => None,
    }
}

async fn within<T>(
    deadline: Instant,
    phase: Phase,
    work: impl Future<Output = Result<T, LinkError>>,
) -> Result<T, LinkError> {
    timeout_at(deadline, work).await.unwrap_or(Err(LinkError::TimedOut { phase }))
}

async fn read_exact<S: Stream>(stream: &mut S, phase: Phase, into: &mut [u8]) -> Result<(), LinkError> {
    stream.read_exact(into).await.map(drop).map_err(|error| LinkError::io(phase, error))
}

async fn write_all<S: Stream>(stream: &mut S, phase: Phase, bytes: &[u8]) -> Result<(), LinkError> {
    stream.write_all(bytes).await.map_err(|error| LinkError::io(phase, error))?;
    stream.flush().await.map_err(|error| LinkError::io(phase, error))
}

#[cfg(test)]
mod tests;
