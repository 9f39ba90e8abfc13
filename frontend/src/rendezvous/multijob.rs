//! A rendezvous whose members are apps, or other such rendezvous: levels 2 and higher.
//!
//! The rank 0 of every app registers here what its own ranks have registered, and waits. At further levels the
//! controlling task is rank 0 of the first app of the first member, recursively.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gantry_shared::rendezvous::handle::Subjob;
use gantry_shared::rendezvous::{Gathering, Refused};
use gantry_shared::wire::rendezvous::Key;
use gantry_types::id::{AppId, NodeId};
use gantry_types::rendezvous::{MAX_TOTAL_BYTES, MultijobId, Resource, Status};
use tokio::sync::watch;

use super::place::{Outlet, Place};
use super::wait::until;
use crate::error::{Error, Result};
use crate::lock::lock;

/// A rendezvous above apps. Clones are the same one. It lasts as long as one of them, or an app that is part of it.
///
/// ```no_run
/// use std::time::Duration;
/// use gantry_frontend::rendezvous::Multijob;
/// use gantry_frontend::{Config, Frontend, LaunchRequest};
///
/// # async fn tool() -> gantry_frontend::Result<()> {
/// let minute = Duration::from_secs(60);
/// let frontend = Frontend::new(Config::default());
/// let multijob = Multijob::new(2)?;
/// let ocean = LaunchRequest::new(["-n", "4", "./ocean"]).subjob(&multijob, 0);
/// let air = LaunchRequest::new(["-n", "8", "./air"]).subjob(&multijob, 1);
/// let (_ocean, _air) = (frontend.launch(ocean, minute).await?, frontend.launch(air, minute).await?);
/// println!("{} bytes of all ranks", multijob.wait(minute).await?.len());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Multijob {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    id: MultijobId,
    level: u8,
    expected: u32,
    place: Mutex<Place>,
    taken: Mutex<BTreeSet<u32>>,
    above: Mutex<Option<(Multijob, u32)>>,
    changed: watch::Sender<u64>,
}

impl Multijob {
    /// Makes a rendezvous of that many apps: level 2.
    ///
    /// # Errors
    /// [`Error::Invalid`]: the number is 0 or far too large.
    pub fn new(subjobs: u32) -> Result<Self> {
        Self::of_level(2, subjobs)
    }

    /// Makes a rendezvous of that many members of the level below. Level 3 and higher consist of multijobs.
    ///
    /// # Errors
    /// [`Error::Invalid`]: the level or the number is out of range.
    pub fn of_level(level: u8, members: u32) -> Result<Self> {
        let gathering = Gathering::new(level, members, members).ok().filter(|_| level >= 2);
        let gathering = gathering.ok_or_else(|| {
            Error::invalid(format!("there is no multijob of level {level} with {members} subjobs"))
        })?;
        let id = AppId::random().map_err(|e| Error::io("cannot make an id", std::io::Error::other(e)))?;
        let inner = Inner {
            id: MultijobId(id),
            level,
            expected: members,
            place: Mutex::new(Place::new(gathering)),
            taken: Mutex::default(),
            above: Mutex::default(),
            changed: watch::Sender::new(0),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Makes this multijob member `number` of one of the level above.
    ///
    /// # Errors
    /// [`Error::Invalid`]: this one is part of another already, `above` is not of the level above, has no such member,
    /// or has it already.
    pub fn join(&self, above: &Multijob, number: u32) -> Result<()> {
        if above.inner.level != self.inner.level + 1 {
            let message = format!(
                "a multijob of level {} cannot be part of one of level {}",
                self.inner.level, above.inner.level
            );
            return Err(Error::invalid(message));
        }
        let mut slot = lock(&self.inner.above);
        if slot.is_some() {
            return Err(Error::invalid(format!("multijob {} is part of another one already", self.id())));
        }
        above.take_seat(number)?;
        *slot = Some((above.clone(), number));
        Ok(())
    }

    /// Its id, which is in the handles of its apps' ranks.
    pub fn id(&self) -> MultijobId {
        self.inner.id
    }

    /// Its level, 2 or more.
    pub fn level(&self) -> u8 {
        self.inner.level
    }

    /// Its present state.
    pub fn status(&self) -> Status {
        let above = self.above().map(|(above, number)| (above.resource(), number));
        lock(&self.inner.place).status(self.resource(), above)
    }

    /// All that has been registered, as data of its level. Waits until it is complete.
    ///
    /// # Errors
    /// [`Error::Lost`] names the subjob that ended before it had registered; [`Error::TimedOut`].
    pub async fn wait(&self, timeout: Duration) -> Result<Vec<u8>> {
        until(self.inner.changed.subscribe(), timeout, || lock(&self.inner.place).outcome()).await
    }

    pub(super) fn resource(&self) -> Resource {
        Resource::Multijob(self.inner.id)
    }

    /// The multijob above, and this one's number there.
    pub(super) fn above(&self) -> Option<(Multijob, u32)> {
        lock(&self.inner.above).clone()
    }

    /// A controlling task registers an item of `bytes` bytes.
    pub(super) fn put(&self, member: u32, bytes: u64) -> std::result::Result<bool, Refused> {
        self.change(|place| {
            let room = MAX_TOTAL_BYTES.saturating_sub(place.gathering.bytes());
            place.put(member, bytes, room)
        })
    }

    pub(super) fn piece(&self, member: u32, bytes: Vec<u8>) -> Option<std::result::Result<(), Refused>> {
        self.change(|place| place.piece(member, bytes))
    }

    pub(super) fn wait_for(&self, key: Key, outlet: &Outlet, node: NodeId) {
        lock(&self.inner.place).wait(key, outlet, node);
    }

    /// A member will not register any more. Its data that has not arrived completely is lost.
    pub(super) fn lose(&self, member: u32, why: &str) {
        self.change(|place| place.lose(member, why));
    }

    /// A member will not begin to register any more. Its data in flight still arrives.
    pub(super) fn end(&self, member: u32, why: &str) {
        self.change(|place| place.end(member, why));
    }

    fn change<T>(&self, change: impl FnOnce(&mut Place) -> T) -> T {
        let mut place = lock(&self.inner.place);
        let was_broken = place.gathering.broken().is_some();
        let changed = change(&mut place);
        let broken = place.gathering.broken().filter(|_| !was_broken).cloned();
        drop(place);
        self.inner.changed.send_modify(|count| *count += 1);
        if let (Some(broken), Some((above, number))) = (broken, self.above()) {
            above.lose(number, &format!("is broken: {} {} {}", broken.what, broken.member, broken.why));
        }
        changed
    }

    fn take_seat(&self, number: u32) -> Result<()> {
        let (id, expected) = (self.id(), self.inner.expected);
        if number >= expected {
            return Err(Error::invalid(format!(
                "multijob {id} has {expected} subjobs; subjob {number} is not one of them"
            )));
        }
        if !lock(&self.inner.taken).insert(number) {
            return Err(Error::invalid(format!("multijob {id} has its subjob {number} already")));
        }
        Ok(())
    }
}

/// An app's place in a multijob. If it is dropped before the app exists, another app may take it. Later, dropping it
/// reports the app's end to all.
#[derive(Debug)]
pub(crate) struct Seat {
    multijob: Multijob,
    number: u32,
    /// The app exists.
    taken: bool,
}

impl Seat {
    /// Takes the place.
    ///
    /// # Errors
    /// [`Error::Invalid`]: there is no such number, it is taken, or the multijob does not consist of apps.
    pub(crate) fn take(multijob: &Multijob, number: u32) -> Result<Self> {
        if multijob.level() != 2 {
            return Err(Error::invalid(format!(
                "a multijob of level {} is not made of apps",
                multijob.level()
            )));
        }
        multijob.take_seat(number)?;
        Ok(Self { multijob: multijob.clone(), number, taken: false })
    }

    /// The place, as the app's ranks are told.
    pub(crate) fn subjob(&self) -> Subjob {
        Subjob { multijob: self.multijob.id(), rank: self.number }
    }

    /// The app exists now.
    pub(super) fn occupy(mut self) -> Self {
        self.taken = true;
        self
    }

    pub(super) fn multijob(&self) -> (&Multijob, u32) {
        (&self.multijob, self.number)
    }

    /// Finds the rendezvous `id` above the app. Also returns the number there (the app's own, or that of the multijob
    /// that it is part of), and whether the app's rank 0 is the one that registers there.
    pub(super) fn find(&self, id: MultijobId) -> Option<(Multijob, u32, bool)> {
        let (mut multijob, mut number, mut controls) = (self.multijob.clone(), self.number, true);
        while multijob.id() != id {
            controls &= number == 0;
            (multijob, number) = multijob.above()?;
        }
        Some((multijob, number, controls))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if self.taken {
            self.multijob.lose(self.number, "is over and had not registered");
        } else {
            lock(&self.multijob.inner.taken).remove(&self.number);
        }
    }
}
