//! The agent's socket for ranks, in the abstract name space. It exists from before the first rank until the agent ends,
//! and leaves nothing behind.
//!
//! A client may do anything. So each connection gets a bounded share of every resource: places for clients that have
//! not sent their request yet, time for every next byte, memory for items on their way. Another user's process is
//! refused.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener as StdListener};
use std::sync::Arc;
use std::time::Duration;

use gantry_shared::rendezvous::handle::{build_node_service_name, build_service_name};
use gantry_shared::secret::Secret;
use gantry_shared::wire::frame;
use gantry_shared::wire::rendezvous::{Ask, AskWhat, Key, MAX_ASK_BYTES, Refusal, Tell, VERSION};
use gantry_types::error::{Failure, Kind};
use gantry_types::id::{AppId, Pid, Rank};
use gantry_types::rendezvous::{MAX_ITEM_BYTES, Resource};
use nix::unistd::geteuid;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::caller::find_rank;
use super::desk::Request;
use super::link::{self, Closing};
use super::room::Room;
use crate::failure;
use crate::service::View;

/// Limits of the service.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Number of clients that have not sent their request yet.
    pub(crate) newcomers: usize,
    /// Memory for items that have not left the node, in KiB.
    pub(crate) items_kib: u32,
    /// Timeout for a process to send or take the next bytes.
    pub(crate) patience: Duration,
}

const LIMITS: Limits = Limits { newcomers: 1024, items_kib: 256 * 1024, patience: Duration::from_secs(10) };

/// The most bytes of one read or write.
const CHUNK_BYTES: usize = 256 * 1024;

/// This many bytes of an item are read before it gets room.
const FIRST_BYTES: usize = 1024;

/// The socket, bound and listening.
#[derive(Debug)]
pub(crate) struct Socket {
    listener: StdListener,
    /// Its name.
    pub(crate) name: String,
    owed: Owed,
}

/// Number of processes that have asked and do not have their whole answer yet.
#[derive(Debug, Clone, Default)]
pub(crate) struct Owed(watch::Sender<usize>);

impl Owed {
    /// Waits until no process is owed an answer, or no process has taken more of one for `patience`. Returns whether
    /// nothing is owed.
    pub(crate) async fn nothing(&self, patience: Duration) -> bool {
        let mut owed = self.0.subscribe();
        while *owed.borrow_and_update() > 0 {
            // Without a timeout there was progress: `self` holds the sender.
            if timeout(patience, owed.changed()).await.is_err() {
                return false;
            }
        }
        true
    }
}

/// Counts one process as owed an answer, until this is dropped.
struct Debt(Owed);

impl Debt {
    fn new(owed: &Owed) -> Self {
        owed.0.send_modify(|count| *count += 1);
        Self(owed.clone())
    }

    /// The process has taken a part of its answer.
    fn goes_on(&self) {
        self.0.0.send_modify(|_| {});
    }
}

impl Drop for Debt {
    fn drop(&mut self) {
        self.0.0.send_modify(|count| *count -= 1);
    }
}

impl Socket {
    /// Binds this agent's socket.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn bind(app: AppId, secret: &Secret) -> io::Result<Self> {
        let pid = i32::try_from(std::process::id()).ok().and_then(Pid::new);
        let pid = pid.ok_or(io::ErrorKind::InvalidInput)?;
        Self::bind_name(build_service_name(app, secret, pid))
    }

    /// Binds the socket of its node.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn bind_own(app: AppId, secret: &Secret) -> io::Result<Self> {
        Self::bind_name(build_node_service_name(app, secret))
    }

    pub(crate) fn bind_name(name: String) -> io::Result<Self> {
        let listener = StdListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, name, owed: Owed::default() })
    }

    /// Counts the processes that are owed an answer.
    pub(crate) fn owed(&self) -> Owed {
        self.owed.clone()
    }

    /// Serves until it is dropped, which ends every connection. Call it in a tokio runtime.
    pub(crate) async fn serve(
        self,
        view: watch::Receiver<View>,
        ask: impl Fn(Request) + Send + Sync + 'static,
    ) {
        self.serve_within(LIMITS, view, ask).await;
    }

    pub(crate) async fn serve_within(
        self,
        limits: Limits,
        view: watch::Receiver<View>,
        ask: impl Fn(Request) + Send + Sync + 'static,
    ) {
        // Without it a rank that connects is refused, and says so.
        let Ok(listener) = UnixListener::from_std(self.listener) else { return };
        let newcomers = Arc::new(Semaphore::new(limits.newcomers));
        let items = Arc::new(Semaphore::new(usize::try_from(limits.items_kib).unwrap_or(usize::MAX)));
        let beyond = Arc::new(Semaphore::new(1));
        let house = Arc::new(House {
            view,
            ask: Box::new(ask),
            closing: Closing::default(),
            owed: self.owed,
            items,
            beyond,
            limits,
        });
        let mut connections = JoinSet::new();
        let mut told = false;
        loop {
            let tell = |error| {
                if !std::mem::replace(&mut told, true) {
                    (house.ask)(Request::NotAccepted(error));
                }
            };
            tokio::select! {
                (stream, place) = failure::accept_telling(|| accept(&listener, &newcomers), tell) => {
                    connections.spawn(attend(stream, place, Arc::clone(&house)));
                }
                Some(_) = connections.join_next() => {}
            }
        }
    }
}

/// The next connection of our own user, once a place is free. Others wait in the listen queue.
async fn accept(
    listener: &UnixListener,
    newcomers: &Arc<Semaphore>,
) -> io::Result<(UnixStream, OwnedSemaphorePermit)> {
    let place = Arc::clone(newcomers).acquire_owned().await.map_err(io::Error::other)?;
    loop {
        let (stream, _) = listener.accept().await?;
        if stream.peer_cred().is_ok_and(|peer| peer.uid() == geteuid().as_raw()) {
            return Ok((stream, place));
        }
    }
}

/// State that connections share.
struct House {
    view: watch::Receiver<View>,
    ask: Box<dyn Fn(Request) + Send + Sync>,
    closing: Closing,
    owed: Owed,
    items: Arc<Semaphore>,
    /// For the one item that may exceed the common limit.
    beyond: Arc<Semaphore>,
    limits: Limits,
}

/// Why a connection ends without an answer.
enum End {
    /// The client gets a refusal.
    Refused(Refusal),
    /// The client is gone.
    Broken,
}

impl From<Failure> for End {
    fn from(why: Failure) -> Self {
        Self::Refused(why.into())
    }
}

impl From<io::Error> for End {
    fn from(_: io::Error) -> Self {
        Self::Broken
    }
}

/// Serves one connection: one request, one answer.
async fn attend(stream: UnixStream, place: OwnedSemaphorePermit, house: Arc<House>) {
    let patience = house.limits.patience;
    let mut client = Client { stream, patience, debt: None };
    match serve(&mut client, place, &house).await {
        Ok(None) | Err(End::Broken) => {}
        Ok(Some(rank)) => {
            if let Ok(socket) = client.stream.into_std() {
                (house.ask)(Request::Mpi { rank, socket: socket.into() });
            }
        }
        Err(End::Refused(why)) => {
            drop(client.tell(&Tell::Refused(why)).await);
        }
    }
}

/// Answers a process's request. Returns the rank that is to be served as an MPI program from here on.
async fn serve(client: &mut Client, place: OwnedSemaphorePermit, house: &House) -> Result<Option<Rank>, End> {
    let ask = client.read_ask().await?;
    drop(place);
    if ask.version != VERSION {
        let why = format!(
            "serve a process whose library uses protocol version {}: this agent uses {VERSION}",
            ask.version
        );
        return Err(Failure::new(Kind::Unsupported, why).into());
    }
    if let Resource::Fence(_) = ask.of.resource {
        return Err(Failure::new(Kind::NoAccess, "enter a fence of the MPI world: agents do that")
            .with_hint("use a rendezvous with a name")
            .into());
    }
    if !matches!(ask.what, AskWhat::Link | AskWhat::Mpi) {
        client.debt = Some(Debt::new(&house.owed));
    }
    match ask.what {
        AskWhat::Mpi => return house.find_caller(client, ask.rank).await.map(Some),
        AskWhat::Put { bytes } => {
            let rank = house.find_caller(client, ask.rank).await?;
            let (item, room) = client.read_item(bytes, house).await?;
            let (told, answer) = oneshot::channel();
            (house.ask)(Request::Put { of: ask.of, rank, item, room, told });
            client.wait(answer).await?;
            client.tell(&Tell::Done).await?;
        }
        AskWhat::Get(want) => {
            if ask.rank.is_some() {
                house.find_caller(client, ask.rank).await?;
            }
            let (told, answer) = oneshot::channel();
            (house.ask)(Request::Get { key: Key { of: ask.of, want }, told });
            let data = client.wait(answer).await?;
            client.tell(&Tell::Data { bytes: data.len() as u64 }).await?;
            client.write(&data).await?;
        }
        AskWhat::Status | AskWhat::List => {
            let one = matches!(ask.what, AskWhat::Status);
            let (told, answer) = oneshot::channel();
            (house.ask)(Request::Status { of: one.then_some(ask.of), told });
            let all = client.wait(answer).await?;
            if !one {
                client.tell(&Tell::List { count: u32::try_from(all.len()).unwrap_or(u32::MAX) }).await?;
            }
            for status in all {
                client.tell(&Tell::Status(status)).await?;
            }
        }
        AskWhat::Link => {
            let rank = house.find_caller(client, ask.rank).await?;
            house.closing.wait(rank, house.limits.patience).await;
            client.tell(&Tell::Done).await?;
            link::carry(&mut client.stream, rank, &house.closing, &*house.ask).await;
        }
    }
    Ok(None)
}

impl House {
    /// The rank of the client.
    async fn find_caller(&self, client: &Client, claimed: Option<Rank>) -> Result<Rank, End> {
        let pid = client.stream.peer_cred()?.pid();
        let mut view = self.view.clone();
        // A rank may ask before the agent has reported its start. The agent learns of all ranks of the node at once.
        drop(timeout(self.limits.patience, view.wait_for(|view| !view.ranks.is_empty())).await);
        let found = pid.and_then(|pid| find_rank(pid, &view.borrow().ranks));
        let Some(rank) = found else {
            let why = format!(
                "register for process {}: it is not a rank of this node, nor started by one",
                pid.unwrap_or(0)
            );
            return Err(Failure::new(Kind::NoAccess, why)
                .with_hint("call it from a rank, or from a process that a rank has started and waits for")
                .into());
        };
        match claimed {
            Some(claimed) if claimed != rank => {
                let why = format!("register for rank {claimed}: this process belongs to rank {rank}");
                Err(Failure::new(Kind::NoAccess, why).into())
            }
            _ => Ok(rank),
        }
    }
}

impl Room {
    /// Takes room for more bytes, if there is some.
    ///
    /// If many items have begun and none can go on, one of them may exceed the limit. When it is complete it gives its
    /// room back to the others.
    async fn grow(&mut self, bytes: usize, house: &House) -> Result<(), End> {
        if self.last.is_some() {
            return Ok(());
        }
        let kib = u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX).min(house.limits.items_kib);
        tokio::select! {
            biased;
            more = Arc::clone(&house.items).acquire_many_owned(kib) => {
                let more = more.map_err(|_| End::Broken)?;
                match &mut self.taken {
                    Some(taken) => taken.merge(more),
                    None => self.taken = Some(more),
                }
            }
            last = Arc::clone(&house.beyond).acquire_owned() => self.last = Some(last.map_err(|_| End::Broken)?),
        }
        Ok(())
    }
}

/// The client of a connection.
struct Client {
    stream: UnixStream,
    patience: Duration,
    debt: Option<Debt>,
}

impl Client {
    async fn read_ask(&mut self) -> Result<Ask, End> {
        let patience = self.patience;
        let read = async {
            let bytes = self.stream.read_u32().await?;
            if bytes > MAX_ASK_BYTES {
                return Err(garbage(&format!("a question of {bytes} bytes")));
            }
            let mut body = vec![0; usize::try_from(bytes).unwrap_or_default()];
            self.stream.read_exact(&mut body).await?;
            frame::decode(&body).map_err(|error| garbage(&error.to_string()))
        };
        timeout(patience, read).await.unwrap_or_else(|_| Err(silent(patience).into()))
    }

    /// Reads the item's bytes. Memory grows with the bytes that arrive, not with the announced size. So a process that
    /// sends nothing takes no room from others.
    async fn read_item(&mut self, bytes: u64, house: &House) -> Result<(Vec<u8>, Room), End> {
        if bytes > MAX_ITEM_BYTES {
            let why = format!("register {bytes} bytes: an item has at most {MAX_ITEM_BYTES}");
            return Err(Failure::new(Kind::Invalid, why).into());
        }
        let mut room = Room::default();
        let mut item = Vec::new();
        while (item.len() as u64) < bytes {
            let left = usize::try_from(bytes).unwrap_or(usize::MAX) - item.len();
            let (patience, chunk) = (self.patience, left.min(CHUNK_BYTES));
            // Only bytes that have arrived justify taking room.
            let mut first = [0; FIRST_BYTES];
            let read = self.stream.read(&mut first[..chunk.min(FIRST_BYTES)]);
            let read = timeout(patience, read).await.map_err(|_| silent(patience))??;
            if read == 0 {
                return Err(End::Broken);
            }
            room.grow(chunk, house).await?;
            item.extend_from_slice(&first[..read]);
            let filled = async {
                let mut next = (&mut self.stream).take((chunk - read) as u64);
                while next.limit() > 0 {
                    if next.read_buf(&mut item).await? == 0 {
                        return Err(End::Broken);
                    }
                }
                Ok(())
            };
            timeout(patience, filled).await.unwrap_or_else(|_| Err(silent(patience).into()))?;
        }
        Ok((item, room))
    }

    /// Waits for an answer, as long as the client waits.
    async fn wait<T>(&mut self, answer: oneshot::Receiver<Result<T, Refusal>>) -> Result<T, End> {
        let mut byte = [0];
        tokio::select! {
            biased;
            answer = answer => match answer {
                Ok(answer) => answer.map_err(End::Refused),
                Err(_leaving) => Err(Failure::new(Kind::Gone, "wait for the rendezvous: the app is ending on this node").into()),
            },
            read = self.stream.read(&mut byte) => match read {
                Ok(1..) => Err(garbage("more than one question")),
                _ => Err(End::Broken),
            },
        }
    }

    async fn tell(&mut self, tell: &Tell) -> Result<(), End> {
        let frame = frame::encode(tell)
            .map_err(|error| Failure::new(Kind::Protocol, format!("answer a rank: {error}")))?;
        self.write(&frame).await
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), End> {
        for chunk in bytes.chunks(CHUNK_BYTES) {
            // Part of the answer may be sent already: the client would take a refusal for more of it.
            timeout(self.patience, self.stream.write_all(chunk)).await.map_err(|_| End::Broken)??;
            if let Some(debt) = &self.debt {
                debt.goes_on();
            }
        }
        Ok(())
    }
}

fn garbage(why: &str) -> End {
    Failure::new(Kind::Protocol, format!("read a process's message: {why}"))
        .with_hint("use gantry's backend library or gantry-agent rendezvous")
        .into()
}

fn silent(patience: Duration) -> Failure {
    Failure::new(
        Kind::TimedOut,
        format!("wait for a process: it sent nothing for {} s", patience.as_secs_f32()),
    )
}

#[cfg(test)]
mod tests;
