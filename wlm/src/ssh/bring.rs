//! Brings the agent to one host: connects, starts the agent, and sends its ticket.

use std::sync::Arc;
use std::time::Duration;

use gantry_types::error::{Failure, Kind};
use gantry_types::host_name::HostName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, timeout, timeout_at};

use super::agent_file::AgentFile;
use super::call::Call;
use super::client::Client;
use super::command::Reaching;
use super::connection::Connection;
use super::openssh::{Again, Missed, explain};
use super::script::{MAX_SAID_BYTES, Said, Wanted, build_script, parse_said};

/// The timeout for each step of a host after the login.
const STEP: Duration = Duration::from_secs(30);

/// How long to wait for a connection's last messages after the end of its output.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// The client's timeout is this much shorter than ours, so that its own message about a timeout comes first.
const SLACK: Duration = Duration::from_secs(1);

/// The size of one write. The host has [`STEP`] to take each.
const CHUNK_BYTES: usize = 256 * 1024;

/// The delivery for one host.
#[derive(Debug)]
pub(super) struct Delivery<'a> {
    pub(super) host: &'a HostName,
    pub(super) mark: &'a str,
    pub(super) client: Arc<Client>,
    pub(super) reaching: &'a Reaching,
    pub(super) agent: &'a AgentFile,
    pub(super) errand: &'a [String],
    pub(super) ticket: &'a [u8],
    /// The deadline for the login.
    pub(super) connected_until: Instant,
}

/// Makes one connection and starts the agent with its ticket. On failure the connection is dropped, and the files on
/// the host are removed.
///
/// # Errors
/// The reason, and whether a retry is useful.
pub(super) async fn bring(delivery: &Delivery<'_>) -> Result<Connection, Missed> {
    let never = |failure| Missed { failure, again: Again::Never };
    let call = Call::new(delivery.host, delivery.reaching);
    let opened = Connection::open(Arc::clone(&delivery.client), &call).await;
    let opened = opened.map_err(|e| {
        let message = format!("cannot run {}: {e}", delivery.client.program().display());
        never(Failure::new(Kind::NotFound, message).with_hint("install the OpenSSH client"))
    })?;
    let mut dialogue = Dialogue { connection: opened, said: Vec::new(), delivery };
    match dialogue.run().await {
        Ok(()) => {
            dialogue.connection.unread = dialogue.said;
            Ok(dialogue.connection)
        }
        Err(Ended::Told(failure)) => Err(never(failure)),
        Err(Ended::Closed) => {
            let words = timeout(LAST_WORDS, dialogue.connection.all_said()).await;
            let words = words.unwrap_or_else(|_| dialogue.connection.words());
            if words.authenticated {
                return Err(never(dialogue.closed_early(&words.last_lines())));
            }
            Err(explain(delivery.host, &words))
        }
    }
}

enum Ended {
    /// The reason is known.
    Told(Failure),
    /// The connection was closed.
    Closed,
}

struct Dialogue<'a> {
    connection: Connection,
    /// Received bytes that are not parsed yet.
    said: Vec<u8>,
    delivery: &'a Delivery<'a>,
}

impl Dialogue<'_> {
    async fn run(&mut self) -> Result<(), Ended> {
        let Delivery { mark, agent, errand, ticket, .. } = *self.delivery;
        let wanted =
            Wanted { mark, path: &agent.path, identity: &agent.identity, bytes: agent.bytes, errand };
        // It waits in the socket until the host reads it.
        self.write(&build_script(&wanted)).await?;
        match self.first_word().await? {
            Said::Have => {}
            Said::Need(place) => {
                tracing::debug!(host = %self.delivery.host, place, "sending the agent");
                let content = agent.content().await.map_err(|e| {
                    Ended::Told(Failure::new(
                        Kind::NotFound,
                        format!("cannot read {}: {e}", agent.path.display()),
                    ))
                })?;
                // A host with a full disk reports that and stops reading. Its message counts, not the write error.
                let written = self.write(content).await;
                match (self.next_word(Instant::now() + STEP).await, written) {
                    (Ok(Said::Got), Ok(())) => {}
                    (Ok(other), _) => return Err(Ended::Told(refused(&other))),
                    (Err(Missing::Closed), _) => return Err(Ended::Closed),
                    (Err(Missing::Late), _) => {
                        return Err(Ended::Told(late("it did not accept the agent")));
                    }
                }
            }
            other => return Err(Ended::Told(refused(&other))),
        }
        self.write(ticket).await
    }

    /// The host's first message. It needs a connection and a login shell.
    async fn first_word(&mut self) -> Result<Said, Ended> {
        let until = self.delivery.connected_until;
        match self.next_word(until + SLACK).await {
            Ok(said) => return Ok(said),
            Err(Missing::Closed) => return Err(Ended::Closed),
            Err(Missing::Late) if !self.connection.words().authenticated => {
                let after = self.delivery.reaching.connect.as_secs_f32();
                let words = self.connection.words().last_lines();
                let words = if words.is_empty() { words } else { format!(": {words}") };
                let failure = Failure::new(Kind::TimedOut, format!("no connection within {after} s{words}"));
                return Err(Ended::Told(
                    failure.with_hint("see that the host is up; --connect-timeout gives it more time"),
                ));
            }
            Err(Missing::Late) => {}
        }
        match self.next_word(Instant::now() + STEP).await {
            Ok(said) => Ok(said),
            Err(Missing::Closed) => Err(Ended::Closed),
            Err(Missing::Late) => {
                Err(Ended::Told(late("it has let you in, but your login shell there has not begun anything")))
            }
        }
    }

    async fn next_word(&mut self, until: Instant) -> Result<Said, Missing> {
        loop {
            if let Some((said, used)) = parse_said(&self.said, self.delivery.mark) {
                self.said.drain(..used);
                return Ok(said);
            }
            if self.said.len() > MAX_SAID_BYTES {
                // Keep the latest bytes; no real banner is that long.
                self.said.drain(..MAX_SAID_BYTES / 2);
            }
            let mut bytes = [0; 4096];
            match timeout_at(until, self.connection.stream.read(&mut bytes)).await {
                Err(_late) => return Err(Missing::Late),
                Ok(Ok(0) | Err(_)) => return Err(Missing::Closed),
                Ok(Ok(read)) => self.said.extend(&bytes[..read]),
            }
        }
    }

    /// Writes in chunks. Each has its own timeout.
    async fn write(&mut self, bytes: &[u8]) -> Result<(), Ended> {
        for chunk in bytes.chunks(CHUNK_BYTES) {
            match timeout(STEP.max(self.left()), self.connection.stream.write_all(chunk)).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return Err(Ended::Closed),
                Err(_) => return Err(Ended::Told(late("it accepts nothing"))),
            }
        }
        Ok(())
    }

    fn left(&self) -> Duration {
        self.delivery.connected_until.saturating_duration_since(Instant::now())
    }

    /// Explains a connection that ended before the agent was started.
    fn closed_early(&self, words: &str) -> Failure {
        let printed = String::from_utf8_lossy(&self.said);
        let last: Vec<&str> = printed.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let printed = last.iter().rev().take(3).rev().copied().collect::<Vec<_>>().join("; ");
        let why = [words.trim(), &printed].into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>();
        let message = match why.is_empty() {
            true => "your login shell there ended without a message".to_owned(),
            false => format!("your login shell there ended: {}", why.join("; ")),
        };
        let hint = format!("try: ssh -T {} exec /bin/sh -c true", self.delivery.host);
        Failure::new(Kind::LauncherFailed, message).with_hint(hint)
    }
}

enum Missing {
    Late,
    Closed,
}

fn late(what: &str) -> Failure {
    Failure::new(Kind::TimedOut, format!("{what} within {} s", STEP.as_secs()))
}

fn refused(said: &Said) -> Failure {
    match said {
        Said::No(reason) => Failure::new(Kind::NoAccess, reason.clone())
            .with_hint("set TMPDIR there to a place that is yours, has room, and is not mounted noexec"),
        other => Failure::new(Kind::Protocol, format!("the host sent {other:?} out of order")),
    }
}
