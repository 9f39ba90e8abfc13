//! Bridges to other agents of the job: who may dial, which of them stand, and which link the lanes on them belong to.
//!
//! Nothing in here waits but the tasks that dial and read. What comes on a bridge is given to the link that it is for; memory is bounded by the credit of lanes.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use gantry_link::greeting::Halves;
use gantry_link::link::{Incoming, LinkReader};
use gantry_link::queue::LinkQueue;
use gantry_shared::secret::Secret;
use gantry_shared::wire::bridge::{
    BridgeNotice, BridgeNumber, BridgeOrder, BridgeWord, LANE_MOST_BYTES, LaneNumber, OWN_BRIDGE,
};
use gantry_shared::wire::frame;
use gantry_shared::wire::message::Blob;
use gantry_shared::wire::window::Receiver;
use gantry_types::id::Rank;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout};

use super::input::Input;
use super::lane::Lane;
use crate::overlay::dial_bridge;

/// Bytes that may wait for the other agent of a bridge: both ends read at any time, so neither can be held back by not being read.
const MOST_WAITING_BYTES: usize = 64 * 1024 * 1024;

/// Bridges that may be awaited at once.
const AWAITED: usize = 256;

/// All bridges of this agent. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct Bridges {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    report: OnceLock<Box<dyn Fn(BridgeNotice) + Send + Sync>>,
    /// Ranks whose link is closed on their side and not on the other one.
    closing: watch::Sender<Vec<Rank>>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bridges").field("state", &self.state).finish_non_exhaustive()
    }
}

// Lists that are looked through: there are few, and maps would make the agent larger.
#[derive(Debug, Default)]
struct State {
    awaited: Vec<(BridgeNumber, Secret, Instant)>,
    standing: Vec<(BridgeNumber, LinkQueue)>,
    outs: Vec<End>,
    ins: Vec<End>,
    /// There is no frontend.
    over: bool,
}

/// An end of a lane here.
#[derive(Debug)]
struct End {
    lane: LaneNumber,
    bridge: BridgeNumber,
    link: u32,
    to: mpsc::UnboundedSender<Input>,
    /// Bytes that have come.
    come: u64,
    /// How many more may come.
    window: Receiver,
}

impl End {
    fn new((lane, bridge, link): (LaneNumber, BridgeNumber, u32), to: mpsc::UnboundedSender<Input>) -> Self {
        Self { lane, bridge, link, to, come: 0, window: Receiver::new(LANE_MOST_BYTES) }
    }
}

impl Bridges {
    /// Bridges that report there.
    pub(crate) fn new(report: impl Fn(BridgeNotice) + Send + Sync + 'static) -> Self {
        let bridges = Self::default();
        // It is set once.
        drop(bridges.shared.report.set(Box::new(report)));
        bridges
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn report(&self, notice: BridgeNotice) {
        if let Some(report) = self.shared.report.get() {
            report(notice);
        }
    }

    /// The frontend says something; `links` are those of ranks.
    pub(super) fn obey(&self, order: BridgeOrder, links: &[(u32, mpsc::UnboundedSender<Input>)]) {
        match order {
            BridgeOrder::Await { bridge, key, patience } => {
                let mut state = self.lock();
                let now = Instant::now();
                state.awaited.retain(|(_, _, until)| *until > now);
                if state.awaited.len() < AWAITED {
                    state.awaited.push((bridge, key, now + patience));
                    self.report(BridgeNotice::Awaits { bridge });
                }
            }
            BridgeOrder::Dial { bridge, key, addresses, patience } => {
                tokio::spawn(dial(self.clone(), bridge, key, addresses, patience));
            }
            BridgeOrder::Lane { lane, bridge, link, scope, peer } => {
                let mut state = self.lock();
                let Some((_, to)) = links.iter().find(|(known, _)| *known == link) else { return };
                if state.stands(bridge) {
                    state.outs.push(End::new((lane, bridge, link), to.clone()));
                    drop(to.send(Input::Lane(Lane::new(lane, bridge, (scope, peer)))));
                }
            }
            BridgeOrder::LaneEnded { lane } => self.lock().end_out(lane, Input::Ended(lane)),
            BridgeOrder::Broken { bridge, come } => {
                self.broke(bridge, "the other agent refused");
                let mut state = self.lock();
                for End { lane, to, .. } in state.outs.extract_if(.., |out| out.bridge == bridge) {
                    let come = come.iter().find(|(known, _)| *known == lane).map_or(0, |(_, come)| *come);
                    drop(to.send(Input::Resume { lane, come }));
                }
            }
        }
    }

    /// The key of a bridge that is awaited.
    pub(crate) fn find_key(&self, bridge: BridgeNumber) -> Option<Secret> {
        let state = self.lock();
        let known =
            state.awaited.iter().find(|(known, _, until)| *known == bridge && *until > Instant::now());
        known.map(|(_, key, _)| key.clone())
    }

    /// Somebody has come with the key of a bridge, which is used up by that. Given back: somebody was quicker.
    pub(crate) fn accept(&self, bridge: BridgeNumber, halves: Halves) -> Option<Halves> {
        let mut state = self.lock();
        let Some(at) = state.awaited.iter().position(|(known, ..)| *known == bridge) else {
            return Some(halves);
        };
        state.awaited.swap_remove(at);
        drop(state);
        self.begin(bridge, halves);
        None
    }

    /// A bridge stands from now on.
    fn begin(&self, bridge: BridgeNumber, (reader, writer): Halves) {
        let (queue, writing) = LinkQueue::start(writer);
        let mut state = self.lock();
        if state.over {
            return;
        }
        state.standing.push((bridge, queue));
        tokio::spawn(async move {
            if let Err(error) = writing.await {
                tracing::debug!(bridge, %error, "cannot write to another agent");
            }
        });
        tokio::spawn(read(self.clone(), bridge, reader));
        self.report(BridgeNotice::Stands { bridge });
    }

    /// Says something on a bridge. One that has broken will be told of.
    pub(super) fn send(&self, bridge: BridgeNumber, word: BridgeWord) {
        self.lock().send(bridge, word);
    }

    /// Lets a lane begin that ends at this link.
    pub(super) fn open(
        &self,
        lane: LaneNumber,
        bridge: BridgeNumber,
        link: u32,
        to: mpsc::UnboundedSender<Input>,
    ) -> bool {
        let mut state = self.lock();
        let stands = state.stands(bridge);
        if stands {
            state.ins.push(End::new((lane, bridge, link), to));
            state.send(bridge, BridgeWord::Go { lane });
        }
        stands
    }

    /// A lane is not used after all, or has been used to its end.
    pub(super) fn forget_lane(&self, lane: LaneNumber) {
        self.lock().outs.retain(|out| out.lane != lane);
    }

    /// A link has ended.
    pub(super) fn forget(&self, link: u32) {
        let mut state = self.lock();
        state.outs.retain(|end| end.link != link);
        state.ins.retain(|end| end.link != link);
    }

    /// A rank has closed its link, of which something is still on its way; until that is over another one of the same rank waits.
    pub(super) fn closing(&self, rank: Rank) {
        self.shared.closing.send_modify(|ranks| ranks.push(rank));
    }

    /// It is over.
    pub(super) fn closed(&self, rank: Rank) {
        self.shared.closing.send_modify(|ranks| {
            ranks.iter().position(|known| *known == rank).map(|at| ranks.swap_remove(at));
        });
    }

    /// Waits until no link of the rank is closing, no longer than `patience`.
    pub(super) async fn wait_closed(&self, rank: Rank, patience: Duration) {
        let mut closing = self.shared.closing.subscribe();
        drop(timeout(patience, closing.wait_for(|ranks| !ranks.contains(&rank))).await);
    }

    /// A bridge has ended, for whatever reason.
    fn broke(&self, bridge: BridgeNumber, reason: &str) {
        let mut state = self.lock();
        let Some(at) = state.standing.iter().position(|(known, _)| *known == bridge) else { return };
        tracing::debug!(bridge, reason, "a bridge ends");
        state.standing.swap_remove(at);
        // From now on nothing of it is taken.
        let come =
            state.ins.extract_if(.., |end| end.bridge == bridge).map(|end| (end.lane, end.come)).collect();
        for out in state.outs.iter().filter(|out| out.bridge == bridge) {
            drop(out.to.send(Input::Broken(out.lane)));
        }
        self.report(BridgeNotice::Broken { bridge, come });
    }

    /// There is no frontend any more, and no job.
    pub(super) fn end(&self) {
        let mut state = self.lock();
        for (_, queue) in state.standing.drain(..) {
            queue.close();
        }
        *state = State { over: true, ..State::default() };
    }
}

impl State {
    fn stands(&self, bridge: BridgeNumber) -> bool {
        bridge == OWN_BRIDGE || self.standing.iter().any(|(known, _)| *known == bridge)
    }

    fn send(&mut self, bridge: BridgeNumber, word: BridgeWord) {
        if let BridgeWord::Taken { lane, bytes } = &word
            && let Some(end) = self.find_in(bridge, *lane)
        {
            end.window.grant(*bytes);
        }
        if bridge == OWN_BRIDGE {
            if let Err(reason) = self.take(bridge, word) {
                tracing::warn!(reason, "a lane of this node was overrun");
            }
            return;
        }
        let Some((_, queue)) = self.standing.iter().find(|(known, _)| *known == bridge) else { return };
        match frame::encode_body(&word) {
            Ok(body) => queue.send(body.into()),
            Err(error) => tracing::warn!(%error, "a message to another agent was not sent"),
        }
    }

    /// The other agent says something.
    ///
    /// # Errors
    /// It must not: the bridge is to be closed.
    fn take(&mut self, bridge: BridgeNumber, word: BridgeWord) -> Result<(), String> {
        match word {
            BridgeWord::Go { lane } => match self.find_out(bridge, lane) {
                Some(to) => drop(to.send(Input::Go(lane))),
                // It is not wanted any more.
                None => self.send(bridge, BridgeWord::End { lane }),
            },
            BridgeWord::Taken { lane, bytes } => {
                if let Some(to) = self.find_out(bridge, lane) {
                    drop(to.send(Input::Taken { lane, bytes }));
                }
            }
            BridgeWord::Ended { lane } => self.end_out(lane, Input::Ended(lane)),
            BridgeWord::Frames { lane, bytes: Blob(bytes) } => {
                if let Some(end) = self.find_in(bridge, lane) {
                    let count = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
                    let taken = end.window.take(count);
                    taken.map_err(|overrun| format!("it overran lane {lane}: {overrun}"))?;
                    end.come += bytes.len() as u64;
                    drop(end.to.send(Input::Frames { lane, bytes }));
                }
            }
            BridgeWord::End { lane } => {
                // What has come was given to the link before: whatever is given to it now comes later.
                self.ins.retain(|end| (end.lane, end.bridge) != (lane, bridge));
                self.send(bridge, BridgeWord::Ended { lane });
            }
        }
        let backlog =
            self.standing.iter().find(|(known, _)| *known == bridge).map(|(_, queue)| queue.backlog());
        match backlog {
            Some(bytes) if bytes > MOST_WAITING_BYTES => {
                Err(format!("it does not read {bytes} bytes that wait for it"))
            }
            _ => Ok(()),
        }
    }

    fn find_in(&mut self, bridge: BridgeNumber, lane: LaneNumber) -> Option<&mut End> {
        self.ins.iter_mut().find(|end| (end.lane, end.bridge) == (lane, bridge))
    }

    /// Tells the other agent why it is heard no more.
    fn refuse(&self, bridge: BridgeNumber, reason: &str) {
        if let Some((_, queue)) = self.standing.iter().find(|(known, _)| *known == bridge) {
            queue.refuse(reason);
        }
    }

    fn find_out(&self, bridge: BridgeNumber, lane: LaneNumber) -> Option<&mpsc::UnboundedSender<Input>> {
        self.outs.iter().find(|end| (end.lane, end.bridge) == (lane, bridge)).map(|end| &end.to)
    }

    fn end_out(&mut self, lane: LaneNumber, input: Input) {
        if let Some(at) = self.outs.iter().position(|end| end.lane == lane) {
            drop(self.outs.swap_remove(at).to.send(input));
        }
    }
}

async fn dial(
    bridges: Bridges,
    bridge: BridgeNumber,
    key: Secret,
    addresses: Vec<SocketAddr>,
    patience: Duration,
) {
    match dial_bridge(&addresses, (bridge, key), Instant::now() + patience).await {
        Ok(halves) => bridges.begin(bridge, halves),
        Err(reason) => bridges.report(BridgeNotice::Failed { bridge, reason }),
    }
}

/// Reads a bridge until it ends.
async fn read(bridges: Bridges, bridge: BridgeNumber, mut reader: LinkReader) {
    let reason = loop {
        match reader.next().await {
            Ok(Some(Incoming::Frame(body))) => match frame::decode(&body) {
                Ok(word) => {
                    let mut state = bridges.lock();
                    if let Err(reason) = state.take(bridge, word) {
                        state.refuse(bridge, &reason);
                        break reason;
                    }
                }
                Err(error) => break format!("protocol error: {error}"),
            },
            Ok(Some(Incoming::Bulk(_) | Incoming::Credit(_))) => break "bulk data arrived".to_owned(),
            Ok(None) => break "the other agent has left".to_owned(),
            Err(error) => break error.to_string(),
        }
    };
    bridges.broke(bridge, &reason);
}
