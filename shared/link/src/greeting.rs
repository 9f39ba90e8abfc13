//! Accepts and authenticates incoming links: at the frontend while agents report, and at every agent.
//!
//! Every host can dial. The [`Gate`] decides which connections keep a place; one without the secret disturbs no
//! other.

use std::fmt;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;
use tokio::time::{timeout, timeout_at};

use super::door::admission::{Limits, Stage};
use super::door::{Arrival, Gate, Reason, Seat, Tally, TcpEar};
use super::link::{Incoming, LinkReader, LinkWriter, Stream};
use super::tcp::tune;
use super::{LinkError, handshake};
use gantry_shared::secret::Secret;
use gantry_shared::wire::frame;
use gantry_shared::wire::message::Dial;
use gantry_types::id::AppId;

/// How long the link of a refused peer stays open, so that the peer reads the reason.
const REFUSAL_TIME: Duration = Duration::from_secs(1);
/// Places at a door beside those for expected peers. Each takes a descriptor of a program that may be foreign.
pub const STRANGERS: usize = 64;

/// The two halves of a link.
pub type Halves = (LinkReader, LinkWriter);

/// Builds the refusal of an unwanted peer as a frame's body. None: the link itself carries the reason.
pub type BuildRefusal = fn(&str) -> Option<Vec<u8>>;

/// The prefix of every line that a program which becomes an agent of `app` prints for the program that started it.
#[must_use]
pub fn build_mark(app: AppId) -> String {
    format!("gantry:{app}")
}

/// A listener, with connections that have not completed their hello.
pub struct Door {
    gate: Gate<TcpEar>,
    passed: Option<UnboundedReceiver<UnixStream>>,
    terms: Terms,
    greetings: JoinSet<Option<(Halves, Dial)>>,
}

/// The terms for a dialler.
#[derive(Clone)]
struct Terms {
    app: AppId,
    secret: Secret,
    refusal: BuildRefusal,
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Door").field("gate", &self.gate).field("app", &self.terms.app).finish_non_exhaustive()
    }
}

impl Door {
    /// A door for members of `app`, which know its secret.
    #[must_use]
    pub fn new(listener: TcpListener, app: AppId, secret: Secret, refusal: BuildRefusal) -> Self {
        let gate = Gate::new(TcpEar::new(listener), Limits::with_places(STRANGERS));
        let terms = Terms { app, secret, refusal };
        Self { gate, passed: None, terms, greetings: JoinSet::new() }
    }

    /// A door for peers, too, that cannot dial: another process opens a stream for each and passes it on. They prove
    /// the secret like all others.
    #[must_use]
    pub fn with_passed(mut self, passed: UnboundedReceiver<UnixStream>) -> Self {
        self.passed = Some(passed);
        self
    }

    /// The door's statistics of unproven connections.
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.gate.tally()
    }

    /// The next peer that has proven the secret and sent its hello. Up to `expected` may come at once; beside them are
    /// [`STRANGERS`] places for others.
    ///
    /// Waits without a timeout. Cancel-safe.
    pub async fn next(&mut self, expected: usize) -> (Halves, Dial) {
        self.gate.set_places(expected.saturating_add(STRANGERS));
        loop {
            tokio::select! {
                biased;
                Some(greeted) = self.greetings.join_next() => {
                    if let Some(greeted) = greeted.ok().flatten() {
                        return greeted;
                    }
                }
                Some(stream) = next_passed(&mut self.passed) => {
                    let Arrival { stream, seat, .. } = self.gate.pass(stream);
                    let terms = self.terms.clone();
                    self.greetings.spawn(async move { terms.greet(stream, seat, |_| {}).await });
                }
                Arrival { stream, seat, eviction } = self.gate.next() => {
                    let terms = self.terms.clone();
                    self.greetings.spawn(async move {
                        let greeting = async {
                            if seat.hears(&stream).await { terms.greet(stream, seat, tune_link).await } else { None }
                        };
                        eviction.or(greeting).await.flatten()
                    });
                }
            }
        }
    }

    /// Refuses a peer after its hello, and lets it read the reason.
    pub fn refuse(&mut self, halves: Halves, reason: String) {
        let refusal = self.terms.refusal;
        self.greetings.spawn(async move {
            refuse(halves, &reason, refusal).await;
            None
        });
    }
}

/// The next passed-on stream, if there are any.
async fn next_passed(passed: &mut Option<UnboundedReceiver<UnixStream>>) -> Option<UnixStream> {
    passed.as_mut()?.recv().await
}

/// Sets the options of a connection that becomes a link. Unproven connections do not get that far.
fn tune_link(stream: &TcpStream) {
    if let Err(error) = tune(stream) {
        tracing::debug!(%error, "cannot tune a link");
    }
}

impl Terms {
    /// Handshake and hello. `prepare` is called once the peer's opening was valid.
    async fn greet<S: Stream>(self, mut stream: S, seat: Seat, prepare: fn(&S)) -> Option<(Halves, Dial)> {
        let (app, deadline) = (self.app.as_str().as_bytes(), seat.proof_by());
        let proven = match handshake::open(&mut stream, &self.secret, app, deadline).await {
            Ok(_) if !seat.reach(Stage::Opened) => return None,
            Ok(opening) => {
                prepare(&stream);
                opening.answer(&mut stream, deadline).await
            }
            Err(error) => Err(error),
        };
        let link = match proven {
            Ok(proven) => proven.into_link(stream),
            Err(error) => {
                tracing::debug!(%error, source = %seat.source(), "a connection was refused");
                seat.judge(judge(&error));
                handshake::refuse(stream, deadline, &error).await;
                return None;
            }
        };
        if !seat.reach(Stage::Proven) {
            return None;
        }
        let (mut reader, writer) = link.split();
        let reason = match timeout_at(deadline, reader.next()).await {
            Ok(Ok(Some(Incoming::Frame(body)))) => match frame::decode(&body) {
                Ok(dial) => return Some(((reader, writer), dial)),
                Err(error) => format!("protocol error: {error}"),
            },
            Ok(Ok(Some(Incoming::Bulk(_) | Incoming::Credit(_)))) => "bulk data before a hello".to_owned(),
            Ok(Ok(None) | Err(_)) | Err(_) => {
                tracing::debug!("a peer connected and sent no hello");
                return None;
            }
        };
        seat.judge(Reason::Refused);
        refuse((reader, writer), &reason, self.refusal).await;
        None
    }
}

/// The reason to count for a failed handshake.
fn judge(error: &LinkError) -> Reason {
    match error {
        LinkError::HandshakeFailed => Reason::WrongSecret,
        LinkError::Version { .. } => Reason::OtherVersion,
        LinkError::TimedOut { .. } => Reason::Unfinished,
        LinkError::Cut { .. } | LinkError::Refused { .. } | LinkError::Io { .. } => Reason::Left,
        _ => Reason::Garbage,
    }
}

/// Refuses a peer, and gives it a moment to read the reason.
pub async fn refuse((mut reader, mut writer): Halves, reason: &str, refusal: BuildRefusal) {
    tracing::warn!(reason, "a dialler was refused");
    let refused = async {
        match refusal(reason) {
            Some(body) => {
                writer.send_body(&body)?;
                writer.close().await?;
            }
            None => writer.refuse(reason).await?,
        }
        while reader.next().await?.is_some() {}
        Ok::<(), LinkError>(())
    };
    if !matches!(timeout(REFUSAL_TIME, refused).await, Ok(Ok(()))) {
        tracing::debug!("a refused dialler may not know why");
    }
}
