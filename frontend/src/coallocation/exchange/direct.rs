//! Which messages go from agent to agent, without the frontend. It knows of no process and waits for nothing, as the [switchboard](super::switchboard).
//!
//! Two ranks that have much to say to each other get a lane over the bridge of their agents; of two agents that have none yet, one is told to dial the other. If that cannot be
//! reached it is tried the other way round, and if that fails as well, what they have to say goes by the frontend as before. A bridge that broke is not made again.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::time::Duration;

use gantry_shared::secret::Secret;
use gantry_shared::wire::bridge::{BridgeNotice, BridgeNumber, BridgeOrder, LaneNumber, OWN_BRIDGE};
use gantry_shared::wire::rendezvous::LinkWord;
use gantry_shared::wire::runtime::Scope;
use gantry_types::id::{NodeId, Rank};
use serde::Serialize;

pub(super) use super::lanes::{Agent, Course, Ends, Process};
use super::lanes::{Lane, Lanes};
use super::mailbox::LinkId;
use crate::coallocation::state::SubjobId;

/// What goes from one rank to another by the frontend before they get a lane: arranging one costs some messages and a moment in which the sender waits.
const LANE_PIECES: u32 = 16;
const LANE_BYTES: u64 = 64 * 1024;

/// Bridges of one agent.
const BRIDGES: usize = 64;

/// How long an agent may take to reach another one. A network that drops what it does not let through says nothing.
const PATIENCE: Duration = Duration::from_secs(3);

/// How a job's messages went.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Traffic {
    /// Bytes of messages that went by the frontend.
    pub relayed_bytes: u64,
    /// Links between two agents that stood at some time.
    pub direct_links: u32,
    /// Pairs of agents that could not reach each other.
    pub failed_links: u32,
    /// Links between two agents that ended before both had no ranks any more.
    pub broken_links: u32,
}

#[derive(Debug)]
struct Bridge {
    /// Who dials, then who is dialled.
    ends: [Agent; 2],
    standing: Standing,
    /// It was tried the other way round before.
    turned: bool,
}

#[derive(Debug)]
enum Standing {
    /// Under way; the key of this attempt.
    Asked(Secret),
    /// One end says that it stands.
    Half(Agent),
    Whole,
    Gone,
}

/// Messages, or parts of some, and their bytes.
type Count = (u32, u64);

/// What is said to an agent.
pub(super) type Said = (Agent, BridgeOrder);

/// All bridges and lanes of a job.
#[derive(Debug, Default)]
pub(super) struct Direct {
    /// Where agents listen.
    listen: BTreeMap<Agent, Vec<SocketAddr>>,
    /// What went by the frontend, by sender.
    counts: HashMap<Process, HashMap<(Scope, Process), Count>>,
    bridges: BTreeMap<BridgeNumber, Bridge>,
    by_agents: BTreeMap<[Agent; 2], BridgeNumber>,
    lanes: Lanes,
    traffic: Traffic,
}

impl Direct {
    /// Where an app's agents listen, by node.
    pub(super) fn listening(&mut self, id: SubjobId, listen: Vec<Vec<SocketAddr>>) {
        for (node, listen) in (0..).map(NodeId).zip(listen) {
            self.listen.insert((id, node), listen);
        }
    }

    pub(super) fn traffic(&self) -> Traffic {
        self.traffic
    }

    /// So many bytes of a message have gone by the frontend to a rank that has a link. `room`: its mailbox is not full.
    pub(super) fn relayed(&mut self, course: Course, ends: Ends, bytes: usize, room: bool) -> Option<Said> {
        let bytes = bytes as u64;
        self.traffic.relayed_bytes += bytes;
        let count = self.counts.entry(course.from).or_default().entry((course.scope, course.to)).or_default();
        *count = (count.0.saturating_add(1), count.1 + bytes);
        if *count < (LANE_PIECES, 0) && count.1 < LANE_BYTES {
            return None;
        }
        let agents = [(course.from.0, ends.from.0), (course.to.0, ends.to.0)];
        let bridge = if agents[0] == agents[1] {
            OWN_BRIDGE
        } else {
            match self.by_agents.get(&pair(agents)) {
                None => return self.begin(agents),
                Some(bridge) => *bridge,
            }
        };
        let whole = |bridge: &Bridge| matches!(bridge.standing, Standing::Whole);
        let stands = bridge == OWN_BRIDGE || self.bridges.get(&bridge).is_some_and(whole);
        // The marker comes behind what waits for the receiver: the sender waits as long.
        if !stands || !room {
            return None;
        }
        let lane = self.lanes.add(Lane { course, bridge, ends })?;
        let (link, scope, peer) = (ends.from.1, course.scope, ends.receiver);
        Some((agents[0], BridgeOrder::Lane { lane, bridge, link, scope, peer }))
    }

    /// Two agents are to have a bridge.
    fn begin(&mut self, agents: [Agent; 2]) -> Option<Said> {
        let number = BridgeNumber::try_from(self.bridges.len()).ok()?.checked_add(1)?;
        let of = |agent: &Agent| self.bridges.values().filter(|bridge| bridge.ends.contains(agent)).count();
        if agents.iter().any(|agent| of(agent) >= BRIDGES) {
            return None;
        }
        // An address of its own machine alone says least: such an agent dials rather than that it is dialled.
        let reach = |agent: &Agent| {
            let all = self.listen.get(agent).map(Vec::as_slice).unwrap_or_default();
            (all.iter().any(|address| !address.ip().is_loopback()), !all.is_empty())
        };
        let mut ends = agents;
        if reach(&ends[0]) > reach(&ends[1]) {
            ends.reverse();
        }
        let bridge = Bridge { ends, standing: Standing::Gone, turned: false };
        self.bridges.insert(number, bridge);
        self.by_agents.insert(pair(agents), number);
        self.attempt(number)
    }

    /// Who is to be dialled is told to expect it.
    fn attempt(&mut self, number: BridgeNumber) -> Option<Said> {
        let bridge = self.bridges.get_mut(&number)?;
        let dialled = bridge.ends[1];
        let known = self.listen.get(&dialled).is_some_and(|listen| !listen.is_empty());
        let key = Secret::random().inspect_err(|error| tracing::warn!(%error, "agents get no link")).ok();
        let Some(key) = key.filter(|_| known) else {
            return self.fail(number, "it does not listen");
        };
        bridge.standing = Standing::Asked(key.clone());
        // It may come late, but not for ever.
        Some((dialled, BridgeOrder::Await { bridge: number, key, patience: 2 * PATIENCE }))
    }

    fn fail(&mut self, number: BridgeNumber, reason: &str) -> Option<Said> {
        let bridge = self.bridges.get_mut(&number)?;
        tracing::info!(number, ?bridge.ends, reason, "an agent cannot be reached by another one");
        bridge.standing = Standing::Gone;
        if !std::mem::replace(&mut bridge.turned, true) {
            bridge.ends.reverse();
            return self.attempt(number);
        }
        self.traffic.failed_links += 1;
        None
    }

    /// An agent says something of a bridge. One that it has no part in is none of its business.
    pub(super) fn take(&mut self, agent: Agent, notice: BridgeNotice) -> Option<Said> {
        match notice {
            BridgeNotice::Awaits { bridge: number } => {
                let bridge = self.bridges.get(&number).filter(|bridge| bridge.ends[1] == agent)?;
                let Standing::Asked(key) = &bridge.standing else { return None };
                let addresses = self.listen.get(&agent)?.clone();
                let order =
                    BridgeOrder::Dial { bridge: number, key: key.clone(), addresses, patience: PATIENCE };
                Some((bridge.ends[0], order))
            }
            BridgeNotice::Stands { bridge } => {
                let bridge = self.bridges.get_mut(&bridge).filter(|bridge| bridge.ends.contains(&agent))?;
                match &bridge.standing {
                    Standing::Asked(_) => bridge.standing = Standing::Half(agent),
                    Standing::Half(other) if *other != agent => {
                        bridge.standing = Standing::Whole;
                        self.traffic.direct_links += 1;
                    }
                    Standing::Half(_) | Standing::Whole | Standing::Gone => {}
                }
                None
            }
            BridgeNotice::Failed { bridge: number, reason } => {
                let bridge = self.bridges.get(&number).filter(|bridge| bridge.ends[0] == agent)?;
                matches!(bridge.standing, Standing::Asked(_)).then(|| self.fail(number, &reason))?
            }
            BridgeNotice::Broken { bridge: number, come } => {
                let bridge = self.bridges.get_mut(&number).filter(|bridge| bridge.ends.contains(&agent))?;
                let other = bridge.ends[usize::from(bridge.ends[0] == agent)];
                if !matches!(bridge.standing, Standing::Gone) {
                    bridge.standing = Standing::Gone;
                    self.traffic.broken_links += u32::from(self.lanes.use_bridge(number));
                }
                let of_other =
                    |lane: &Lane| lane.bridge == number && (lane.course.from.0, lane.ends.from.0) == other;
                let ended = self.lanes.take(of_other).into_iter().map(|(lane, _)| lane);
                let come_of =
                    |lane| come.iter().find(|(known, _)| *known == lane).map_or(0, |(_, come)| *come);
                let come = ended.map(|lane| (lane, come_of(lane))).collect();
                Some((other, BridgeOrder::Broken { bridge: number, come }))
            }
        }
    }

    /// A sender's agent has said the last thing that goes by the frontend. Gives what is to be put behind all that waits for the receiver; else the lane has ended meanwhile.
    pub(super) fn marked(
        &self,
        id: SubjobId,
        link: LinkId,
        lane: LaneNumber,
    ) -> Option<(Process, LinkId, LinkWord)> {
        let known = self.lanes.get(lane).filter(|lane| (lane.course.from.0, lane.ends.from) == (id, link))?;
        let Course { scope, to, .. } = known.course;
        let word = LinkWord::Lane { lane, bridge: known.bridge, scope, peer: known.ends.sender };
        Some((to, known.ends.to, word))
    }

    /// A rank's link has ended: who sends to it by a lane is told.
    pub(super) fn link_ended(&mut self, id: SubjobId, rank: Rank, link: LinkId) -> Vec<Said> {
        self.counts.remove(&(id, rank));
        let touches = |lane: &Lane| {
            (lane.course.from.0, lane.ends.from) == (id, link)
                || (lane.course.to.0, lane.ends.to) == (id, link)
        };
        let ended = self.lanes.take(touches);
        ended
            .into_iter()
            .filter(|(_, lane)| (lane.course.from.0, lane.ends.from) != (id, link))
            .map(|(lane, known)| ((known.course.from.0, known.ends.from.0), BridgeOrder::LaneEnded { lane }))
            .collect()
    }
}

fn pair(mut agents: [Agent; 2]) -> [Agent; 2] {
    agents.sort_unstable();
    agents
}

#[cfg(test)]
#[path = "direct_tests.rs"]
mod tests;
