//! The ranks' sockets. A task for each reads the rank's messages and writes the answers.
//!
//! The agent does not read from a rank that does not read its answers. When a rank ends, the agent first reads what is
//! left in its socket.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use gantry_shared::wire::mpi::MpiNote;
use gantry_shared::wire::rendezvous::{Gate, Key, MAX_SMALL_BYTES, Refusal, Want};
use gantry_types::error::{Failure, Kind};
use gantry_types::id::Rank;
use gantry_types::rendezvous::Resource;
use gantry_types::status::ExitStatus;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::RecvError;

use super::foreign;
use super::line::{CHUNK_BYTES, Line, Rest, read_now};
use super::message::Message;
use super::world::{Deed, Failed, Heard, World};
use crate::pmix;
use crate::rendezvous::{Request, Room};
use crate::task;

/// How long silent ranks run before the first look at their libraries, and between the first looks.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// The grace period after a rank has exited with 0 without MPI_Finalize. If other ranks still run after it, the world
/// ends. In programs that end without MPI_Finalize, all ranks exit within this time.
const OUTLIVED: Duration = Duration::from_secs(5);

/// The number of looks before the pauses grow.
const QUICK_LOOKS: u32 = 30;

/// The longest pause between two looks.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// A socket for a rank, and the agent's end of it.
///
/// # Errors
/// The kernel refuses more descriptors.
pub(crate) fn open_socket() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::Unix, SockType::Stream, None, SockFlag::SOCK_CLOEXEC)?)
}

/// A request of the server to the agent.
#[derive(Debug)]
pub(crate) enum Wish {
    /// Asks at the rendezvous.
    Ask(Request),
    /// Ends all ranks.
    End(Failed),
    /// Tells the user.
    Note(MpiNote),
}

/// The server of a node's ranks. Its tasks end with their ranks, or when it is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    house: Rc<House>,
    ends: BTreeMap<Rank, oneshot::Sender<ExitStatus>>,
    /// The task that looks for ranks of another library. It ends when this is dropped.
    looking: Option<oneshot::Sender<()>>,
    /// A library speaks to the ranks.
    library: Option<Rest>,
}

/// What its tasks share.
struct House {
    world: RefCell<World>,
    /// The line to the library that speaks to the ranks.
    line: Option<Line>,
    wish: Box<dyn Fn(Wish)>,
}

impl std::fmt::Debug for House {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("House").field("world", &self.world).finish_non_exhaustive()
    }
}

impl Server {
    /// Serves the ranks at the other ends of these sockets. Call it in a local set.
    ///
    /// # Errors
    /// The runtime cannot watch a socket.
    pub(crate) fn start(
        world: World,
        sockets: impl IntoIterator<Item = (Rank, OwnedFd)>,
        wish: impl Fn(Wish) + 'static,
    ) -> io::Result<Self> {
        let house = Rc::new(House { world: RefCell::new(world), line: None, wish: Box::new(wish) });
        let mut server = Self { house, ends: BTreeMap::new(), looking: None, library: None };
        sockets.into_iter().try_for_each(|(rank, socket)| server.serve(rank, socket))?;
        Ok(server)
    }

    /// Serves the ranks by the PMIx library of that process. Call it in a local set.
    pub(crate) fn start_library(
        world: World,
        pmix::Started { socket, inbox, library, directory, .. }: pmix::Started,
        wish: impl Fn(Wish) + 'static,
    ) -> Self {
        let line = Some(Line::new(socket, inbox, library));
        let house = Rc::new(House { world: RefCell::new(world.of_library()), line, wish: Box::new(wish) });
        let (done, over) = oneshot::channel();
        let talking = Rc::clone(&house);
        task::spawn_local(async move {
            talking.converse_with_library().await;
            // The agent waits for it only when it leaves.
            done.send(()).ok();
        });
        let library = Some(Rest::new(over, directory));
        Self { house, ends: BTreeMap::new(), looking: None, library }
    }

    /// Serves one more rank. Ignores another socket for a rank that it serves already.
    ///
    /// # Errors
    /// The runtime cannot watch the socket.
    pub(crate) fn serve(&mut self, rank: Rank, socket: OwnedFd) -> io::Result<()> {
        let Entry::Vacant(place) = self.ends.entry(rank) else { return Ok(()) };
        let socket = StdStream::from(socket);
        socket.set_nonblocking(true)?;
        let stream = UnixStream::from_std(socket)?;
        let (end, ended) = oneshot::channel();
        place.insert(end);
        task::spawn_local(attend(stream, rank, Rc::clone(&self.house), ended));
        Ok(())
    }

    /// A rank has ended.
    pub(crate) fn ended(&mut self, rank: Rank, status: ExitStatus) {
        if let Some(line) = &self.house.line {
            line.read_now();
            self.house.hear_library(line);
            self.house.act(|world| world.ended(rank, status));
        }
        if let Some(end) = self.ends.remove(&rank) {
            // The task may have ended with the agent's other tasks.
            let _gone = end.send(status);
        }
    }

    /// Ranks begin to run, with these pids: looks for those whose library does not speak PMI.
    pub(crate) fn look_at(&mut self, pids: Vec<(Rank, i32)>) {
        if self.library.is_some() {
            return;
        }
        let (looking, over) = oneshot::channel();
        self.looking = Some(looking);
        let house = Rc::clone(&self.house);
        task::spawn_local(async move {
            tokio::select! {
                () = house.find_foreign(pids) => {}
                _ = over => {}
            }
        });
    }

    /// The agent is about to kill all ranks.
    pub(crate) fn stop(&self) {
        self.house.world.borrow_mut().stop();
    }

    /// Ends a library, and removes its files. The ranks have ended.
    ///
    /// # Errors
    /// Files of it stay behind.
    pub(crate) async fn close(self) -> Result<(), Failure> {
        self.stop();
        match self.library {
            Some(library) => library.close(self.house.line.as_ref()).await,
            None => Ok(()),
        }
    }
}

/// Serves one rank until it ends.
async fn attend(
    mut stream: UnixStream,
    rank: Rank,
    house: Rc<House>,
    mut ended: oneshot::Receiver<ExitStatus>,
) {
    let mut inbox = Vec::new();
    let status = tokio::select! {
        biased;
        status = &mut ended => status,
        _ = house.converse(&mut stream, rank, &mut inbox) => ended.await,
    };
    // A dropped sender means that the agent leaves.
    let Ok(status) = status else { return };
    house.read_rest(&stream, rank, &mut inbox);
    house.act(|world| world.ended(rank, status));
}

impl House {
    /// Serves a rank until it closes its end or violates the protocol.
    async fn converse(
        self: &Rc<Self>,
        stream: &mut UnixStream,
        rank: Rank,
        inbox: &mut Vec<u8>,
    ) -> io::Result<()> {
        loop {
            inbox.reserve(CHUNK_BYTES);
            if stream.read_buf(inbox).await? == 0 {
                return Ok(());
            }
            while let Some(heard) = self.hear_next(rank, inbox) {
                let answer = match heard {
                    Heard::Answer(answer) => answer,
                    Heard::Later(answer) => match answer.await {
                        Ok(answer) => answer,
                        Err(_over) => continue,
                    },
                    Heard::Nothing => continue,
                };
                stream.write_all(&answer).await?;
            }
            if inbox.is_empty() {
                // Most ranks are silent most of the time, so the buffer is freed.
                *inbox = Vec::new();
            }
        }
    }

    /// Talks to the library until its process closes its end.
    async fn converse_with_library(self: Rc<Self>) {
        let Some(line) = &self.line else { return };
        while self.hear_library(line) && line.read().await {}
        self.act(|world| world.library_ended(line.name()));
    }

    /// Processes the library's complete messages. False: one is invalid.
    fn hear_library(self: &Rc<Self>, line: &Line) -> bool {
        loop {
            let refused = match line.take() {
                Ok(None) => return true,
                Ok(Some((message, puts))) => match self.act(|world| world.hear_library(message, puts)) {
                    Ok(()) => continue,
                    Err(what) => what,
                },
                Err(what) => what,
            };
            self.act(|world| world.refuse_library(line.name(), refused));
            return false;
        }
    }

    /// Gives the library what all nodes have put.
    async fn answer_library(self: Rc<Self>, all: Vec<u8>) {
        if let Some(line) = &self.line {
            // If the process has ended, its reader tells that.
            drop(line.answer(&all).await);
        }
    }

    /// Looks at silent ranks until one has loaded a foreign library. Often at first, and then ever more rarely.
    async fn find_foreign(self: &Rc<Self>, pids: Vec<(Rank, i32)>) {
        let mut pause = FIRST_PAUSE;
        for look in 0_u32.. {
            tokio::time::sleep(pause).await;
            if look >= QUICK_LOOKS {
                pause = LONGEST_PAUSE.min(pause * 2);
            }
            let silent = self.world.borrow().silent();
            if silent.is_empty() {
                return;
            }
            let looked_at: Vec<_> = pids.iter().filter(|(rank, _)| silent.contains(rank)).copied().collect();
            let find = move || {
                looked_at.into_iter().find_map(|(rank, pid)| Some((rank, foreign::find_in_tree(pid)?)))
            };
            if let Ok(Some((rank, (library, whose)))) = tokio::task::spawn_blocking(find).await {
                // It may have spoken meanwhile: then another library has found its server.
                if self.world.borrow().silent().contains(&rank) {
                    return self.act(|world| world.foreign(rank, &library, whose));
                }
            }
        }
    }

    /// Processes the first message, if it is complete.
    fn hear_next(self: &Rc<Self>, rank: Rank, inbox: &mut Vec<u8>) -> Option<Heard> {
        let (heard, taken) = match Message::take(inbox) {
            Ok(None) => return None,
            Ok(Some((message, taken))) => (self.act(|world| world.hear(rank, &message)), taken),
            Err(malformed) => (self.act(|world| world.refuse(rank, malformed.0)), inbox.len()),
        };
        inbox.drain(..taken);
        Some(heard)
    }

    /// Reads what a rank sent before it ended.
    fn read_rest(self: &Rc<Self>, stream: &UnixStream, rank: Rank, inbox: &mut Vec<u8>) {
        while self.hear_next(rank, inbox).is_some() || read_now(stream, inbox) {}
    }

    /// Runs `act` on the world and carries out its deeds.
    fn act<T>(self: &Rc<Self>, act: impl FnOnce(&mut World) -> T) -> T {
        let mut world = self.world.borrow_mut();
        let done = act(&mut world);
        let deeds = world.take_deeds();
        drop(world);
        for deed in deeds {
            match deed {
                Deed::End(failed) => (self.wish)(Wish::End(failed)),
                Deed::Note(note) => (self.wish)(Wish::Note(note)),
                Deed::Outlive(rank) => drop(task::spawn_local(Self::outlive(Rc::downgrade(self), rank))),
                Deed::Answer(all) => drop(task::spawn_local(Rc::clone(self).answer_library(all))),
                Deed::Fence { number, by, puts } => {
                    task::spawn_local(Rc::clone(self).fence(number, by, puts));
                }
            }
        }
        done
    }

    /// Ends the world if ranks outlive one that has left with 0 without MPI_Finalize.
    async fn outlive(house: Weak<Self>, rank: Rank) {
        tokio::time::sleep(OUTLIVED).await;
        // The server may have been closed meanwhile.
        if let Some(house) = house.upgrade() {
            house.act(|world| world.outlive(rank));
        }
    }

    /// Exchanges the puts of all nodes, by a rendezvous of the nodes. Small puts register and wait by one notice, which
    /// agents on the way merge.
    async fn fence(self: Rc<Self>, number: u32, by: Rank, puts: Vec<u8>) {
        let (told, all) = oneshot::channel();
        if puts.len() as u64 <= MAX_SMALL_BYTES {
            (self.wish)(Wish::Ask(Request::Fence { number, puts, told }));
            return self.leave_fence(all.await);
        }
        let (taken, registered) = oneshot::channel();
        let of = Gate { resource: Resource::Fence(number), expected: None };
        // The get goes before the put: the put may complete the rendezvous, and the get must be known by then.
        let key = Key { of: of.clone(), want: Want::All };
        (self.wish)(Wish::Ask(Request::Get { key, told }));
        (self.wish)(Wish::Ask(Request::Put { of, rank: by, item: puts, room: Room::default(), told: taken }));
        let all = async {
            match registered.await {
                Ok(Ok(())) => all.await,
                Ok(Err(refused)) => Ok(Err(refused)),
                Err(leaving) => Err(leaving),
            }
        };
        self.leave_fence(all.await);
    }

    /// The fence is complete, or has failed.
    fn leave_fence(self: &Rc<Self>, outcome: Result<Result<Arc<Vec<u8>>, Refusal>, RecvError>) {
        // Without an answer the agent is leaving.
        let Ok(outcome) = outcome else { return };
        self.act(|world| match outcome {
            Ok(data) => world.fenced(&data),
            Err(Refusal::Failed(failure)) if failure.kind() == Kind::Gone => world.fence_alone(),
            Err(Refusal::Failed(failure)) => world.fence_failed(&failure.to_string()),
            Err(Refusal::Broken(broken)) => world.fence_failed(&broken.why),
        });
    }
}
