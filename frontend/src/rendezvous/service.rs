//! All rendezvous of one app, driven by its agents' notices.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Mutex;
use std::time::Duration;

use gantry_shared::rendezvous::{Gathering, MAX_NAMED, Refused};
use gantry_shared::wire::flow::{FlowId, Word};
use gantry_shared::wire::message::{Order, To};
use gantry_shared::wire::rendezvous::{Gate, Key, Refusal, RendezvousNotice, RendezvousOrder, Want};
use gantry_types::error::{Failure, Kind};
use gantry_types::id::{AppId, NodeId, Rank};
use gantry_types::placement::Placement;
use gantry_types::rank_set::NodeSet;
use gantry_types::rendezvous::{Broken, MAX_TOTAL_BYTES, Resource, Status};
use gantry_types::status::ExitStatus;
use tokio::sync::{mpsc, oneshot, watch};

use super::deliver::{self, Message};
use super::fences::{FenceSeat, make_fence};
use super::multijob::{Multijob, Seat};
use super::place::{Outlet, Place, to_refusal};
use super::wait::while_moving;
use crate::error::Error;
use crate::lock::lock;
use crate::overlay::Overlay;

/// All rendezvous of an app.
#[derive(Debug)]
pub(crate) struct Service {
    app: AppId,
    placement: Placement,
    overlay: Overlay,
    deliveries: mpsc::UnboundedSender<Message>,
    /// Changes while large data is delivered.
    moves: watch::Receiver<()>,
    rooms: Mutex<Rooms>,
    changed: watch::Sender<u64>,
    seat: Mutex<Option<Seat>>,
    /// Its place in an MPI world of several apps.
    world: Mutex<Option<FenceSeat>>,
}

#[derive(Debug, Default)]
struct Rooms {
    /// The one of the whole app, unless it has no ranks or more than the limit; those with names; and fences of the
    /// ranks' MPI world that are not complete.
    places: BTreeMap<Resource, Place>,
    /// A fence was complete: all ranks are MPI programs, and have found each other.
    has_fenced: bool,
    /// Ranks that have ended, and how.
    ended: BTreeMap<u32, String>,
    /// Items that were announced and are not complete, by the node's number for them.
    coming: HashMap<(NodeId, u64), (Gate, Rank)>,
}

impl Service {
    /// Makes the service of an app whose ranks are about to exist. Must be called in a tokio runtime.
    pub(crate) fn new(app: AppId, placement: Placement, overlay: Overlay, seat: Option<Seat>) -> Self {
        let size = placement.rank_count();
        let job = Gathering::new(1, size, size).ok().map(|job| (Resource::Job, Place::new(job)));
        let (deliveries, moves) = deliver::start(overlay.clone());
        Self {
            app,
            placement,
            deliveries,
            moves,
            overlay,
            rooms: Mutex::new(Rooms { places: job.into_iter().collect(), ..Rooms::default() }),
            changed: watch::Sender::new(0),
            seat: Mutex::new(seat.map(Seat::occupy)),
            world: Mutex::default(),
        }
    }

    /// From now on the ranks' MPI world is made of several apps.
    pub(crate) fn join_fences(&self, seat: FenceSeat) {
        *lock(&self.world) = Some(seat);
    }

    fn world(&self) -> Option<FenceSeat> {
        lock(&self.world).clone()
    }

    /// Handles an agent's notice.
    pub(crate) fn take_notice(&self, node: NodeId, notice: RendezvousNotice) {
        match notice {
            RendezvousNotice::Put { item, of, rank, bytes } => match self.put(node, &of, rank, bytes) {
                Ok(false) => drop(lock(&self.rooms).coming.insert((node, item), (of, rank))),
                Ok(true) => self.registered(node, item, Ok(())),
                Err(why) => self.registered(node, item, Err(why)),
            },
            RendezvousNotice::Get(key) => {
                if let Err(why) = self.wait_for(node, &key) {
                    self.refuse(node, key, why);
                }
            }
            RendezvousNotice::Fence { number, puts } => {
                for (node, put) in puts {
                    self.enter_fence(node, number, put.0);
                }
            }
            RendezvousNotice::Status(of) => {
                let outcome = match &of {
                    None => Ok(self.list_with_above()),
                    Some(gate) => self.status(gate).map(|status| vec![status]),
                };
                self.tell(node, RendezvousOrder::Stands { of, outcome });
            }
        }
        self.tell_above();
        self.changed.send_modify(|count| *count += 1);
    }

    /// Handles a node's message of the flow of its ranks' items. Bytes of a refused item are dropped.
    pub(crate) fn hear(&self, node: NodeId, word: Word) {
        let Word::Data { label: item, bytes } = word else { return };
        self.overlay.taken(node, FlowId::Items, bytes.0.len());
        let coming = lock(&self.rooms).coming.get(&(node, item)).cloned();
        let Some(outcome) = coming.and_then(|(of, rank)| self.piece(node, &of, rank, bytes.0)) else {
            return;
        };
        lock(&self.rooms).coming.remove(&(node, item));
        self.registered(node, item, outcome.map_err(to_refusal));
        self.tell_above();
        self.changed.send_modify(|count| *count += 1);
    }

    /// A rank has ended. Its registered items and its items in flight stay.
    pub(crate) fn rank_ended(&self, rank: Rank, status: ExitStatus) {
        let why = format!("ended before it had registered ({status})");
        self.change_rooms(rank, &why, Place::end);
    }

    /// Nodes are lost, with their ranks' items in flight.
    pub(crate) fn nodes_lost(&self, nodes: &NodeSet) {
        lock(&self.rooms).coming.retain(|(node, _), _| !nodes.contains(*node));
        for rank in nodes.iter().flat_map(|node| self.placement.ranks_on(node).iter().collect::<Vec<_>>()) {
            self.change_rooms(rank, "was lost with its node", Place::lose);
        }
    }

    /// Whether this notice is the first of an MPI world of this app alone, on several nodes.
    pub(crate) fn begins_mpi_world(&self, notice: &RendezvousNotice) -> bool {
        let is_fence = match notice {
            RendezvousNotice::Put { of, .. } | RendezvousNotice::Get(Key { of, .. }) => {
                matches!(of.resource, Resource::Fence(_))
            }
            RendezvousNotice::Fence { .. } => true,
            RendezvousNotice::Status(_) => false,
        };
        if !is_fence {
            return false;
        }
        let rooms = lock(&self.rooms);
        self.placement.node_count() > 1
            && !rooms.has_fenced
            && rooms.fences().next().is_none()
            && self.world().is_none()
    }

    /// Whether the ranks have met in a fence: then all of them are in one MPI world.
    pub(crate) fn is_mpi_world(&self) -> bool {
        lock(&self.rooms).has_fenced
    }

    /// Waits until the nodes have what was to be sent to them so far. Processes that are no ranks may still take large
    /// data when the last rank has ended. False: they have taken none for the time `stall`.
    pub(crate) async fn finish_deliveries(&self, stall: Duration) -> bool {
        let (told, finished) = oneshot::channel();
        // The delivering task ends early if its runtime does.
        self.deliveries.send(Message::Finish(told)).is_err()
            || while_moving(finished, self.moves.clone(), stall).await.is_some()
    }

    /// The app is over.
    pub(crate) fn close(&self) {
        let seat = lock(&self.seat).take();
        drop(seat);
        if let Some(world) = self.world() {
            world.end(&BTreeSet::new(), "it is over");
        }
        let mut rooms = lock(&self.rooms);
        // Tell the callers in this process.
        if let Some(job) = rooms.places.get_mut(&Resource::Job) {
            let ended = 0..self.placement.rank_count();
            for rank in ended {
                job.lose(rank, "is over and had not registered");
            }
        }
        drop(rooms);
        self.changed.send_modify(|count| *count += 1);
    }

    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// The data of the ranks, once all have registered.
    pub(super) fn job_data(&self) -> Result<Option<Vec<u8>>, Error> {
        lock(&self.rooms).places.get(&Resource::Job).map_or(Ok(None), Place::outcome)
    }

    /// The state of all rendezvous of the app.
    pub(super) fn list(&self) -> Vec<Status> {
        let above = lock(&self.seat).as_ref().map(|seat| {
            let (multijob, number) = seat.multijob();
            (multijob.resource(), number)
        });
        let status = |(resource, place): (&Resource, &Place)| match resource {
            Resource::Fence(_) => None,
            Resource::Job => Some(place.status(Resource::Job, above.clone())),
            named => Some(place.status(named.clone(), None)),
        };
        lock(&self.rooms).places.iter().filter_map(status).collect()
    }

    fn list_with_above(&self) -> Vec<Status> {
        let mut all = self.list();
        let mut next = lock(&self.seat).as_ref().map(|seat| seat.multijob().0.clone());
        while let Some(multijob) = next {
            all.push(multijob.status());
            next = multijob.above().map(|(above, _)| above);
        }
        all
    }

    /// A node has entered a fence: it registers what its ranks have put, and waits for what all have put.
    fn enter_fence(&self, node: NodeId, number: u32, put: Vec<u8>) {
        let of = Gate { resource: Resource::Fence(number), expected: None };
        let key = Key { of: of.clone(), want: Want::All };
        // It waits first: its put may complete the fence, which is forgotten then.
        let entered = self.wait_for(node, &key).and_then(|()| {
            self.change_room(&of, |place, room| place.put_whole(node.0, put, room))?.map_err(to_refusal)
        });
        if let Err(why) = entered {
            self.refuse(node, key, why);
        }
    }

    fn refuse(&self, node: NodeId, key: Key, why: Refusal) {
        self.tell(node, RendezvousOrder::Got { key, outcome: Err(why) });
    }

    fn put(&self, node: NodeId, of: &Gate, rank: Rank, bytes: u64) -> Result<bool, Refusal> {
        if !self.is_on(rank, node) {
            let why = format!("register rank {rank}: it is not on that node");
            return Err(Failure::new(Kind::Invalid, why).into());
        }
        if let Resource::Multijob(_) = of.resource {
            let (multijob, number) = self.find_controlled(&of.resource, rank)?;
            return multijob.put(number, bytes).map_err(to_refusal);
        }
        let member = member_of(of, rank, node);
        self.change_room(of, |place, room| place.put(member, bytes, room))?.map_err(to_refusal)
    }

    fn piece(&self, node: NodeId, of: &Gate, rank: Rank, bytes: Vec<u8>) -> Option<Result<(), Refused>> {
        if let Resource::Multijob(_) = of.resource {
            // A sender sends bytes after the announcement, before it learns of a refusal.
            let (multijob, number) = self.find_controlled(&of.resource, rank).ok()?;
            return multijob.piece(number, bytes);
        }
        let member = member_of(of, rank, node);
        self.change_room(of, |place, _| place.piece(member, bytes)).ok()?
    }

    /// Changes a rendezvous of this app. `change` learns how many bytes there is room for.
    fn change_room<T>(&self, of: &Gate, change: impl FnOnce(&mut Place, u64) -> T) -> Result<T, Refusal> {
        let mut rooms = lock(&self.rooms);
        let room = MAX_TOTAL_BYTES.saturating_sub(rooms.bytes());
        let changed = change(rooms.enter(of, &self.placement)?, room);
        self.pass_complete(&mut rooms, of);
        Ok(changed)
    }

    /// Removes a complete fence, since no node asks for it again. In a world of several apps its data goes to the
    /// world.
    fn pass_complete(&self, rooms: &mut Rooms, of: &Gate) {
        let Resource::Fence(number) = of.resource else { return };
        if !rooms.places.get(&of.resource).is_some_and(|fence| fence.gathering.is_complete()) {
            return;
        }
        let Some(fence) = rooms.places.remove(&of.resource) else { return };
        rooms.has_fenced = true;
        if let (Some(world), Some(data)) = (self.world(), fence.data()) {
            world.arrive(number, data);
        }
    }

    fn wait_for(&self, node: NodeId, key: &Key) -> Result<(), Refusal> {
        let outlet = Outlet { app: self.app, deliveries: self.deliveries.downgrade() };
        if let Resource::Multijob(_) = key.of.resource {
            let (multijob, ..) = self.find_above(&key.of.resource)?;
            multijob.wait_for(key.clone(), &outlet, node);
            return Ok(());
        }
        let mut rooms = lock(&self.rooms);
        let place = rooms.enter(&key.of, &self.placement)?;
        match (&key.of.resource, self.world()) {
            (Resource::Fence(number), Some(world)) => {
                if let Some(broken) = place.gathering.broken().cloned() {
                    return Err(broken.into());
                }
                world.wait_for(*number, key.clone(), &outlet, node)?;
            }
            _ => place.wait(key.clone(), &outlet, node),
        }
        Ok(())
    }

    fn status(&self, gate: &Gate) -> Result<Status, Refusal> {
        if let Resource::Multijob(_) = gate.resource {
            return Ok(self.find_above(&gate.resource)?.0.status());
        }
        lock(&self.rooms).enter(gate, &self.placement)?;
        let found = self.list().into_iter().find(|status| status.resource == gate.resource);
        found.ok_or_else(|| unknown(&gate.resource))
    }

    fn find_above(&self, resource: &Resource) -> Result<(Multijob, u32, bool), Refusal> {
        let seat = lock(&self.seat);
        let found = match resource {
            Resource::Multijob(id) => seat.as_ref().and_then(|seat| seat.find(*id)),
            Resource::Job | Resource::Named(_) | Resource::Fence(_) => None,
        };
        found.ok_or_else(|| unknown(resource))
    }

    /// The rendezvous above at which that rank registers, and its member number there.
    fn find_controlled(&self, resource: &Resource, rank: Rank) -> Result<(Multijob, u32), Refusal> {
        let (multijob, number, controls) = self.find_above(resource)?;
        if rank != Rank(0) || !controls {
            let why = format!("register at {resource}: rank 0 of the first app does that");
            return Err(Failure::new(Kind::NoAccess, why).into());
        }
        Ok((multijob, number))
    }

    /// From now on the rank can register in no rendezvous. Applies `change` to those in which it has a place.
    fn change_rooms(&self, rank: Rank, why: &str, change: fn(&mut Place, u32, &str) -> bool) {
        let mut rooms = lock(&self.rooms);
        rooms.ended.entry(rank.0).or_insert_with(|| why.to_owned());
        let (home, whose) = (self.placement.get(rank), format!("rank {rank} {why}"));
        for (resource, place) in &mut rooms.places {
            match (resource, home) {
                // A node takes part in a fence with all of its ranks, or not at all.
                (Resource::Fence(_), Some(home)) => change(place, home.node.0, &whose),
                (Resource::Fence(_), None) => false,
                _ => change(place, rank.0, why),
            };
        }
        if let Some(world) = self.world() {
            let comes = rooms.fences().filter(|(_, fence)| fence.gathering.broken().is_none());
            world.end(&comes.map(|(number, _)| number).collect(), &whose);
        }
        drop(rooms);
        self.tell_above();
        if rank == Rank(0) {
            self.end_above(&format!("will not register: rank 0 {why}"));
        }
        self.changed.send_modify(|count| *count += 1);
    }

    /// If the app's rendezvous failed, tells the one above that its member will never register. An unused rendezvous
    /// does not count.
    fn tell_above(&self) {
        let rooms = lock(&self.rooms);
        let job = rooms.places.get(&Resource::Job).filter(|job| job.in_use);
        let broken = job.and_then(|job| job.gathering.broken()).cloned();
        drop(rooms);
        if let Some(Broken { what, member, why }) = broken {
            self.end_above(&format!("will not register: its {what} {member} {why}"));
        }
    }

    fn end_above(&self, why: &str) {
        if let Some((multijob, number)) = lock(&self.seat).as_ref().map(Seat::multijob) {
            multijob.end(number, why);
        }
    }

    fn is_on(&self, rank: Rank, node: NodeId) -> bool {
        self.placement.get(rank).is_some_and(|place| place.node == node)
    }

    fn registered(&self, node: NodeId, item: u64, outcome: Result<(), Refusal>) {
        self.tell(node, RendezvousOrder::Registered { item, outcome });
    }

    fn tell(&self, node: NodeId, order: RendezvousOrder) {
        self.overlay.tell(To::Nodes(NodeSet::from_range(node..=node)), Order::Rendezvous(order));
    }
}

impl Rooms {
    fn bytes(&self) -> u64 {
        self.places.values().map(|place| place.gathering.bytes()).sum()
    }

    fn fences(&self) -> impl Iterator<Item = (u32, &Place)> {
        self.places.iter().filter_map(|(resource, place)| match resource {
            Resource::Fence(number) => Some((*number, place)),
            Resource::Job | Resource::Named(_) | Resource::Multijob(_) => None,
        })
    }

    /// Finds the rendezvous. Makes it if it has a name or is a fence, and does not exist.
    fn enter(&mut self, gate: &Gate, placement: &Placement) -> Result<&mut Place, Refusal> {
        if !self.places.contains_key(&gate.resource) {
            let place = match gate.resource {
                Resource::Named(_) => self.create(gate, placement.rank_count())?,
                Resource::Fence(_) => self.create_fence(placement)?,
                Resource::Job | Resource::Multijob(_) => return Err(unknown(&gate.resource)),
            };
            self.places.insert(gate.resource.clone(), place);
        }
        let place = self.places.get_mut(&gate.resource).ok_or_else(|| unknown(&gate.resource))?;
        let expected = place.gathering.expected();
        match gate.expected {
            Some(other) if other != expected => {
                let why =
                    format!("enter rendezvous {}: it is for {expected} ranks, not {other}", gate.resource);
                Err(Failure::new(Kind::Invalid, why).into())
            }
            _ => Ok(place),
        }
    }

    fn create(&self, gate: &Gate, size: u32) -> Result<Place, Refusal> {
        let expected = gate.expected.ok_or_else(|| unknown(&gate.resource))?;
        let named = self.places.keys().filter(|resource| matches!(resource, Resource::Named(_))).count();
        if named >= MAX_NAMED {
            let why = format!("make rendezvous {}: there are {MAX_NAMED} already", gate.resource);
            return Err(Failure::new(Kind::Invalid, why).into());
        }
        let gathering = Gathering::new(1, size, expected);
        let gathering = gathering.map_err(|error| Failure::new(Kind::Invalid, error.to_string()))?;
        let mut place = Place::new(gathering);
        for (rank, why) in &self.ended {
            place.end(*rank, why);
        }
        Ok(place)
    }

    /// Makes a fence for all nodes with ranks.
    fn create_fence(&self, placement: &Placement) -> Result<Place, Refusal> {
        let nodes = (0..placement.node_count()).map(NodeId);
        let (with, without): (Vec<_>, Vec<_>) = nodes.partition(|node| !placement.ranks_on(*node).is_empty());
        let expected = u32::try_from(with.len()).unwrap_or(u32::MAX);
        let mut place = make_fence(self.fences().count(), 1, placement.node_count(), expected)?;
        for node in without {
            place.end(node.0, "has no ranks");
        }
        for (rank, why) in &self.ended {
            if let Some(home) = placement.get(Rank(*rank)) {
                place.end(home.node.0, &format!("rank {rank} {why}"));
            }
        }
        Ok(place)
    }
}

/// The member number with which a rank or node registers there.
fn member_of(of: &Gate, rank: Rank, node: NodeId) -> u32 {
    match of.resource {
        Resource::Fence(_) => node.0,
        Resource::Job | Resource::Named(_) | Resource::Multijob(_) => rank.0,
    }
}

fn unknown(resource: &Resource) -> Refusal {
    let why = format!("find rendezvous {resource}: this app has none of that name");
    Failure::new(Kind::NotFound, why).with_hint("to create one, give its name and the number of ranks").into()
}
