//! Checks what daemons send on their channels against the rules for nodes.

use std::collections::{BTreeMap, HashMap};

use gantry_shared::wire::channel::{CHUNK_BYTES, ChannelNotice, ChannelOrder, FIRST_MADE, Member, MemberSet};
use gantry_shared::wire::flow::{FlowId, Word};
use gantry_shared::wire::window::Receiver;
use gantry_types::id::{DaemonId, NodeId};
use gantry_types::rank_set::NodeSet;

use super::violation::{Admitted, Verdict, Violation};

/// An operation on a channel.
#[derive(Debug)]
struct Operation {
    of: MemberSet,
    missing: MemberSet,
    /// Remaining credit of each part that has begun.
    parts: HashMap<(NodeId, u32), Receiver>,
    /// How many merged parts each node has sent.
    made: HashMap<NodeId, u64>,
}

/// The operations of all channels.
#[derive(Debug, Default)]
pub(super) struct Channels {
    operations: BTreeMap<u64, Operation>,
    last_operation: u64,
}

impl Channels {
    pub(super) fn ordered(&mut self, order: &ChannelOrder) {
        match order {
            ChannelOrder::Collect { operation, of, .. } => {
                self.last_operation = self.last_operation.max(*operation);
                let (missing, parts, made) = (MemberSet::default(), HashMap::new(), HashMap::new());
                self.operations.insert(*operation, Operation { of: of.clone(), missing, parts, made });
            }
            ChannelOrder::End { operation } => drop(self.operations.remove(operation)),
            ChannelOrder::Message { .. } | ChannelOrder::Stream { .. } | ChannelOrder::Hurry { .. } => {}
        }
    }

    /// A word of the rest of a part is about to be sent to the node.
    pub(super) fn told(&mut self, node: NodeId, operation: u64, part: u32, word: &Word) {
        let operation = self.operations.get_mut(&operation);
        if let (Some(window), Word::Credit(bytes)) =
            (operation.and_then(|it| it.parts.get_mut(&(node, part))), word)
        {
            window.grant(*bytes);
        }
    }

    /// Checks a node's word of the rest of a part.
    pub(super) fn said(&mut self, node: NodeId, operation: u64, part: u32, word: &Word) -> Admitted {
        let Some(known) = self.find_operation(operation)? else { return Ok(Verdict::Old) };
        let flow = FlowId::Part { operation, part };
        let (Some(window), Word::Data { bytes, .. }) = (known.parts.get_mut(&(node, part)), word) else {
            return Err(Violation::new(format!("spoke on {flow}, which is not open, or not of data")));
        };
        window.take(count(bytes.0.len())).map_err(|overrun| Violation::overran(flow, overrun))?;
        Ok(Verdict::News)
    }

    pub(super) fn noticed(
        &mut self,
        node: NodeId,
        below: &dyn Fn() -> NodeSet,
        notice: &ChannelNotice,
    ) -> Admitted {
        match notice {
            ChannelNotice::Part { operation, part, of, bytes, .. } => {
                let Some(known) = self.find_operation(*operation)? else { return Ok(Verdict::Old) };
                known.begin(node, below, (*part, of), bytes.0.len())
            }
            ChannelNotice::Missing { operation, of, .. } => {
                check_below(of, below)?;
                let Some(known) = self.find_operation(*operation)? else { return Ok(Verdict::Old) };
                let fresh = of.intersection(&known.of).difference(&known.missing);
                known.missing = known.missing.union(&fresh);
                Ok(if fresh.is_empty() { Verdict::Old } else { Verdict::News })
            }
        }
    }

    /// Finds an operation. None: it is over.
    fn find_operation(&mut self, number: u64) -> Result<Option<&mut Operation>, Violation> {
        if number > self.last_operation {
            return Err(Violation::new(format!("contributed to operation {number}, which does not exist")));
        }
        Ok(self.operations.get_mut(&number))
    }
}

impl Operation {
    /// Checks the first chunk of a part, which needs no credit. Each part has at least one member.
    fn begin(
        &mut self,
        node: NodeId,
        below: &dyn Fn() -> NodeSet,
        (part, of): (u32, &MemberSet),
        bytes: usize,
    ) -> Admitted {
        if self.parts.contains_key(&(node, part)) {
            return Err(Violation::new(format!("began contribution {part} twice")));
        }
        if bytes > CHUNK_BYTES {
            return Err(Violation::new(format!("began a contribution with {bytes} bytes")));
        }
        check_below(of, below)?;
        if part >= FIRST_MADE {
            let most = self.of.on(&below()).len();
            let made = self.made.entry(node).or_default();
            *made += 1;
            if *made > most {
                return Err(Violation::new(format!("sent more contributions than the {most} that it has")));
            }
        } else if !self.of.contains(Member { node, daemon: DaemonId(part) }) {
            return Err(Violation::new(format!("sent a contribution of daemon {part}, which is not asked")));
        }
        self.parts.insert((node, part), Receiver::new(0));
        Ok(Verdict::News)
    }
}

fn check_below(of: &MemberSet, below: &dyn Fn() -> NodeSet) -> Result<(), Violation> {
    match of.nodes().difference(&below()).first() {
        None => Ok(()),
        Some(node) => Err(Violation::new(format!("spoke for daemons of node {node}, which is not below it"))),
    }
}

fn count(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}
