//! One rendezvous: its items, and the waiting nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use gantry_shared::rendezvous::{Gathering, Part, Refused};
use gantry_shared::wire::rendezvous::{Gate, Key, Refusal, Want};
use gantry_types::error::{Failure, Kind};
use gantry_types::id::{AppId, NodeId};
use gantry_types::rank_set::NodeSet;
use gantry_types::rendezvous::{Broken, Resource, Status};
use tokio::sync::mpsc::WeakUnboundedSender;

use super::deliver::{Content, Delivery, Message};
use crate::error::Error;

/// The connection to the nodes of an app.
#[derive(Debug, Clone)]
pub(super) struct Outlet {
    pub(super) app: AppId,
    pub(super) deliveries: WeakUnboundedSender<Message>,
}

impl Outlet {
    fn deliver(&self, delivery: Delivery) {
        // An app that is over has no waiting nodes.
        if let Some(deliveries) = self.deliveries.upgrade() {
            drop(deliveries.send(Message::Deliver(delivery)));
        }
    }
}

/// Nodes of one app on which processes wait for the same data.
#[derive(Debug)]
struct Waiting {
    outlet: Outlet,
    of: Gate,
    nodes: NodeSet,
}

/// A rendezvous.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) gathering: Gathering,
    waiting: BTreeMap<Want, Vec<Waiting>>,
    /// A process has registered here, or waits.
    pub(super) in_use: bool,
}

impl Place {
    pub(super) fn new(gathering: Gathering) -> Self {
        Self { gathering, waiting: BTreeMap::new(), in_use: false }
    }

    /// Announces a member's item of `bytes` bytes, if `room` allows it. True: the item is empty, so it is registered
    /// already.
    pub(super) fn put(&mut self, member: u32, bytes: u64, room: u64) -> Result<bool, Refused> {
        self.in_use = true;
        self.gathering.announce(member, bytes, room)?;
        match bytes {
            0 => self.piece(member, Vec::new()).unwrap_or(Ok(())).map(|()| true),
            _ => Ok(false),
        }
    }

    /// Registers a member's whole item, if `room` allows it.
    pub(super) fn put_whole(&mut self, member: u32, item: Vec<u8>, room: u64) -> Result<(), Refused> {
        match self.put(member, item.len() as u64, room)? {
            true => Ok(()),
            false => self.piece(member, item).unwrap_or(Ok(())),
        }
    }

    /// Takes the next bytes of a member's item. None: the item is not complete, or was not announced.
    pub(super) fn piece(&mut self, member: u32, bytes: Vec<u8>) -> Option<Result<(), Refused>> {
        let complete = self.gathering.take(member, bytes)?;
        if complete == Ok(true) || self.gathering.broken().is_some() {
            self.settle_all();
        } else {
            self.settle(Want::Item(member));
        }
        Some(complete.map(drop))
    }

    /// A member has ended. Its data in flight still arrives. True: the rendezvous can never be complete.
    pub(super) fn end(&mut self, member: u32, why: &str) -> bool {
        let broken = self.gathering.end(member, why);
        if broken {
            self.settle_all();
        }
        broken
    }

    /// A member has ended, and its data in flight is lost.
    pub(super) fn lose(&mut self, member: u32, why: &str) -> bool {
        let broken = self.gathering.lose(member, why);
        if broken {
            self.settle_all();
        }
        broken
    }

    /// A process on a node waits.
    pub(super) fn wait(&mut self, key: Key, outlet: &Outlet, node: NodeId) {
        self.in_use = true;
        let Key { of, want } = key;
        let all = self.waiting.entry(want).or_default();
        match all.iter_mut().find(|it| it.outlet.app == outlet.app && it.of == of) {
            Some(waiting) => drop(waiting.nodes.insert(node)),
            None => {
                let nodes = NodeSet::from_range(node..=node);
                all.push(Waiting { outlet: outlet.clone(), of, nodes });
            }
        }
        self.settle(want);
    }

    /// Answers all that wait for `want`, if it is ready or can never be.
    fn settle(&mut self, want: Want) {
        let Some(outcome) = self.look(want) else { return };
        for Waiting { outlet, of, nodes } in self.waiting.remove(&want).unwrap_or_default() {
            outlet.deliver(Delivery { nodes, key: Key { of, want }, outcome: outcome.clone() });
        }
    }

    fn settle_all(&mut self) {
        let wants: Vec<Want> = self.waiting.keys().copied().collect();
        wants.into_iter().for_each(|want| self.settle(want));
    }

    /// The answer for `want`. None: not yet.
    fn look(&self, want: Want) -> Option<Result<Content, Refusal>> {
        let gathering = &self.gathering;
        if let Want::Item(member) = want
            && let Some(item) = gathering.item(member)
        {
            return Some(Ok(Content::new(vec![Part::Item(Arc::clone(item))])));
        }
        if let Some(broken) = gathering.broken() {
            return Some(Err(broken.clone().into()));
        }
        match want {
            Want::All => gathering.aggregate().map(|parts| Ok(Content::new(parts))),
            Want::Complete => gathering.is_complete().then(|| Ok(Content::new(Vec::new()))),
            Want::Item(member) if member >= gathering.members() || gathering.is_complete() => {
                let why = format!("get the item of {member}: it does not take part in this rendezvous");
                Some(Err(Failure::new(Kind::NotFound, why).into()))
            }
            Want::Item(_) => None,
        }
    }

    /// The aggregate in one piece, when it is complete.
    pub(super) fn data(&self) -> Option<Vec<u8>> {
        Some(Content::new(self.gathering.aggregate()?).to_blob().0)
    }

    /// As [`Place::data`], for a caller in this process, who is told why it can never be complete.
    pub(super) fn outcome(&self) -> Result<Option<Vec<u8>>, Error> {
        match self.gathering.broken() {
            Some(Broken { what, member, why }) => {
                Err(Error::Lost { what: vec![format!("{what} {member}")], reason: why.clone() })
            }
            None => Ok(self.data()),
        }
    }

    /// Its present state.
    pub(super) fn status(&self, resource: Resource, above: Option<(Resource, u32)>) -> Status {
        let gathering = &self.gathering;
        Status {
            resource,
            level: gathering.level(),
            expected: gathering.expected(),
            registered: gathering.registered(),
            standing: gathering.standing(),
            above,
        }
    }
}

/// The refusal in the form in which it is sent.
pub(super) fn to_refusal(refused: Refused) -> Refusal {
    match refused {
        Refused::Broken(broken) => broken.into(),
        Refused::Malformed { ref source, .. } => {
            Failure::new(Kind::Invalid, format!("{refused}: {source}")).into()
        }
        refused => Failure::new(Kind::Invalid, refused.to_string()).into(),
    }
}

#[cfg(test)]
mod tests;
