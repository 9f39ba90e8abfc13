//! Queries live frontends about their apps, and sends them requests.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::time::Duration;

use gantry_types::error::{Failure, Kind};
use gantry_types::filter::Filter;
use gantry_types::id::{AppId, DaemonId, Pid};
use gantry_types::rank_set::RankSet;
use gantry_types::signal::Signal;
use serde::de::{DeserializeOwned, IgnoredAny};
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::task::JoinSet;
use tokio::time;

use super::line::{self, Lines};
use super::protocol::{
    Answer, Ask, DaemonNumber, DaemonOrder, Hex, MAX_ANSWER_BYTES, MissingAnswer, ReducedAnswer, Request,
};
use super::registry::{Registry, Shelf};
use crate::channel::{Member, Missing, Reduced};
use crate::error::{Error, Result};
use crate::event::{Event, Exit};
use crate::info::AppInfo;
use crate::procgroup::GroupFacts;

/// How much longer the client waits than the frontend may take.
const ANSWER_SLACK: Duration = Duration::from_secs(5);

/// How many frontends are queried at a time.
const AT_A_TIME: usize = 64;

/// The content of the runtime directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Listing {
    /// The apps, in order of their ids.
    pub apps: Vec<AppInfo>,
    /// Apps whose frontend exists and did not answer: it is stopped, overloaded, or of another version.
    pub silent: Vec<AppId>,
}

/// All live apps of the user, of any tool. Each frontend may take until the timeout expires.
///
/// # Errors
/// The runtime directory cannot be read.
pub async fn list(registry: &Registry, timeout: Duration) -> Result<Listing> {
    registry.sweep_ended();
    let asked = ask_all(registry, Shelf::Live, &Ask::Info, "asking for the app", timeout).await?;
    let (mut apps, mut silent): (Vec<AppInfo>, _) = asked;
    apps.sort_by_key(|info| info.app);
    silent.sort_unstable();
    Ok(Listing { apps, silent })
}

/// Asks the processes that serve the apps on a shelf. Returns their answers, and the apps that are there without an
/// answer.
pub(super) async fn ask_all<T: DeserializeOwned + Send + 'static>(
    registry: &Registry,
    shelf: Shelf,
    ask: &Ask,
    phase: &'static str,
    timeout: Duration,
) -> Result<(Vec<T>, Vec<AppId>)> {
    let (mut answers, mut silent) = (Vec::new(), Vec::new());
    for some in registry.apps(shelf)?.chunks(AT_A_TIME) {
        let mut asked = JoinSet::new();
        for app in some.iter().copied() {
            let (registry, ask) = (registry.clone(), ask.clone());
            asked.spawn(async move {
                let asking =
                    async { Client::connect_to(&registry, app, shelf).await?.ask(ask, phase, timeout).await };
                let answer = time::timeout(timeout, asking).await;
                (app, answer.unwrap_or_else(|_| Err(late(phase, timeout, app))))
            });
        }
        while let Some(answered) = asked.join_next().await {
            match answered {
                Ok((_, Ok(answer))) => answers.push(answer),
                Ok((_, Err(Error::UnknownApp { .. } | Error::Lost { .. }))) => {}
                Ok((app, Err(error))) => {
                    tracing::warn!(%app, %error, "its frontend gives no answer");
                    silent.push(app);
                }
                Err(error) => return Err(Error::Protocol(error.to_string())),
            }
        }
    }
    Ok((answers, silent))
}

/// Parses `pid:1234`. `None`: the name is an id, or the beginning of one.
fn parse_owner(name: &str) -> Result<Option<Pid>> {
    let Some(text) = name.strip_prefix("pid:") else { return Ok(None) };
    let pid = text.parse().ok().and_then(Pid::new).ok_or_else(|| Error::Invalid {
        message: format!("'{text}' is no process id"),
        hint: Some("write 'pid:' and the process id of the command that owns the app".to_owned()),
    });
    pid.map(Some)
}

/// The parent of a process. Source: proc(5), `/proc/pid/stat`.
fn parent_of(pid: Pid) -> Option<Pid> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok().and_then(Pid::new)
}

/// Chooses the app that `name` refers to among those found.
fn pick(name: Option<&str>, found: &[AppId]) -> Result<AppId> {
    match (found, name) {
        ([app], _) => Ok(*app),
        ([], name) => {
            let which = name.map(|name| format!(" '{name}'")).unwrap_or_default();
            let failure = Failure::new(Kind::NotFound, format!("no app{which} of yours runs here"));
            Err(Error::Node {
                hosts: Vec::new(),
                failure: failure.with_hint("'gantry ps' lists the apps that run"),
            })
        }
        (several, name) => {
            let ids = several.iter().map(AppId::to_string).collect::<Vec<_>>().join(", ");
            let count = several.len();
            Err(Error::Invalid {
                message: match name {
                    Some(name) => format!("'{name}' can mean {count} apps: {ids}"),
                    None => format!("no app is named, and {count} of yours run: {ids}"),
                },
                hint: Some("name one of them".to_owned()),
            })
        }
    }
}

/// A connection to the frontend of an app.
#[derive(Debug)]
pub struct Client {
    app: AppId,
    lines: Lines<OwnedReadHalf>,
    to: OwnedWriteHalf,
    /// What has to be written before a later request: the rest of one that was given up.
    unsent: VecDeque<u8>,
    /// How many requests have no answer yet. An answer that is late comes before those of later requests.
    owed: u64,
}

impl Client {
    /// Connects to the frontend of an app. Does not wait for its first answer.
    ///
    /// # Errors
    /// [`Error::UnknownApp`] when no frontend serves the app.
    pub async fn connect(registry: &Registry, app: AppId) -> Result<Self> {
        Self::connect_to(registry, app, Shelf::Live).await
    }

    /// As [`Client::connect`], for the process that serves the app on that shelf.
    pub(crate) async fn connect_to(registry: &Registry, app: AppId, shelf: Shelf) -> Result<Self> {
        Ok(Self::new(app, registry.connect(app, shelf).await?))
    }

    /// Connects to the live app with the id `name`, or its beginning. `pid:1234` names the app that process 1234 owns,
    /// or a child of it. Without a name: to the only live app.
    ///
    /// # Errors
    /// No app matches, or more than one does.
    pub async fn find(registry: &Registry, name: Option<&str>) -> Result<Self> {
        let wanted = name.unwrap_or("").to_ascii_lowercase();
        let owner = parse_owner(&wanted)?;
        let mut found = Vec::new();
        for app in registry.apps(Shelf::Live)? {
            if (owner.is_some() || app.as_str().starts_with(&wanted))
                && let Ok(client) = Self::connect(registry, app).await
                && owner.is_none_or(|owner| client.is_of(owner))
            {
                found.push(client);
            }
        }
        let ids: Vec<AppId> = found.iter().map(Self::app).collect();
        let app = pick(name, &ids)?;
        // The connection that showed the app to live is kept: the app may end before another one is made.
        found.into_iter().find(|client| client.app == app).ok_or(Error::UnknownApp { app })
    }

    fn new(app: AppId, stream: UnixStream) -> Self {
        let (from, to) = stream.into_split();
        Self { app, lines: Lines::new(from, MAX_ANSWER_BYTES), to, unsent: VecDeque::new(), owed: 0 }
    }

    /// Whether that process serves the app, or is the parent of the one that does.
    fn is_of(&self, owner: Pid) -> bool {
        let served = self.to.as_ref().peer_cred().ok().and_then(|peer| peer.pid()).and_then(Pid::new);
        served.is_some_and(|served| served == owner || parent_of(served) == Some(owner))
    }

    /// The app.
    pub fn app(&self) -> AppId {
        self.app
    }

    /// The state of the app.
    ///
    /// # Errors
    /// No answer within the timeout, or the frontend is gone. All requests can fail this way.
    pub async fn info(&mut self, timeout: Duration) -> Result<AppInfo> {
        self.ask(Ask::Info, "asking for the app", timeout).await
    }

    /// The state of the app as a process group.
    ///
    /// # Errors
    /// See [`Client::info`].
    pub async fn group(&mut self, timeout: Duration) -> Result<GroupFacts> {
        self.ask(Ask::Group, "asking for the group", timeout).await
    }

    /// Forgets a group that has ended and whose record is kept.
    ///
    /// # Errors
    /// It has not ended.
    pub async fn forget(&mut self, timeout: Duration) -> Result<()> {
        self.ask(Ask::Forget, "forgetting the group", timeout).await
    }

    /// Releases held ranks. Returns when they are released.
    ///
    /// # Errors
    /// The app is not held.
    pub async fn release(&mut self, timeout: Duration) -> Result<()> {
        self.ask(Ask::Release, "releasing the app", timeout).await
    }

    /// Sends a signal to ranks. None: to all. Returns when it is delivered.
    ///
    /// # Errors
    /// The ranks are not there, or are held and the signal is not SIGKILL.
    pub async fn signal(&mut self, signal: Signal, ranks: Option<&RankSet>, timeout: Duration) -> Result<()> {
        self.ask(Ask::Signal { signal, ranks: ranks.cloned() }, "sending a signal", timeout).await
    }

    /// Ends all ranks by SIGKILL. Returns when they have ended.
    ///
    /// # Errors
    /// They have not ended within the timeout.
    pub async fn kill(&mut self, timeout: Duration) -> Result<Exit> {
        self.ask(Ask::Kill, "killing the app", timeout).await
    }

    /// Waits until the app is gone, with its daemons and sessions: its frontend then closes the connection.
    ///
    /// # Errors
    /// It is not gone within the timeout.
    pub async fn gone(mut self, timeout: Duration) -> Result<()> {
        let closed = async { while let Ok(Some(_)) = self.lines.next().await {} };
        time::timeout(timeout, closed)
            .await
            .map_err(|_| late("waiting for the app to end", timeout, self.app))
    }

    /// Waits for the app's end, without a timeout.
    ///
    /// # Errors
    /// [`Error::Gone`] when its tool detached from it; [`Error::Lost`] when its frontend ends before it.
    pub async fn wait(self) -> Result<Exit> {
        self.wait_with_news(|_| {}).await
    }

    /// As [`Client::wait`]. `news` gets each [`Event::OutputLost`] of the app.
    ///
    /// # Errors
    /// As [`Client::wait`].
    pub async fn wait_with_news(mut self, mut news: impl FnMut(Event)) -> Result<Exit> {
        self.ask::<()>(Ask::Wait, "waiting", super::protocol::DEFAULT_PATIENCE).await?;
        let app = self.app;
        let mut events = RemoteEvents { app, client: self };
        while let Some(event) = events.next().await {
            match event? {
                Event::Exited(exit) => return Ok(exit),
                Event::Detached { .. } => return Err(Error::Gone { what: format!("the tool of app {app}") }),
                event @ Event::OutputLost { .. } => news(event),
                _ => {}
            }
        }
        Err(lost(app))
    }

    /// Follows the app: first its current state, then every event, until it is gone.
    ///
    /// # Errors
    /// See [`Client::info`].
    pub async fn events(mut self, timeout: Duration) -> Result<RemoteEvents> {
        self.ask::<()>(Ask::Events, "asking for events", timeout).await?;
        Ok(RemoteEvents { app: self.app, client: self })
    }

    /// Starts a tool daemon in a session of its own. Returns, when it runs, its number, the names of the nodes that were
    /// left out, and its events. Dropping these, or the future, ends a daemon whose output is forwarded. `news` gets
    /// earlier events: with [`DaemonOrder::progress`], the progress of its files.
    ///
    /// # Errors
    /// It cannot be started; then it runs nowhere.
    pub async fn daemon(
        mut self,
        order: DaemonOrder,
        timeout: Duration,
        news: impl FnMut(Event),
    ) -> Result<(DaemonId, Vec<String>, RemoteEvents)> {
        let number: DaemonNumber =
            self.ask_with_news(Ask::Daemon(order), "starting a daemon", timeout, news).await?;
        Ok((number.daemon, number.left_out, RemoteEvents { app: self.app, client: self }))
    }

    /// Starts a tool daemon in a session of its own, and opens its channel. Returns when it runs. Dropping the channel
    /// ends the daemon. Its output is dropped.
    ///
    /// # Errors
    /// It cannot be started; then it runs nowhere.
    pub async fn channel(mut self, order: DaemonOrder, timeout: Duration) -> Result<RemoteChannel> {
        let number: DaemonNumber = self.ask(Ask::Channel(order), "starting a daemon", timeout).await?;
        Ok(RemoteChannel { daemon: number.daemon, left_out: number.left_out, client: self })
    }

    async fn ask<T: DeserializeOwned>(
        &mut self,
        ask: Ask,
        phase: &'static str,
        timeout: Duration,
    ) -> Result<T> {
        self.ask_with_news(ask, phase, timeout, drop).await
    }

    async fn ask_with_news<T: DeserializeOwned>(
        &mut self,
        ask: Ask,
        phase: &'static str,
        timeout: Duration,
        mut news: impl FnMut(Event),
    ) -> Result<T> {
        let request = line::build(&Request::new(ask, Some(timeout)));
        let app = self.app;
        self.unsent.extend(request.map_err(|e| Error::Internal(e.to_string()))?);
        self.owed += 1;
        let asking = async {
            loop {
                // Beside each other: a frontend takes no request while its late answer is unread.
                let line = tokio::select! {
                    line = self.lines.next() => line,
                    written = self.to.write_all_buf(&mut self.unsent), if !self.unsent.is_empty() => {
                        // A frontend that refuses the connection closes it before it has read this. Its answer can
                        // still be read.
                        if written.is_err() {
                            self.unsent.clear();
                        }
                        continue;
                    }
                };
                match line {
                    Ok(Some(line)) => {
                        if serde_json::from_slice::<Answer<IgnoredAny>>(&line).is_ok() {
                            self.owed -= 1;
                            if self.owed == 0 {
                                return Ok(line);
                            }
                        } else if let Ok(event) = serde_json::from_slice(&line) {
                            news(event);
                        } else {
                            note_unknown(app);
                        }
                    }
                    Err(e) if e.kind() == ErrorKind::InvalidData => {
                        return Err(Error::Protocol(format!("app {app}: {e}")));
                    }
                    Ok(None) | Err(_) => return Err(lost(app)),
                }
            }
        };
        let waited = timeout.saturating_add(ANSWER_SLACK);
        let line = time::timeout(waited, asking).await.unwrap_or_else(|_| Err(late(phase, timeout, app)))?;
        match serde_json::from_slice(&line) {
            Ok(Answer::Ok(value)) => Ok(value),
            Ok(Answer::Error(failure)) => Err(Error::Node { hosts: Vec::new(), failure }),
            Err(e) => Err(Error::Protocol(format!("app {app} gives an answer that makes no sense: {e}"))),
        }
    }
}

/// The events of an app, or of one of its daemons.
#[derive(Debug)]
pub struct RemoteEvents {
    app: AppId,
    client: Client,
}

impl RemoteEvents {
    /// The app.
    pub fn app(&self) -> AppId {
        self.app
    }

    /// The next event; none after the last. Waits without a timeout. Cancel-safe.
    pub async fn next(&mut self) -> Option<Result<Event>> {
        loop {
            let line = match self.client.lines.next().await {
                Ok(line) => line?,
                Err(e) if e.kind() == ErrorKind::InvalidData => {
                    return Some(Err(Error::Protocol(format!("app {}: {e}", self.app))));
                }
                Err(_) => return Some(Err(lost(self.app))),
            };
            if let Ok(event) = serde_json::from_slice(&line) {
                return Some(Ok(event));
            }
            if let Ok(Answer::<()>::Error(failure)) = serde_json::from_slice(&line) {
                return Some(Err(Error::Node { hosts: Vec::new(), failure }));
            }
            note_unknown(self.app);
        }
    }
}

/// The channel of a daemon in another tool's app: see [`Channel`](crate::Channel).
#[derive(Debug)]
pub struct RemoteChannel {
    daemon: DaemonId,
    left_out: Vec<String>,
    client: Client,
}

impl RemoteChannel {
    /// The daemon's number in its app.
    pub fn daemon(&self) -> DaemonId {
        self.daemon
    }

    /// The names of the nodes that were left out, if [`DaemonOrder::leave_out`] allowed that.
    pub fn left_out(&self) -> &[String] {
        &self.left_out
    }

    /// Sends a message to all processes of the daemon, of half a megabyte at most.
    ///
    /// # Errors
    /// As [`Channel::broadcast`](crate::Channel::broadcast).
    pub async fn broadcast(&mut self, tag: u32, bytes: &[u8], timeout: Duration) -> Result<()> {
        let ask = Ask::Broadcast { tag, bytes: Hex(bytes.to_vec()) };
        self.client.ask(ask, "sending a message to a daemon", timeout).await
    }

    /// Waits until each process of the daemon has contributed once with this tag, and returns the filter's result. The
    /// result names processes that did not contribute in time.
    ///
    /// # Errors
    /// As [`Channel::reduce`](crate::Channel::reduce).
    pub async fn reduce(&mut self, tag: u32, filter: Filter, timeout: Duration) -> Result<Reduced> {
        let ask = Ask::Reduce { tag, filter };
        let answer: ReducedAnswer = self.client.ask(ask, "reducing contributions", timeout).await?;
        Ok(answer.into())
    }
}

impl From<Reduced> for ReducedAnswer {
    fn from(reduced: Reduced) -> Self {
        let missing = reduced.missing.into_iter().map(|it| MissingAnswer {
            node: it.member.node,
            daemon: it.member.daemon,
            host: it.host,
            why: it.why,
        });
        Self { bytes: Hex(reduced.bytes), contributed: reduced.contributed, missing: missing.collect() }
    }
}

impl From<ReducedAnswer> for Reduced {
    fn from(answer: ReducedAnswer) -> Self {
        let missing = answer.missing.into_iter().map(|it| Missing {
            member: Member { node: it.node, daemon: it.daemon },
            host: it.host,
            why: it.why,
        });
        Self { bytes: answer.bytes.0, contributed: answer.contributed, missing: missing.collect() }
    }
}

fn lost(app: AppId) -> Error {
    Error::Lost { what: vec![format!("app {app}")], reason: "its frontend closed the connection".to_owned() }
}

/// A newer frontend may send events that are unknown here.
fn note_unknown(app: AppId) {
    tracing::debug!(%app, "an event of an unknown kind");
}

fn late(phase: &'static str, after: Duration, app: AppId) -> Error {
    Error::TimedOut { phase, after, missing: vec![format!("the frontend of app {app}")] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_is_named_by_its_process_id() {
        assert_eq!(parse_owner("3kx9").unwrap(), None);
        assert_eq!(parse_owner("pid:12").unwrap(), Pid::new(12));
        for wrong in ["pid:", "pid:0", "pid:-4", "pid:x"] {
            assert_eq!(parse_owner(wrong).unwrap_err().kind(), Kind::Invalid, "{wrong}");
        }
        let own = Pid::new(std::process::id().cast_signed()).unwrap();
        assert_eq!(parent_of(own), Pid::new(std::os::unix::process::parent_id().cast_signed()));
    }

    #[test]
    fn names_are_picked() {
        let apps: Vec<AppId> = ["abcdefgh", "abcd0000"].iter().map(|id| id.parse().unwrap()).collect();
        assert_eq!(pick(Some("abcde"), &apps[..1]).unwrap(), apps[0]);
        assert_eq!(pick(None, &apps[..1]).unwrap(), apps[0]);
        let check = |name, found: &[AppId], kind, part: &str| {
            let error = pick(name, found).unwrap_err();
            assert_eq!(error.kind(), kind);
            assert!(error.to_string().contains(part), "{error}");
        };
        check(Some("x"), &[], Kind::NotFound, "no app 'x'");
        check(None, &[], Kind::NotFound, "no app of yours");
        check(Some("abcd"), &apps, Kind::Invalid, "'abcd' can mean 2 apps: abcdefgh, abcd0000");
        check(None, &apps, Kind::Invalid, "no app is named, and 2 of yours run: abcdefgh, abcd0000");
    }
}
