//! Accepts incoming connections: for the frontend while agents report, for agents, for the senders of the agent to
//! hosts, and for control sockets.
//!
//! Every host and user can connect. [`admission`] decides which connections keep a place, this module accepts and
//! closes them, and the owner serves them in its own tasks. A door always accepts, so that silent connections do not
//! fill the system's queue. An unproven peer takes one descriptor, one small task and no buffer. [`Strangers`]
//! summarises the unproven connections.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gantry_shared::deadline::bounded;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep_until, timeout_at};

pub mod admission;
mod strangers;
mod user;

use admission::{Admission, Limits, PeerId, Room, Stage};
pub use strangers::{Reason, Source, Strangers};
use user::{PeerUsers, find_own_user};

/// After a failed accept, other connections get this long to close.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// After this many accepts in a row, the accepted connections are read.
const IN_A_ROW: u32 = 8;

/// Accepts connections and knows where they come from.
#[derive(Debug)]
pub struct TcpEar {
    listener: TcpListener,
    users: Option<PeerUsers>,
}

/// A listening socket.
pub trait Ear: Send {
    /// The type of its connections.
    type Stream: Send;

    /// The next connection. Cancel-safe.
    ///
    /// # Errors
    /// The system's.
    fn accept(&mut self) -> impl Future<Output = io::Result<(Self::Stream, Source)>> + Send;
}

impl TcpEar {
    /// Listens there.
    #[must_use]
    pub fn new(listener: TcpListener) -> Self {
        let users = PeerUsers::new().inspect_err(|error| tracing::debug!(%error, "no socket diagnostics"));
        Self { listener, users: users.ok() }
    }
}

impl Ear for TcpEar {
    type Stream = TcpStream;

    async fn accept(&mut self) -> io::Result<(TcpStream, Source)> {
        let (stream, peer) = self.listener.accept().await?;
        let ours = stream.local_addr().ok();
        let user = self.users.as_mut().zip(ours).and_then(|(users, ours)| users.find(peer, ours));
        Ok((stream, user.map_or_else(|| Source::of(peer.ip()), Source::User)))
    }
}

/// Accepts connections of one user of this machine.
#[derive(Debug)]
pub struct UnixEar {
    listener: UnixListener,
    user: u32,
}

impl UnixEar {
    /// Listens for this user alone. Processes of other users are disconnected before they take a place.
    #[must_use]
    pub fn new(listener: UnixListener, user: u32) -> Self {
        Self { listener, user }
    }
}

impl AsFd for Gate<UnixEar> {
    /// The listening socket. It is readable while a connection waits that [`Gate::next`] has not seen.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ear.listener.as_fd()
    }
}

impl Ear for UnixEar {
    type Stream = UnixStream;

    async fn accept(&mut self) -> io::Result<(UnixStream, Source)> {
        loop {
            let (stream, _) = self.listener.accept().await?;
            match stream.peer_cred() {
                Ok(peer) if peer.uid() == self.user => return Ok((stream, Source::User(self.user))),
                Ok(peer) => tracing::warn!(user = peer.uid(), "another user's process is cut off"),
                Err(error) => tracing::warn!(%error, "a process without a name is cut off"),
            }
        }
    }
}

/// A listener with the connections that have not yet proven themselves.
#[derive(Debug)]
pub struct Gate<E> {
    ear: E,
    shared: Arc<Shared>,
    paused: Option<Instant>,
    in_a_row: u32,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// A peer has left, or can be evicted now.
    changed: Notify,
}

#[derive(Debug)]
struct State {
    admission: Admission,
    evictions: HashMap<PeerId, oneshot::Sender<()>>,
    /// The error number of an accept that met the limit of open files.
    no_descriptor: Option<i32>,
}

/// A connection with a place.
#[derive(Debug)]
pub struct Arrival<S> {
    /// The connection.
    pub stream: S,
    /// Its place.
    pub seat: Seat,
    /// Signals its eviction.
    pub eviction: Eviction,
}

/// A place at a door. Dropping it frees the place.
#[derive(Debug)]
pub struct Seat {
    shared: Arc<Shared>,
    id: PeerId,
    source: Source,
    arrived: Instant,
    limits: Limits,
}

/// Signals that a peer is evicted.
#[derive(Debug)]
pub struct Eviction(oneshot::Receiver<()>);

/// Statistics of unproven connections. They outlive the door.
#[derive(Debug, Clone)]
pub struct Tally(Arc<Shared>);

impl<E: Ear> Gate<E> {
    /// A door with this many places.
    #[must_use]
    pub fn new(ear: E, limits: Limits) -> Self {
        let admission = Admission::new(limits, find_own_user());
        let state = Mutex::new(State { admission, evictions: HashMap::new(), no_descriptor: None });
        let shared = Arc::new(Shared { state, changed: Notify::new() });
        Self { ear, shared, paused: None, in_a_row: 0 }
    }

    /// The statistics of this door.
    #[must_use]
    pub fn tally(&self) -> Tally {
        Tally(Arc::clone(&self.shared))
    }

    /// Changes the number of places.
    pub fn set_places(&mut self, places: usize) {
        self.shared.lock().admission.set_places(places);
    }

    /// The next connection. Another one may be evicted for it.
    ///
    /// Waits while none comes, or while no peer can be evicted. Cancel-safe.
    pub async fn next(&mut self) -> Arrival<E::Stream> {
        loop {
            if let Some(until) = self.paused {
                sleep_until(until).await;
                self.paused = None;
            }
            if self.in_a_row >= IN_A_ROW {
                self.in_a_row = 0;
                tokio::task::yield_now().await;
            }
            if let Room::Full(until) = self.shared.room() {
                self.wait_for_room(until).await;
                continue;
            }
            match self.ear.accept().await {
                Ok((stream, source)) => {
                    self.in_a_row += 1;
                    if let Some((seat, eviction)) = self.shared.admit(source) {
                        return Arrival { stream, seat, eviction };
                    }
                }
                Err(error) => {
                    let evicted = self.shared.shed(&error);
                    tracing::warn!(%error, evicted, "cannot accept a connection");
                    self.paused = Some(Instant::now() + ACCEPT_PAUSE);
                }
            }
        }
    }

    /// How many peers are proven ([`Stage::Proven`]).
    #[must_use]
    pub fn busy(&self) -> usize {
        self.shared.lock().admission.count(Stage::Proven)
    }

    /// A place for a trusted connection, such as one that a process of this app passes on. It is never evicted.
    pub fn pass<S>(&mut self, stream: S) -> Arrival<S> {
        let (seat, eviction) = self.shared.pass();
        Arrival { stream, seat, eviction }
    }

    async fn wait_for_room(&self, until: Option<Instant>) {
        let changed = self.shared.changed.notified();
        match until {
            Some(until) => drop(timeout_at(until, changed).await),
            None => changed.await,
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn room(&self) -> Room {
        self.lock().admission.room(Instant::now())
    }

    fn admit(self: &Arc<Self>, source: Source) -> Option<(Seat, Eviction)> {
        let arrived = Instant::now();
        let mut state = self.lock();
        let (id, evicted) = state.admission.admit(source, arrived)?;
        if let Some(evicted) = evicted {
            state.tell(evicted);
            report(state.admission.strangers());
        }
        Some(self.seat(&mut state, id, source, arrived))
    }

    fn pass(self: &Arc<Self>) -> (Seat, Eviction) {
        let arrived = Instant::now();
        let mut state = self.lock();
        let id = state.admission.pass(arrived);
        self.seat(&mut state, id, Source::Brought, arrived)
    }

    fn seat(
        self: &Arc<Self>,
        state: &mut State,
        id: PeerId,
        source: Source,
        arrived: Instant,
    ) -> (Seat, Eviction) {
        let (sender, receiver) = oneshot::channel();
        state.evictions.insert(id, sender);
        let limits = state.admission.limits();
        (Seat { shared: Arc::clone(self), id, source, arrived, limits }, Eviction(receiver))
    }

    /// An accept has failed, usually because of too many open files. Returns whether a peer was evicted.
    fn shed(&self, error: &io::Error) -> bool {
        let mut state = self.lock();
        let number = error.raw_os_error();
        state.no_descriptor =
            number.filter(|it| [libc::EMFILE, libc::ENFILE].contains(it)).or(state.no_descriptor);
        let Some(evicted) = state.admission.shed(Instant::now()) else { return false };
        state.tell(evicted);
        true
    }
}

impl State {
    /// Tells a peer's task to close it.
    fn tell(&mut self, evicted: PeerId) {
        if let Some(sender) = self.evictions.remove(&evicted) {
            // A task that has ended has closed its connection.
            sender.send(()).ok();
        }
    }
}

impl Seat {
    /// The peer's source.
    #[must_use]
    pub fn source(&self) -> Source {
        self.source
    }

    /// The deadline of its first byte.
    fn first_byte_by(&self) -> Instant {
        self.arrived + bounded(self.limits.silence)
    }

    /// The deadline of its proof.
    #[must_use]
    pub fn proof_by(&self) -> Instant {
        self.arrived + bounded(self.limits.handshake)
    }

    /// Waits for the peer's first byte and leaves it unread. False: it did not come in time, and the peer is counted;
    /// or the peer was evicted.
    pub async fn hears(&self, stream: &TcpStream) -> bool {
        match timeout_at(self.first_byte_by(), stream.peek(&mut [0])).await {
            Ok(Ok(1..)) => return self.reach(Stage::Begun),
            Ok(Ok(0) | Err(_)) => self.judge(Reason::Left),
            Err(_late) => self.judge(Reason::Silent),
        }
        false
    }

    /// The peer has reached this stage. False: it was evicted meanwhile.
    #[must_use]
    pub fn reach(&self, stage: Stage) -> bool {
        let reached = self.shared.lock().admission.reach(self.id, stage, Instant::now());
        self.shared.changed.notify_one();
        reached
    }

    /// Counts the peer as unauthenticated.
    pub fn judge(&self, reason: Reason) {
        let mut state = self.shared.lock();
        state.admission.judge(self.id, reason);
        report(state.admission.strangers());
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.admission.leave(self.id);
        state.evictions.remove(&self.id);
        drop(state);
        self.shared.changed.notify_one();
    }
}

impl Eviction {
    /// Runs a peer's work. None: the peer was evicted before its end.
    pub async fn or<T>(self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            // An error means that the place was freed.
            Ok(()) = self.0 => None,
            done = work => Some(done),
        }
    }
}

impl Tally {
    /// The statistics so far.
    #[must_use]
    pub fn strangers(&self) -> Strangers {
        self.0.lock().admission.strangers().clone()
    }

    /// The limit of open files for which a connection was not accepted, if there was one.
    #[must_use]
    pub fn no_descriptor(&self) -> Option<io::Error> {
        self.0.lock().no_descriptor.map(io::Error::from_raw_os_error)
    }
}

/// Logs a growing crowd in steps, not with every connection.
fn report(strangers: &Strangers) {
    let total = strangers.total();
    if total.is_power_of_two() && total >= 16 && strangers.matter() {
        tracing::warn!(%strangers, "connections from outside");
    }
}

#[cfg(test)]
mod tests;
