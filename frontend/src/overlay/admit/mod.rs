//! What a node says, checked before it is believed.
//!
//! [`Admission`] sees every order that goes down and every message that comes up, in the order in which the root sends and takes them. So it
//! knows which ranks and daemons a node has, what it was asked for, and how much it may send. A node speaks only for itself and for nodes below it,
//! and sends no more than its windows allow. What does not fit is a [`Violation`]: the root closes that node's link and declares it lost.
//! What was true and no longer matters is [`Word::Old`], and is dropped.
//!
//! All nodes of an app share one secret. A node can claim to be a node below it, and be believed; it cannot speak for any other. Pure.

mod streams;
mod violation;

use std::collections::{BTreeMap, HashMap};

use gantry_shared::wire::message::{Answer, Notice, OUTPUT_WINDOW_BYTES, Order, Source};
use gantry_shared::wire::tree::Tree;
use gantry_shared::wire::window::{Outstanding, Receiver, cost_of};
use gantry_types::id::{DaemonId, NodeId, Rank, SessionId};
use gantry_types::output::{DaemonOutput, Stream};
use gantry_types::rank_set::{NodeSet, RankSet};

use self::streams::Streams;
use self::violation::{Admitted, check_text};
pub(crate) use self::violation::{Violation, Word};

/// A tool daemon, on all its nodes.
#[derive(Debug)]
struct Daemon {
    session: SessionId,
    on: NodeSet,
    ended: NodeSet,
    /// Its output comes here.
    forwards: bool,
    /// Where its standard output and its standard error have ended.
    closed: [NodeSet; 2],
}

/// A rank's standard input.
#[derive(Debug, Default)]
struct Stdin {
    sent: Outstanding,
    closed: bool,
}

/// All that is known of what nodes may say.
#[derive(Debug)]
pub(crate) struct Admission {
    tree: Tree,
    hosts: Vec<String>,
    /// Ranks by node; empty until they are known.
    layout: Vec<RankSet>,
    /// Ranks that their nodes have reported.
    there: RankSet,
    ended: RankSet,
    rank_output: bool,
    /// Nodes have started the ranks, and serve them as MPI programs.
    started: bool,
    /// Ranks whose standard output and whose standard error have ended.
    closed: [RankSet; 2],
    daemons: BTreeMap<DaemonId, Daemon>,
    output: HashMap<(NodeId, Option<DaemonId>), Receiver>,
    stdin: BTreeMap<Rank, Stdin>,
    streams: Streams,
}

impl Admission {
    /// Nodes without ranks, as far as is known.
    pub(super) fn new(tree: Tree, hosts: Vec<String>) -> Self {
        Self {
            tree,
            hosts,
            layout: Vec::new(),
            there: RankSet::default(),
            ended: RankSet::default(),
            rank_output: false,
            started: false,
            closed: Default::default(),
            daemons: BTreeMap::new(),
            output: HashMap::new(),
            stdin: BTreeMap::new(),
            streams: Streams::default(),
        }
    }

    /// The ranks that agents have brought along, by node: they are there.
    pub(super) fn bring(&mut self, layout: Vec<RankSet>) {
        self.there = layout.iter().fold(RankSet::default(), |all, ranks| all.union(ranks));
        self.layout = layout;
    }

    /// An order is about to be sent to these nodes.
    pub(super) fn ordered(&mut self, to: &NodeSet, order: &Order) {
        match order {
            Order::StartRanks(order) => {
                self.layout.clone_from(&order.layout);
                (self.rank_output, self.started) = (order.output, true);
            }
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
                    closed: Default::default(),
                });
                daemon.on = daemon.on.union(to);
            }
            Order::Stdin { rank, bytes } => self.stdin.entry(*rank).or_default().sent.send(bytes.0.len()),
            Order::OutputCredit { daemon, bytes } => {
                for node in to.iter() {
                    self.output_window(node, *daemon).grant(*bytes);
                }
            }
            Order::Rendezvous(order) => self.streams.ordered_rendezvous(to, order),
            Order::Channel(order) => self.streams.ordered_channel(to, order),
            _ => {}
        }
    }

    /// A node answers an order that it was asked to answer.
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
        self.there = self.there.union(&ranks);
        Ok(())
    }

    /// A node says something unasked.
    pub(super) fn noticed(&mut self, node: NodeId, notice: &Notice) -> Admitted {
        match notice {
            Notice::Alive | Notice::BulkStalled { .. } => Ok(Word::News),
            Notice::ChildJoined { child } => {
                if self.tree.parent(child.0) != Some(node.0) || !self.tree.contains(child.0) {
                    return Err(Violation::new(format!(
                        "said that node {child} joined it, which is not its child"
                    )));
                }
                Ok(Word::News)
            }
            Notice::NodesLost { nodes, reason } => {
                check_text(reason, "a reason")?;
                let strange = nodes.difference(&find_subtree(self.tree, node));
                if let Some(first) = strange.first() {
                    let host = self.host(first);
                    return Err(Violation::new(format!("said that {host} is lost, which is not below it")));
                }
                Ok(Word::News)
            }
            Notice::RankExited { rank, .. } => self.rank_exited(node, *rank),
            Notice::DaemonExited { daemon, .. } => {
                let known = self.check_daemon(node, *daemon, "sent an exit of")?;
                if !known.ended.insert(node) {
                    return Err(Violation::new(format!("sent a second exit of daemon {daemon}")));
                }
                Ok(Word::News)
            }
            Notice::Output { source, stream, bytes } => self.output(node, *source, *stream, bytes.0.len()),
            Notice::StdinTaken { rank, bytes } => self.stdin_taken(node, *rank, *bytes),
            Notice::Rendezvous(notice) => {
                if let Some(rank) = streams::rank_of(notice) {
                    self.check_rank(node, rank, "sent rendezvous data of")?;
                }
                let ranks = self.layout.get(node.index()).map_or(0, RankSet::len);
                self.streams.noticed_rendezvous(node, ranks, notice)
            }
            Notice::MpiFailed { rank, why, .. } => {
                check_text(why, "a reason")?;
                self.check_rank(node, *rank, "reported the failed MPI world of")?;
                match self.started {
                    true => Ok(Word::News),
                    false => Err(Violation::new("reported a failed MPI world, and serves none".to_owned())),
                }
            }
            Notice::Channel(notice) => {
                if let Some((session, daemon)) = streams::daemon_of(notice) {
                    let known = self.check_daemon(node, daemon, "sent a message of")?;
                    if known.session != session {
                        return Err(Violation::new(format!(
                            "sent a message of daemon {daemon} to another session"
                        )));
                    }
                }
                self.streams.noticed_channel(node, &|| find_subtree(self.tree, node), notice)
            }
        }
    }

    fn rank_exited(&mut self, node: NodeId, rank: Rank) -> Admitted {
        self.check_rank(node, rank, "sent an exit of")?;
        if !self.there.contains(rank) {
            return Err(Violation::new(format!("sent an exit of rank {rank} before it was there")));
        }
        if !self.ended.insert(rank) {
            return Err(Violation::new(format!("sent a second exit of rank {rank}")));
        }
        Ok(Word::News)
    }

    fn output(&mut self, node: NodeId, source: Source, stream: Stream, bytes: usize) -> Admitted {
        let which = usize::from(stream == Stream::Stderr);
        let (group, wanted, was_open) = match source {
            Source::Rank(rank) => {
                self.check_rank(node, rank, "sent output of")?;
                let closed = &mut self.closed[which];
                let open = if bytes == 0 { closed.insert(rank) } else { !closed.contains(rank) };
                (None, self.rank_output, open)
            }
            Source::Daemon(daemon) => {
                let known = self.check_daemon(node, daemon, "sent output of")?;
                let closed = &mut known.closed[which];
                let open = if bytes == 0 { closed.insert(node) } else { !closed.contains(node) };
                (Some(daemon), known.forwards, open)
            }
        };
        let name = match source {
            Source::Rank(rank) => format!("output of rank {rank}"),
            Source::Daemon(daemon) => format!("output of daemon {daemon}"),
        };
        if !wanted {
            return Err(Violation::new(format!("sent {name}, for which it was not asked")));
        }
        if !was_open {
            return Err(Violation::new(format!("sent {name} after its end")));
        }
        if bytes > 0 {
            let window = self.output_window(node, group);
            window.take(cost_of(bytes)).map_err(|overrun| Violation::overran(name, overrun))?;
        }
        Ok(Word::News)
    }

    fn output_window(&mut self, node: NodeId, group: Option<DaemonId>) -> &mut Receiver {
        self.output.entry((node, group)).or_insert_with(|| Receiver::new(OUTPUT_WINDOW_BYTES))
    }

    fn stdin_taken(&mut self, node: NodeId, rank: Rank, bytes: u32) -> Admitted {
        self.check_rank(node, rank, "acknowledged standard input of")?;
        let never =
            || Violation::new(format!("acknowledged standard input of rank {rank}, which was sent none"));
        let stdin = self.stdin.get_mut(&rank).ok_or_else(never)?;
        if stdin.closed {
            return Err(Violation::new(format!(
                "acknowledged standard input of rank {rank}, which is closed"
            )));
        }
        stdin.closed = bytes == 0;
        let back = stdin.sent.give_back(bytes);
        back.map_err(|overrun| {
            Violation::new(format!("acknowledged standard input of rank {rank}: {overrun}"))
        })?;
        Ok(Word::News)
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

/// A node and all below it.
pub(super) fn find_subtree(tree: Tree, node: NodeId) -> NodeSet {
    let mut nodes = NodeSet::default();
    for level in tree.subtree(node.0) {
        nodes.insert_range(NodeId(level.start)..=NodeId(level.end - 1));
    }
    nodes
}

#[cfg(test)]
mod tests;
