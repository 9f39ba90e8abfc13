//! Checks the flows of all nodes against their windows. It sees the messages of both ends of each flow.

use std::collections::BTreeMap;

use gantry_shared::wire::flow::{FlowId, Word};
use gantry_shared::wire::runtime::LAST_WORDS_WINDOW_BYTES;
use gantry_shared::wire::window::{Outstanding, Owed, Receiver};
use gantry_types::id::{NodeId, Rank};

use super::violation::Violation;

/// Links that one node may have open beside one for each of its ranks: child processes of a rank may have their own.
const MORE_LINKS: u64 = 4096;

/// A flow of a node.
#[derive(Debug)]
struct Flow {
    /// The node's credit for sending.
    window: Receiver,
    /// Bytes that were taken and whose credit is not given back yet.
    owed: Owed,
    /// Bytes sent to the node that it has not taken.
    sent: Outstanding,
    /// The node has ended it.
    ended: bool,
}

impl Flow {
    fn new(flow: FlowId) -> Self {
        let window = flow.window_up();
        // A link's first credit is its window.
        let owed = Owed::of(if window == 0 { flow.window_down() } else { window });
        Self { window: Receiver::new(window), owed, sent: Outstanding::default(), ended: false }
    }
}

/// All known flows.
#[derive(Debug, Default)]
pub(super) struct Flows(BTreeMap<(NodeId, FlowId), Flow>);

impl Flows {
    /// A message of a flow is about to be sent to the node.
    pub(super) fn told(&mut self, node: NodeId, flow: FlowId, word: &Word) {
        let Some(known) = self.find(node, flow) else { return };
        match word {
            Word::Data { bytes, .. } => known.sent.send(u32::try_from(bytes.0.len()).unwrap_or(u32::MAX)),
            Word::Credit(bytes) => known.window.grant(*bytes),
            Word::Drain => known.window.grant(LAST_WORDS_WINDOW_BYTES),
            Word::Open(_) | Word::End => {}
        }
    }

    fn find(&mut self, node: NodeId, flow: FlowId) -> Option<&mut Flow> {
        match flow {
            // Only a node opens a link.
            FlowId::Link(_) => self.0.get_mut(&(node, flow)),
            _ => Some(self.0.entry((node, flow)).or_insert_with(|| Flow::new(flow))),
        }
    }

    /// Bytes of the node were taken. Returns the credit to give to the node now, if any.
    pub(super) fn taken(&mut self, node: NodeId, flow: FlowId, bytes: usize) -> Option<u32> {
        // The link may have closed meanwhile.
        self.0.get_mut(&(node, flow))?.owed.take(flow.cost_of(bytes))
    }

    /// Whether any standard input of this rank was sent to its node.
    pub(super) fn is_fed(&self, node: NodeId, rank: Rank) -> bool {
        self.0.contains_key(&(node, FlowId::Input(rank)))
    }

    /// Checks a node's message on one of its flows. `ranks` is the number of its ranks.
    pub(super) fn said(
        &mut self,
        node: NodeId,
        ranks: u64,
        flow: FlowId,
        word: &Word,
    ) -> Result<(), Violation> {
        let key = (node, flow);
        if let (FlowId::Link(_), Word::Open(_)) = (flow, word) {
            let links = (node, FlowId::Link(0))..=(node, FlowId::Link(u32::MAX));
            if self.0.contains_key(&key) || self.0.range(links).count() as u64 >= ranks + MORE_LINKS {
                return Err(Violation::new(format!("opened {flow} twice, or too many links")));
            }
            self.0.insert(key, Flow::new(flow));
            return Ok(());
        }
        let Some(known) = self.find(node, flow).filter(|known| !known.ended) else {
            return Err(Violation::new(format!("spoke on {flow}, which is not open")));
        };
        match word {
            Word::Data { bytes, .. } if bytes.0.is_empty() && flow.overhead() == 0 => {
                return Err(Violation::new(format!("sent an empty message on {flow}")));
            }
            Word::Data { bytes, .. } => {
                let taken = known.window.take(flow.cost_of(bytes.0.len()));
                taken.map_err(|overrun| Violation::overran(flow, overrun))?;
            }
            Word::Credit(bytes) => {
                let back = known.sent.give_back(*bytes);
                back.map_err(|overrun| Violation::new(format!("took too much on {flow}: {overrun}")))?;
            }
            Word::End if matches!(flow, FlowId::Link(_)) => drop(self.0.remove(&key)),
            Word::End => known.ended = true,
            Word::Open(_) | Word::Drain => {
                return Err(Violation::new(format!("said on {flow} what only its other end says")));
            }
        }
        Ok(())
    }
}
