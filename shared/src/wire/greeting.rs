//! The door of whoever is dialled: the frontend while agents report, and every agent.
//!
//! Anybody can dial. Who does not know the secret or says nothing costs one task for a few seconds and disturbs nobody else.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, UnixStream};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::LinkError;
use super::frame;
use super::limits::HANDSHAKE_DEADLINE;
use super::link::{Incoming, LinkReader, LinkWriter, Stream, accept_any};
use super::message::Dial;
use super::tcp::tune;
use crate::id::AppId;
use crate::secret::Secret;

/// How long who was refused is listened to, so that it reads why.
const REFUSAL_TIME: Duration = Duration::from_secs(1);
/// After a failed accept (too many open files, usually) others get a moment to close theirs.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The two halves of a link.
pub type Halves = (LinkReader, LinkWriter);

/// What is said to who is not wanted before the link is closed: a frame's body; none: the link itself carries the reason.
pub type BuildRefusal = fn(&str) -> Option<Vec<u8>>;

/// Begins every line that something on its way to be an agent of `app` says to whoever has brought it, among what else is printed there.
#[must_use]
pub fn build_mark(app: AppId) -> String {
    format!("gantry:{app}")
}

/// The key of the bridge of this number. It is asked before the dialler has proven anything.
pub type FindBridge = Arc<dyn Fn(u16) -> Option<Secret> + Send + Sync>;

/// A listener with those who have come to it and not yet said who they are.
pub struct Door {
    listener: TcpListener,
    passed: Option<UnboundedReceiver<UnixStream>>,
    app: AppId,
    secret: Secret,
    find_bridge: FindBridge,
    refusal: BuildRefusal,
    greetings: JoinSet<Option<(Halves, Dial)>>,
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Door")
            .field("listener", &self.listener)
            .field("app", &self.app)
            .finish_non_exhaustive()
    }
}

impl Door {
    /// A door for members of `app`, which know its secret.
    #[must_use]
    pub fn new(listener: TcpListener, app: AppId, secret: Secret, refusal: BuildRefusal) -> Self {
        let find_bridge: FindBridge = Arc::new(|_| None);
        Self { listener, passed: None, app, secret, find_bridge, refusal, greetings: JoinSet::new() }
    }

    /// A door at which bridges begin, too: who has the key of one comes as [`Dial::Bridge`], and as nothing else.
    #[must_use]
    pub fn with_bridges(mut self, find_bridge: FindBridge) -> Self {
        self.find_bridge = find_bridge;
        self
    }

    /// A door at which those come, too, who cannot dial: each over a stream that somebody else has made and passes on. They prove the secret as all others do.
    #[must_use]
    pub fn with_passed(mut self, passed: UnboundedReceiver<UnixStream>) -> Self {
        self.passed = Some(passed);
        self
    }

    /// The next who has proven the secret and said hello. At most `places` are in their handshake at once; others wait in the system's queue.
    ///
    /// Waits as long as nobody comes. Cancel safe.
    pub async fn next(&mut self, places: usize) -> (Halves, Dial) {
        loop {
            tokio::select! {
                accepted = self.listener.accept(), if self.greetings.len() < places => match accepted {
                    Ok((stream, _)) => {
                        if let Err(error) = tune(&stream) {
                            tracing::debug!(%error, "cannot tune a link");
                        }
                        self.greet(stream);
                    }
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept an agent");
                        sleep(ACCEPT_PAUSE).await;
                    }
                },
                Some(stream) = next_passed(&mut self.passed) => self.greet(stream),
                Some(greeted) = self.greetings.join_next() => {
                    if let Some(greeted) = greeted.ok().flatten() {
                        return greeted;
                    }
                }
            }
        }
    }

    fn greet(&mut self, stream: impl Stream) {
        let keys = (self.secret.clone(), Arc::clone(&self.find_bridge));
        self.greetings.spawn(greet(stream, self.app, keys, self.refusal));
    }

    /// Sends somebody away who has said hello, and lets it read why.
    pub fn refuse(&mut self, halves: Halves, reason: String) {
        let refusal = self.refusal;
        self.greetings.spawn(async move {
            refuse(halves, &reason, refusal).await;
            None
        });
    }
}

/// The next stream that is passed on, if any is.
async fn next_passed(passed: &mut Option<UnboundedReceiver<UnixStream>>) -> Option<UnixStream> {
    passed.as_mut()?.recv().await
}

/// Handshake and hello.
async fn greet(
    stream: impl Stream,
    app: AppId,
    (secret, find_bridge): (Secret, FindBridge),
    refusal: BuildRefusal,
) -> Option<(Halves, Dial)> {
    let deadline = Instant::now() + HANDSHAKE_DEADLINE;
    let accepted =
        accept_any(stream, &secret, app.as_str().as_bytes(), |number| find_bridge(number), deadline);
    let link = match accepted.await {
        Ok((link, 0)) => link,
        Ok((link, bridge)) => return Some((link.split(), Dial::Bridge { bridge })),
        Err(error) => {
            tracing::debug!(%error, "a dialler was turned away");
            return None;
        }
    };
    let (mut reader, writer) = link.split();
    match timeout_at(deadline, reader.next()).await {
        Ok(Ok(Some(Incoming::Frame(body)))) => match frame::decode(&body) {
            Ok(dial) => return Some(((reader, writer), dial)),
            Err(error) => refuse((reader, writer), &format!("not understood: {error}"), refusal).await,
        },
        Ok(Ok(Some(Incoming::Bulk(_) | Incoming::Credit(_)))) => {
            refuse((reader, writer), "bulk data before a hello", refusal).await;
        }
        Ok(Ok(None) | Err(_)) | Err(_) => tracing::debug!("a dialler said no hello"),
    }
    None
}

/// Sends somebody away, and lets it read why for a moment.
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
