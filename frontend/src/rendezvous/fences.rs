//! Fences of an MPI world that is made of several apps. Each app first gathers what its nodes have put. Then the data
//! of all apps is gathered here.
//!
//! A fence is a rendezvous of level 2 whose members are the apps. Nodes wait here for a fence, and get everything that
//! was put.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use gantry_shared::rendezvous::Gathering;
use gantry_shared::wire::rendezvous::{Key, Refusal};
use gantry_types::error::{Failure, Kind};
use gantry_types::id::NodeId;
use gantry_types::rendezvous::MAX_TOTAL_BYTES;

use super::place::{Outlet, Place};
use crate::lock::lock;

/// Most fences that are not complete. Nodes are never more than one fence apart.
const MAX_FENCES: usize = 4;

/// The fences of a world.
#[derive(Debug)]
pub(crate) struct SharedFences {
    parts: u32,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    open: BTreeMap<u32, Place>,
    /// Parts with ended ranks, and the reason. They take part in no fence that begins later.
    ended: BTreeMap<u32, String>,
}

/// An app's place in a world.
#[derive(Debug, Clone)]
pub(crate) struct FenceSeat {
    /// The world's fences.
    pub(crate) fences: std::sync::Arc<SharedFences>,
    /// The number of the app in it.
    pub(crate) part: u32,
    /// The app's name for people.
    pub(crate) label: String,
}

impl SharedFences {
    /// Makes the fences for a world of `parts` apps.
    pub(crate) fn new(parts: u32) -> Self {
        Self { parts, inner: Mutex::default() }
    }
}

impl FenceSeat {
    /// A process on a node of this app waits for that fence.
    pub(super) fn wait_for(
        &self,
        number: u32,
        key: Key,
        outlet: &Outlet,
        node: NodeId,
    ) -> Result<(), Refusal> {
        let mut inner = lock(&self.fences.inner);
        inner.enter(number, self.fences.parts)?.wait(key, outlet, node);
        Ok(())
    }

    /// All nodes of this app have reached that fence, with this data.
    pub(super) fn arrive(&self, number: u32, data: Vec<u8>) {
        let mut inner = lock(&self.fences.inner);
        let room = MAX_TOTAL_BYTES.saturating_sub(inner.bytes());
        let Ok(place) = inner.enter(number, self.fences.parts) else { return };
        if let Err(refused) = place.put_whole(self.part, data, room) {
            // The others learn why that fence will never be complete.
            place.lose(self.part, &refused.to_string());
        }
        inner.open.retain(|_, place| !place.gathering.is_complete());
    }

    /// Ranks of this app have ended. It takes part only in the fences that it is on its way to.
    pub(super) fn end(&self, on_its_way: &BTreeSet<u32>, why: &str) {
        let why = format!("subjob {}: {why}", self.label);
        let mut inner = lock(&self.fences.inner);
        inner.ended.entry(self.part).or_insert_with(|| why.clone());
        for (number, place) in &mut inner.open {
            if !on_its_way.contains(number) {
                place.end(self.part, &why);
            }
        }
    }
}

impl Inner {
    fn bytes(&self) -> u64 {
        self.open.values().map(|place| place.gathering.bytes()).sum()
    }

    fn enter(&mut self, number: u32, parts: u32) -> Result<&mut Place, Refusal> {
        let open = self.open.len();
        match self.open.entry(number) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(free) => {
                let mut place = make_fence(open, 2, parts, parts)?;
                for (part, why) in &self.ended {
                    place.end(*part, why);
                }
                Ok(free.insert(place))
            }
        }
    }
}

/// Makes a fence of that level for `expected` of `size` members, beside the `open` ones.
pub(super) fn make_fence(open: usize, level: u8, size: u32, expected: u32) -> Result<Place, Refusal> {
    if open >= MAX_FENCES {
        let why = format!("make a fence: there are {MAX_FENCES} that are not complete");
        let hint = "a node does not enter fences in their order";
        return Err(Failure::new(Kind::Invalid, why).with_hint(hint).into());
    }
    let gathering = Gathering::new(level, size, expected);
    gathering.map(Place::new).map_err(|error| Failure::new(Kind::Invalid, error.to_string()).into())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use gantry_shared::wire::rendezvous::{Gate, Want};
    use gantry_types::id::AppId;
    use gantry_types::rendezvous::{Data, Limits, Resource};
    use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

    use super::super::deliver::{Delivery, Message};
    use super::*;

    /// Two apps of a world, and what is delivered to both.
    fn world() -> ([FenceSeat; 2], impl Fn(&FenceSeat, u32), UnboundedReceiver<Message>) {
        let fences = Arc::new(SharedFences::new(2));
        let seats =
            [0, 1].map(|part| FenceSeat { fences: Arc::clone(&fences), part, label: "sea".to_owned() });
        let (deliveries, delivered) = unbounded_channel();
        let app: AppId = "3kx9w0fz".parse().unwrap();
        let wait = move |seat: &FenceSeat, number| {
            let of = Gate { resource: Resource::Fence(number), expected: None };
            let outlet = Outlet { app, deliveries: deliveries.downgrade() };
            seat.wait_for(number, Key { of, want: Want::All }, &outlet, NodeId(seat.part)).unwrap();
        };
        (seats, wait, delivered)
    }

    fn next(delivered: &mut UnboundedReceiver<Message>) -> Delivery {
        match delivered.try_recv().unwrap() {
            Message::Deliver(delivery) => delivery,
            Message::Finish(_) => unreachable!("nothing else is said"),
        }
    }

    #[test]
    fn a_fence_is_complete_when_all_apps_have_come() {
        let ([one, two], wait, mut delivered) = world();
        wait(&one, 0);
        one.arrive(0, b"1 3 abc".to_vec());
        wait(&two, 0);
        assert!(delivered.try_recv().is_err());
        two.arrive(0, b"2 1 x0 ".to_vec());
        let Delivery { nodes, outcome, .. } = next(&mut delivered);
        assert_eq!(nodes.len(), 2);
        let bytes = outcome.unwrap().to_blob().0;
        let all = Data::decode(2, &bytes, Limits::default()).unwrap();
        let parts = all.as_group().unwrap();
        assert_eq!(parts.len(), 2);
        assert_eq!(parts[0].as_group().unwrap()[0].as_item(), Some(&b"abc"[..]));
        assert!(lock(&one.fences.inner).open.is_empty());
    }

    #[test]
    fn an_app_that_has_ended_breaks_what_it_is_not_on_its_way_to() {
        let ([one, two], wait, mut delivered) = world();
        wait(&two, 0);
        one.end(&BTreeSet::from([0]), "rank 3 ended");
        assert!(delivered.try_recv().is_err(), "it may still come");
        one.arrive(0, b"0 ".to_vec());
        two.arrive(0, b"0 ".to_vec());
        assert!(next(&mut delivered).outcome.is_ok());
        wait(&two, 1);
        let refused = next(&mut delivered).outcome.unwrap_err();
        assert!(refused.to_string().contains("subjob sea: rank 3 ended"), "{refused}");
    }
}
