//! An agent that has its place in the tree, and its path to the frontend.

use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use gantry_link::queue::LinkQueue;
use gantry_shared::wire::message::{Answer, FlowId, Notice, Word};
use gantry_types::error::Failure;
use gantry_types::id::{NodeId, RequestId};
use tokio::sync::{Notify, mpsc};
use tokio::time::{sleep, timeout};

use super::input::Input;
use super::place::Place;
use super::relay::{Relay, lock};
use crate::channel::Hub;
use crate::task;

/// How long answers and puts wait for others of their kind.
const GATHER_TIME: Duration = Duration::from_millis(5);
/// How long the agent waits for its children's goodbyes before its own.
const CHILDREN_TIME: Duration = Duration::from_secs(10);
/// How long the parent has to read the goodbye.
const GOODBYE_TIME: Duration = Duration::from_secs(2);

/// An agent that has its place in the tree.
#[derive(Debug)]
pub(crate) struct Joined {
    /// This agent's number.
    pub(crate) node: NodeId,
    /// How many agents there are.
    pub(crate) nodes: u32,
    /// The inputs of this agent.
    pub(crate) inputs: mpsc::UnboundedReceiver<Input>,
    /// Its path to the frontend.
    pub(crate) up: Uplink,
}

/// The path to the frontend, and the relay behind it, shared by the tasks of its links. Only [`Uplink::close`] waits. Once
/// the path is gone, calls do nothing.
#[derive(Debug, Clone)]
pub(crate) struct Uplink {
    relay: Arc<Mutex<Relay>>,
}

impl Uplink {
    pub(super) fn new(place: Place, parent: LinkQueue, inputs: mpsc::UnboundedSender<Input>) -> Self {
        let gathering = Arc::new(Notify::new());
        let relay = Arc::new(Mutex::new(Relay::new(place, parent, inputs, Arc::clone(&gathering))));
        lock(&relay).own = Arc::downgrade(&relay);
        task::spawn(flush_in_time(Arc::downgrade(&relay), gathering));
        Self { relay }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Relay> {
        lock(&self.relay)
    }

    /// Answers an order.
    pub(crate) fn answer(&self, request: RequestId, answer: Result<Answer, Failure>) {
        self.lock().answer(request, answer);
    }

    /// Sends a notice. It arrives after all earlier answers and notices.
    pub(crate) fn notice(&self, notice: Notice) {
        self.lock().notice(notice);
    }

    /// Sends a word of one of this node's flows. In order, as [`Uplink::notice`].
    pub(crate) fn flow(&self, flow: FlowId, word: Word) {
        self.notice(Notice::Flow { flow, word });
    }

    /// Runs `act` on the channels and carries out its effects.
    pub(crate) fn channel<T>(&self, act: impl FnOnce(&mut Hub) -> T) -> T {
        self.lock().channel(act)
    }

    /// Closes the path to the frontend, which violates the protocol.
    pub(crate) fn refuse(&self, reason: &str) {
        self.lock().refuse_parent(reason);
    }

    /// Reports that this agent leaves without an order, and with it every agent below it.
    pub(crate) fn leaving_unasked(&self, reason: &str) {
        let mut relay = self.lock();
        let nodes = relay.place().find_own_subtree();
        relay.notice(Notice::NodesLost { nodes, reason: reason.to_owned() });
    }

    /// Leaves the tree.
    ///
    /// Waits until the children have said goodbye (10 s at most). Then sends what is left and its own goodbye (2 s at
    /// most).
    pub(crate) async fn close(self) {
        let mut links = self.lock().links();
        // Who does not close its link in time finds it cut.
        drop(timeout(CHILDREN_TIME, links.wait_for(|links| links.children == 0)).await);
        self.lock().say_goodbye();
        drop(timeout(GOODBYE_TIME, links.wait_for(|links| !links.parent)).await);
    }
}

/// Sends what is gathered after [`GATHER_TIME`], as long as the relay exists.
async fn flush_in_time(relay: Weak<Mutex<Relay>>, gathering: Arc<Notify>) {
    loop {
        gathering.notified().await;
        sleep(GATHER_TIME).await;
        match relay.upgrade() {
            Some(relay) => lock(&relay).flush(),
            None => return,
        }
    }
}
