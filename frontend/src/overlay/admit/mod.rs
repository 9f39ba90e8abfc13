//! Checks every message of a node before the frontend uses it.
//!
//! [`Admission`] sees every order that goes down and every message that comes up, in the order in which the root sends
//! and receives them. So it knows which ranks and daemons a node has, which questions it was asked, and how much it may
//! send. A node speaks only for itself and for nodes below it, and sends no more than its windows allow. A message
//! against these rules is a [`Violation`]: the root closes that node's link and declares the node lost. A message that
//! was true and no longer matters is [`Verdict::Old`], and is dropped.
//!
//! All nodes of an app share one secret. So a node can impersonate a node below it, but no other. Pure.

mod channels;
mod flows;
mod violation;

use std::collections::BTreeMap;

use gantry_shared::wire::channel::MAX_MESSAGE_BYTES;
use gantry_shared::wire::flow::{parse_message_label, parse_output_label};
use gantry_shared::wire::message::{Answer, FlowId, Notice, Order, Source, Word};
use gantry_shared::wire::mpi::MpiNote;
use gantry_shared::wire::rendezvous::{RendezvousNotice, check_puts};
use gantry_shared::wire::tree::Tree;
use gantry_types::id::{DaemonId, NodeId, Rank, SessionId};
use gantry_types::output::DaemonOutput;
use gantry_types::rank_set::{NodeSet, RankSet};

use self::channels::Channels;
use self::flows::Flows;
use self::violation::{Admitted, check_text};
pub(crate) use self::violation::{Verdict, Violation};

/// A tool daemon, on all its nodes.
#[derive(Debug)]
struct Daemon {
    session: SessionId,
    on: NodeSet,
    ended: NodeSet,
    /// Its output comes to the frontend.
    forwards: bool,
}

/// What is known about the nodes, to check their messages.
#[derive(Debug)]
pub(crate) struct Admission {
    tree: Tree,
    hosts: Vec<String>,
    /// Ranks by node; empty until they are known.
    layout: Vec<RankSet>,
    /// The nodes that have reported their ranks.
    answered: NodeSet,
    ended: RankSet,
    rank_output: bool,
    /// Nodes serve the ranks as MPI programs.
    started: bool,
    daemons: BTreeMap<DaemonId, Daemon>,
    flows: Flows,
    channels: Channels,
}

impl Admission {
    /// Starts with nodes that have no known ranks.
    pub(super) fn new(tree: Tree, hosts: Vec<String>) -> Self {
        Self {
            tree,
            hosts,
            layout: Vec::new(),
            answered: NodeSet::default(),
            ended: RankSet::default(),
            rank_output: false,
            started: false,
            daemons: BTreeMap::new(),
            flows: Flows::default(),
            channels: Channels::default(),
        }
    }

    /// Adds the ranks that agents have brought, by node. These ranks exist already.
    pub(super) fn bring(&mut self, layout: Vec<RankSet>) {
        self.answered = NodeSet::first_n(u32::try_from(layout.len()).unwrap_or(u32::MAX));
        self.layout = layout;
    }

    /// An order is about to be sent to these nodes.
    pub(super) fn ordered(&mut self, to: &NodeSet, order: &Order) {
        match order {
            Order::StartRanks(order) => {
                self.layout.clone_from(&order.layout);
                (self.rank_output, self.started) = (order.output, true);
            }
            Order::JoinWorld(_) => self.started = true,
            Order::AdoptRanks(order) => {
                let ranks = order.layout.iter().map(|ranks| ranks.iter().map(|(rank, _)| *rank).collect());
                self.layout = ranks.collect();
            }
            Order::SeekRanks(order) => self.layout.clone_from(&order.layout),
            Order::StartDaemon(order) => {
                let daemon = self.daemons.entry(order.daemon).or_insert_with(|| Daemon {
                    session: order.session,
                    on: NodeSet::default(),
                    ended: NodeSet::default(),
                    forwards: order.output == DaemonOutput::Forward,
                });
                daemon.on = daemon.on.union(to);
            }
            Order::Flow { flow: FlowId::Part { operation, part }, word } => {
                to.iter().for_each(|node| self.channels.told(node, *operation, *part, word));
            }
            Order::Flow { flow, word } => to.iter().for_each(|node| self.flows.told(node, *flow, word)),
            Order::Channel(order) => self.channels.ordered(order),
            _ => {}
        }
    }

    /// Bytes of a node's flow were taken. Returns the credit to give to the node now, if any.
    pub(super) fn taken(&mut self, node: NodeId, flow: FlowId, bytes: usize) -> Option<u32> {
        self.flows.taken(node, flow, bytes)
    }

    /// Checks a node's answer to an order that it was asked to answer.
    pub(super) fn answered(&mut self, node: NodeId, answer: &Answer) -> Result<(), Violation> {
        let Answer::Ranks(reports) = answer else { return Ok(()) };
        let mut ranks = RankSet::default();
        for report in reports {
            self.check_rank(node, report.rank, "reported")?;
            if !ranks.insert(report.rank) {
                return Err(Violation::new(format!("reported rank {} twice", report.rank)));
            }
        }
        let missing = self.layout.get(node.index()).map(|all| all.difference(&ranks)).unwrap_or_default();
        if !missing.is_empty() {
            return Err(Violation::new(format!("did not report ranks {missing}, which are to run there")));
        }
        self.answered.insert(node);
        Ok(())
    }

    /// Checks an unasked message of a node.
    pub(super) fn noticed(&mut self, node: NodeId, notice: &Notice) -> Admitted {
        match notice {
            Notice::Alive | Notice::BulkStalled { .. } => {}
            Notice::ChildJoined { child } => {
                if self.tree.parent(child.0) != Some(node.0) || !self.tree.contains(child.0) {
                    return Err(Violation::new(format!(
                        "said that node {child} joined it, which is not its child"
                    )));
                }
            }
            Notice::NodesLost { nodes, reason } => {
                check_text(reason, "a reason")?;
                let strange = nodes.difference(&self.tree.find_subtree(node));
                if let Some(first) = strange.first() {
                    let host = self.host(first);
                    return Err(Violation::new(format!("said that {host} is lost, which is not below it")));
                }
            }
            Notice::RankExited { rank, .. } => self.rank_exited(node, *rank)?,
            Notice::DaemonExited { daemon, .. } => {
                let known = self.check_daemon(node, *daemon, "sent an exit of")?;
                if !known.ended.insert(node) {
                    return Err(Violation::new(format!("sent a second exit of daemon {daemon}")));
                }
            }
            Notice::Flow { flow: FlowId::Part { operation, part }, word } => {
                return self.channels.said(node, *operation, *part, word);
            }
            Notice::Flow { flow, word } => {
                self.check_flow(node, *flow, word)?;
                let ranks = self.layout.get(node.index()).map_or(0, RankSet::len);
                self.flows.said(node, ranks, *flow, word)?;
            }
            Notice::Rendezvous(RendezvousNotice::Put { rank, .. }) => {
                self.check_rank(node, *rank, "sent rendezvous data of")?;
            }
            Notice::Rendezvous(RendezvousNotice::Fence { puts, .. }) => {
                check_puts(puts, &self.tree.find_subtree(node)).map_err(Violation::new)?;
            }
            Notice::Rendezvous(RendezvousNotice::Get(_) | RendezvousNotice::Status(_)) => {}
            Notice::MpiFailed { rank, why, .. } => {
                check_text(why, "a reason")?;
                self.check_rank(node, *rank, "reported the failed MPI world of")?;
                if !self.started {
                    return Err(Violation::new("reported a failed MPI world, and serves none"));
                }
            }
            Notice::MpiNote(MpiNote { rank, text, .. }) => {
                check_text(text, "a note")?;
                self.check_rank(node, *rank, "sent a note about the MPI world of")?;
            }
            Notice::Channel(notice) => {
                return self.channels.noticed(node, &|| self.tree.find_subtree(node), notice);
            }
        }
        Ok(Verdict::News)
    }

    fn rank_exited(&mut self, node: NodeId, rank: Rank) -> Result<(), Violation> {
        self.check_rank(node, rank, "sent an exit of")?;
        if !self.answered.contains(node) {
            return Err(Violation::new(format!("sent an exit of rank {rank} before it was there")));
        }
        if !self.ended.insert(rank) {
            return Err(Violation::new(format!("sent a second exit of rank {rank}")));
        }
        Ok(())
    }

    /// Checks that a node has such a flow, and may use it for its processes.
    fn check_flow(&mut self, node: NodeId, flow: FlowId, word: &Word) -> Result<(), Violation> {
        let wanted = match flow {
            FlowId::Output(group) => {
                let forwards = match group {
                    Some(daemon) => self.check_daemon(node, daemon, "sent output of")?.forwards,
                    None => self.rank_output,
                };
                if let Word::Data { label, .. } = word {
                    match parse_output_label(group, *label) {
                        Some((Source::Rank(rank), _)) => self.check_rank(node, rank, "sent output of")?,
                        Some((Source::Daemon(_), _)) => {}
                        None => {
                            let why = format!("sent {flow} under a label that stands for nothing");
                            return Err(Violation::new(why));
                        }
                    }
                }
                forwards
            }
            FlowId::Input(rank) => {
                self.check_rank(node, rank, "acknowledged standard input of")?;
                self.flows.is_fed(node, rank)
            }
            FlowId::Messages(daemon) => {
                let known = self.check_daemon(node, daemon, "sent a message of")?;
                if let Word::Data { label, bytes } = word {
                    if known.session != parse_message_label(*label).0 {
                        let why = format!("sent a message of daemon {daemon} to another session");
                        return Err(Violation::new(why));
                    }
                    if bytes.0.len() > MAX_MESSAGE_BYTES {
                        return Err(Violation::new(format!("sent a message of {} bytes", bytes.0.len())));
                    }
                }
                true
            }
            FlowId::Link(_) => {
                if let Word::Open(rank) = word {
                    self.check_rank(node, *rank, "opened a link of")?;
                }
                true
            }
            // The channels check these.
            FlowId::Part { .. } => false,
            FlowId::Items => true,
        };
        match wanted {
            true => Ok(()),
            false => Err(Violation::new(format!("spoke on {flow}, for which it was not asked"))),
        }
    }

    fn check_rank(&self, node: NodeId, rank: Rank, did: &str) -> Result<(), Violation> {
        if self.layout.get(node.index()).is_some_and(|ranks| ranks.contains(rank)) {
            return Ok(());
        }
        let home = self.layout.iter().position(|ranks| ranks.contains(rank));
        let why = match home.and_then(|home| self.hosts.get(home)) {
            Some(host) => format!("which runs on {host}"),
            None => "which does not exist".to_owned(),
        };
        Err(Violation::new(format!("{did} rank {rank}, {why}")))
    }

    fn check_daemon(&mut self, node: NodeId, id: DaemonId, did: &str) -> Result<&mut Daemon, Violation> {
        let here = self.daemons.get_mut(&id).filter(|daemon| daemon.on.contains(node));
        here.ok_or_else(|| Violation::new(format!("{did} daemon {id}, which was not started there")))
    }

    fn host(&self, node: NodeId) -> String {
        self.hosts.get(node.index()).cloned().unwrap_or_else(|| format!("node {node}"))
    }
}

#[cfg(test)]
mod tests;
