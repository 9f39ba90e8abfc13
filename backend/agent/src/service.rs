//! The agent's private socket, where tool daemons ask for their place and for the ranks of this node.
//!
//! A daemon is the tool's program and may do anything. So a connection gets a bounded share of places, bytes and time.
//! It speaks only for itself. If it sends something invalid, the agent closes it with a reason, and other connections
//! do not notice. The service only reads: the agent's main loop replaces the [`View`] that it answers from. When a
//! daemon opens its channel, the connection goes to [`connection`].

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use gantry_backend::socket_path::SocketPath;
use gantry_shared::secret::Secret;
use gantry_shared::wire::backend::{Ask, NodeFacts, Tell, VERSION, build_token};
use gantry_shared::wire::frame::{FrameBuffer, encode};
use gantry_types::error::{Failure, Kind};
use gantry_types::id::{AppId, DaemonId, NodeId, SessionId};
use gantry_types::placement::LocalRank;
use gantry_types::session_dirs::SessionDirs;
use nix::unistd::geteuid;
use tokio::io::AsyncWriteExt;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::channel::connection;
use crate::failure;
use crate::framed::{self, Framed};
use crate::overlay::Uplink;

/// A query has some ten bytes. A client that sends 4 KiB without a complete query is not sending one.
const ASKS: framed::Limits =
    framed::Limits { read: 1024, pending: 4096, exceeded: "its question is too long" };

/// What daemons may see.
#[derive(Debug, Clone)]
pub(crate) struct View {
    /// The fixed facts.
    pub(crate) facts: AppFacts,
    /// The current ranks of this node.
    pub(crate) ranks: Vec<LocalRank>,
    /// The open sessions.
    pub(crate) sessions: BTreeMap<SessionId, SessionDirs>,
    /// The app's secret, from which the agent derives daemons' tokens.
    pub(crate) secret: Secret,
    /// Daemons by session. A daemon asks as soon as it runs, so the agent adds it before the start.
    pub(crate) daemons: BTreeMap<DaemonId, SessionId>,
}

/// The fixed facts of an app on a node.
#[derive(Debug, Clone)]
pub(crate) struct AppFacts {
    /// The workload manager's name.
    pub(crate) wlm: String,
    /// The app.
    pub(crate) app: AppId,
    /// This node's name as the WLM knows it.
    pub(crate) host: String,
    /// This node's number.
    pub(crate) node: NodeId,
    /// Number of nodes of the app.
    pub(crate) nodes: u32,
    /// Number of ranks of the app.
    pub(crate) size: u32,
}

/// The limits of the service.
#[derive(Debug, Clone, Copy)]
struct Limits {
    /// Connections at a time.
    connections: usize,
    /// The timeout for a client's first query, and for the client to take an answer.
    patience: Duration,
}

const LIMITS: Limits = Limits { connections: 256, patience: Duration::from_secs(10) };

/// The socket, bound and listening.
#[derive(Debug)]
pub(crate) struct Service {
    listener: UnixListener,
    view: watch::Receiver<View>,
    /// Carries the node's channels. `None`: it has none.
    up: Option<Uplink>,
    limits: Limits,
}

impl Service {
    /// Binds the socket for our own user only. Its directory must be private as well. Call it in a tokio runtime.
    ///
    /// # Errors
    /// The socket cannot be created, for instance because something exists at that path.
    pub(crate) fn bind(
        socket: &Path,
        view: watch::Receiver<View>,
        up: Option<Uplink>,
    ) -> Result<Self, Failure> {
        let bound = SocketPath::new(socket).and_then(|path| {
            let listener = UnixListener::bind(path.as_path())?;
            // Connecting needs write permission, and a umask may have removed even the owner's.
            std::fs::set_permissions(path.as_path(), std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
            Ok(listener)
        });
        match bound {
            Ok(listener) => Ok(Self { listener, view, up, limits: LIMITS }),
            Err(error) => {
                Err(failure::from_io(format_args!("listen for daemons at {}", socket.display()), &error))
            }
        }
    }

    /// Serves until the future is dropped. Every connection ends with it.
    pub(crate) async fn serve(self) {
        let mut connections = JoinSet::new();
        let view = Arc::new(self.view);
        loop {
            tokio::select! {
                (stream, _) = failure::accept(|| self.listener.accept()) => {
                    if connections.len() < self.limits.connections {
                        let up = self.up.clone();
                        connections.spawn(attend(stream, Arc::clone(&view), up, self.limits.patience));
                    } else {
                        refuse_at_once(&stream, &too_many(self.limits.connections));
                    }
                }
                Some(_) = connections.join_next() => {}
            }
        }
    }
}

fn too_many(limit: usize) -> Failure {
    Failure::new(Kind::NoAccess, format!("serve another connection: {limit} are open already"))
        .with_hint("connect once per daemon and keep the connection")
}

/// Sends the reason and closes, without waiting: what does not fit into the socket's buffer is lost.
fn refuse_at_once(stream: &UnixStream, why: &Failure) {
    if let Ok(frame) = encode(&Tell::Refused(why.clone())) {
        stream.try_write(&frame).ok();
    }
}

/// Serves one connection until it ends.
async fn attend(
    stream: UnixStream,
    view: Arc<watch::Receiver<View>>,
    up: Option<Uplink>,
    patience: Duration,
) {
    let mut client = Client { asks: Framed::new(stream, FrameBuffer::new(), ASKS), patience };
    match (converse(&mut client, &view).await, up) {
        (Ok(Some(daemon)), Some(up)) => {
            connection::attend(client.asks.stream, client.asks.rest, daemon, up).await;
        }
        (Ok(_), _) | (Err(End::Broken), _) => {}
        (Err(End::Cut(why)), _) => refuse_at_once(&client.asks.stream, &why),
    }
}

/// How a connection ends, other than by the client's close.
enum End {
    /// The agent closes it and sends the reason.
    Cut(Failure),
    /// It is broken.
    Broken,
}

impl From<Failure> for End {
    fn from(why: Failure) -> Self {
        Self::Cut(why)
    }
}

impl From<io::Error> for End {
    fn from(_: io::Error) -> Self {
        Self::Broken
    }
}

/// Answers queries until the client closes its end, or opens a channel. Returns the daemon of that channel.
async fn converse(client: &mut Client, view: &watch::Receiver<View>) -> Result<Option<DaemonId>, End> {
    let peer = client.asks.stream.peer_cred()?;
    let found = peer.uid();
    if found != geteuid().as_raw() {
        return Err(Failure::new(
            Kind::NoAccess,
            format!("serve user {found}: this agent is another user's"),
        )
        .into());
    }
    let patience = client.patience;
    let Ok(first) = timeout(patience, client.next_ask()).await else {
        let why = format!("wait for a hello: none arrived within {} s", patience.as_secs_f64());
        return Err(Failure::new(Kind::TimedOut, why).into());
    };
    let Some(hello) = first? else { return Ok(None) };
    let answer = answer_hello(&hello, &view.borrow())?;
    client.tell(&answer).await?;
    while let Some(ask) = client.next_ask().await? {
        if ask == Ask::Channel
            && let Ask::Hello { daemon, .. } = hello
        {
            client.tell(&Tell::Channel).await?;
            return Ok(Some(daemon));
        }
        let answer = answer_later(&ask, &view.borrow())?;
        client.tell(&answer).await?;
    }
    Ok(None)
}

fn answer_hello(ask: &Ask, view: &View) -> Result<Tell, Failure> {
    let Ask::Hello { version, session, daemon, ref token } = *ask else {
        return Err(Failure::new(Kind::Protocol, "serve a daemon that has not said hello"));
    };
    if version != VERSION {
        return Err(Failure::new(
            Kind::Protocol,
            format!(
                "serve a daemon whose library uses protocol version {version}: this agent uses {VERSION}"
            ),
        )
        .with_hint("build the daemon with the release that launched the app"));
    }
    let Some(dirs) = view.sessions.get(&session) else {
        return Err(Failure::new(Kind::Gone, format!("serve a daemon of session {session}: it is not open")));
    };
    if view.daemons.get(&daemon) != Some(&session) {
        return Err(Failure::new(
            Kind::NotFound,
            format!("serve daemon {daemon} of session {session}: none was started here"),
        ));
    }
    // Ranks belong to the same user, but not to the tool.
    if *token != build_token(&view.secret, session, daemon) {
        let message = format!("serve daemon {daemon} of session {session}: it sent no token");
        return Err(Failure::new(Kind::NoAccess, message).with_hint(
            "only processes with the daemon's GANTRY_DAEMON_TOKEN in their environment may connect for it",
        ));
    }
    let AppFacts { wlm, app, host, node, nodes, size } = view.facts.clone();
    Ok(Tell::Node(NodeFacts { wlm, app, host, node, nodes, size, dirs: dirs.clone() }))
}

fn answer_later(ask: &Ask, view: &View) -> Result<Tell, Failure> {
    match ask {
        Ask::Ranks => Ok(Tell::Ranks(view.ranks.clone())),
        Ask::Hello { .. } => Err(Failure::new(Kind::Protocol, "serve a daemon that says hello twice")),
        // Handled earlier.
        Ask::Channel => Ok(Tell::Channel),
    }
}

/// The other side of a connection.
struct Client {
    asks: Framed<UnixStream>,
    patience: Duration,
}

impl Client {
    /// The next query. `None` when the client has closed between two queries.
    async fn next_ask(&mut self) -> Result<Option<Ask>, End> {
        let garbage = |why: &str| {
            Failure::new(Kind::Protocol, format!("read a daemon's message: {why}"))
                .with_hint("use gantry's backend library to talk to the agent")
        };
        match self.asks.next().await {
            Ok(None) if !self.asks.rest.is_empty() => Err(garbage("it closed inside a question").into()),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                Err(garbage(&error.to_string()).into())
            }
            said => Ok(said?),
        }
    }

    async fn tell(&mut self, answer: &Tell) -> Result<(), End> {
        let frame = encode(answer)
            .map_err(|error| Failure::new(Kind::Unsupported, format!("answer a daemon: {error}")))?;
        match timeout(self.patience, self.asks.stream.write_all(&frame)).await {
            Ok(written) => Ok(written?),
            // Part of the answer may be sent: the client would read a reason as the rest of it.
            Err(_) => Err(End::Broken),
        }
    }
}

#[cfg(test)]
mod tests;
