//! Reaches all hosts, with a limited number of concurrent connections. Each host has its own timeout. A failed host
//! does not stop the others, and all failures are reported.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use gantry_shared::deadline::bounded;
use gantry_types::error::{Failure, Kind};
use gantry_types::host_name::HostName;
use gantry_types::launch::HostsPolicy;
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::agent_file::AgentFile;
use super::bring::{Delivery, bring};
use super::client::Client;
use super::command::Reaching;
use super::connection::Connection;
use super::openssh::{Again, Missed};
use super::script::{MAX_SAID_BYTES, Said, parse_said};
use crate::launch::Reports;
use crate::{Error, Result};

/// The first pause before a retry. Later ones are longer.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// How long to wait for an agent's last messages after the end of its output.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// The shared settings of all hosts.
#[derive(Debug)]
pub(super) struct FanOut {
    /// The prefix of every line that a host sends to this side.
    pub(super) mark: String,
    /// The client.
    pub(super) client: Arc<Client>,
    /// How to reach hosts.
    pub(super) reaching: Reaching,
    /// The agent on this machine.
    pub(super) agent: AgentFile,
    /// The agent's arguments.
    pub(super) errand: Vec<String>,
    /// The deadline for all hosts, if the caller has one.
    pub(super) until: Option<Instant>,
    /// How many hosts must be reached.
    pub(super) policy: HostsPolicy,
    /// Gets the ends of agents.
    pub(super) watch: Reports<(String, Failure)>,
    /// Gets the links of agents that cannot dial.
    pub(super) links: Reports<UnixStream>,
}

/// Starts the agent on every host, each with its ticket. On success the connections are detached: each lasts as long as
/// its agent, and nothing depends on it any more. Returns the hosts without an agent, if the policy allows some.
///
/// # Errors
/// [`Error::Hosts`] with every host without an agent, and the reason. Agents of other hosts have been told to end.
pub(super) async fn start_all(
    common: FanOut,
    hosts: Vec<(HostName, Vec<u8>)>,
) -> Result<Vec<(String, Failure)>> {
    let of = hosts.len();
    let names: Vec<String> = hosts.iter().map(|(host, _)| host.to_string()).collect();
    let window = Arc::new(Semaphore::new(common.reaching.window as usize));
    let common = Arc::new(common);
    let connected = Arc::new(AtomicUsize::new(0));
    let mut starting = JoinSet::new();
    for (index, (host, ticket)) in hosts.into_iter().enumerate() {
        let (common, window, connected) = (Arc::clone(&common), Arc::clone(&window), Arc::clone(&connected));
        starting.spawn(async move {
            let started = start_one(&common, &host, &ticket, &window).await;
            if started.is_ok() {
                let so_far = connected.fetch_add(1, Ordering::Relaxed) + 1;
                tracing::info!("connected {so_far}/{of}");
            }
            (index, started)
        });
    }
    let mut outcomes: Vec<Option<std::result::Result<Connection, Failure>>> =
        names.iter().map(|_| None).collect();
    let all = async {
        while let Some(joined) = starting.join_next().await {
            if let Ok((index, started)) = joined
                && let Some(slot) = outcomes.get_mut(index)
            {
                *slot = Some(started);
            }
        }
    };
    match common.until {
        // Late hosts have no outcome.
        Some(until) => drop(timeout_at(until, all).await),
        None => all.await,
    }
    drop(starting);
    let mut there = Vec::new();
    let mut missing = Vec::new();
    for (name, outcome) in names.into_iter().zip(outcomes) {
        match outcome {
            Some(Ok(connection)) => there.push((name, connection)),
            Some(Err(failure)) => missing.push((name, failure)),
            None => missing.push((
                name,
                Failure::new(Kind::TimedOut, "was not reached before the launch's time was up"),
            )),
        }
    }
    if !common.policy.allows(of, missing.len()) {
        return Err(Error::Hosts { of, missing });
    }
    for (host, mut connection) in there {
        connection.let_go();
        tokio::spawn(look_after(host, connection, Arc::clone(&common)));
    }
    Ok(missing)
}

/// As [`start_all`], for one host whose agent needs no ticket. Dropping the connection ends the agent.
pub(super) async fn reach_one(common: &FanOut, host: &HostName) -> std::result::Result<Connection, Failure> {
    start_one(common, host, &[], &Semaphore::new(1)).await
}

/// Retries until the start succeeds or a retry is useless.
async fn start_one(
    common: &FanOut,
    host: &HostName,
    ticket: &[u8],
    window: &Semaphore,
) -> std::result::Result<Connection, Failure> {
    let mut pause = FIRST_PAUSE;
    let mut tries = 0;
    let mut until = None;
    loop {
        // The semaphore is never closed.
        let turn = window.acquire().await;
        // The timeout begins with the first turn: waiting for a turn does not count.
        let connected_until = *until.get_or_insert_with(|| Instant::now() + bounded(common.reaching.connect));
        let delivery = Delivery {
            host,
            mark: &common.mark,
            client: Arc::clone(&common.client),
            reaching: &common.reaching,
            agent: &common.agent,
            errand: &common.errand,
            ticket,
            connected_until,
        };
        let Missed { failure, again } = match bring(&delivery).await {
            Ok(connection) => return Ok(connection),
            Err(missed) => missed,
        };
        drop(turn);
        tries += 1;
        let pause_now = jitter(pause, host);
        let in_time = connected_until.saturating_duration_since(Instant::now()) > pause_now;
        match again {
            Again::Often if in_time => {}
            Again::Twice if in_time && tries < 3 => {}
            _ => {
                tracing::info!(%host, tries, reason = failure.message(), "no agent");
                return Err(failure);
            }
        }
        tracing::info!(%host, tries, reason = failure.message(), "is tried again");
        sleep(pause_now).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Waits until the agent ends or asks for its link, while the caller is interested.
async fn look_after(host: String, mut connection: Connection, common: Arc<FanOut>) {
    if asks_for_link(&mut connection.stream, &common.mark).await {
        tracing::info!(host, "has its link over ssh");
        return common.links.tell(connection.into_stream());
    }
    let words = timeout(LAST_WORDS, connection.all_said()).await;
    let words = words.unwrap_or_else(|_| connection.words()).last_lines();
    let message = match words.is_empty() {
        true => "the agent ended, or the connection to it".to_owned(),
        false => words,
    };
    common.watch.tell((host, Failure::new(Kind::LauncherFailed, message)));
}

/// Whether the agent asks for its link before its end. Reads no byte of the link.
async fn asks_for_link(stream: &mut UnixStream, mark: &str) -> bool {
    let mut line = Vec::new();
    // The agent's message is short and comes once.
    while let Ok(byte) = stream.read_u8().await {
        line.push(byte);
        if byte == b'\n' {
            if parse_said(&line, mark).is_some_and(|(said, _)| said == Said::Link) {
                return true;
            }
            line.clear();
        } else if line.len() > MAX_SAID_BYTES {
            line.clear();
        }
    }
    false
}

/// A random pause between half of `pause` and all of it, so that hosts refused together do not retry together.
fn jitter(pause: Duration, host: &str) -> Duration {
    // The standard library's hash keys are random.
    let part = RandomState::new().hash_one(host) % 512;
    pause / 2 + pause * u32::try_from(part).unwrap_or(0) / 1024
}
