//! What ranks exchange and what daemons send, as far as nodes must keep to something there.

use std::collections::{BTreeMap, HashMap};

use gantry_shared::wire::channel::{
    CHANNEL_WINDOW_BYTES, CHUNK_BYTES, ChannelNotice, ChannelOrder, FIRST_MADE, MAX_MESSAGE_BYTES, Member,
    MemberSet,
};
use gantry_shared::wire::rendezvous::{ITEM_WINDOW_BYTES, LinkWord, RendezvousNotice, RendezvousOrder};
use gantry_shared::wire::runtime::LAST_WORDS_WINDOW_BYTES;
use gantry_shared::wire::window::{Outstanding, Receiver, cost_of};
use gantry_types::id::{DaemonId, NodeId, Rank, SessionId};
use gantry_types::rank_set::NodeSet;

use super::violation::{Admitted, Violation, Word};

/// Links that one node may have open beside one for each of its ranks: processes that a rank has started may have their own.
const MORE_LINKS: u64 = 4096;

/// A rank's link to its job.
#[derive(Debug)]
struct Link {
    window: Receiver,
    sent: Outstanding,
}

/// An operation on a channel.
#[derive(Debug)]
struct Operation {
    of: MemberSet,
    missing: MemberSet,
    /// What may still come of each part that has begun.
    parts: HashMap<(NodeId, u32), Receiver>,
    /// How many parts each node has made of others.
    made: HashMap<NodeId, u64>,
}

/// What is known of them.
#[derive(Debug, Default)]
pub(super) struct Streams {
    items: HashMap<NodeId, Receiver>,
    links: BTreeMap<(NodeId, u32), Link>,
    messages: HashMap<Member, Receiver>,
    operations: BTreeMap<u64, Operation>,
    last_operation: u64,
}

/// The rank that a notice speaks for.
pub(super) fn rank_of(notice: &RendezvousNotice) -> Option<Rank> {
    match notice {
        RendezvousNotice::Put { rank, .. }
        | RendezvousNotice::Piece { rank, .. }
        | RendezvousNotice::Link { word: LinkWord::Open(rank), .. } => Some(*rank),
        _ => None,
    }
}

/// The daemon that a notice speaks for, and its session.
pub(super) fn daemon_of(notice: &ChannelNotice) -> Option<(SessionId, DaemonId)> {
    match notice {
        ChannelNotice::Message { session, daemon, .. } => Some((*session, *daemon)),
        _ => None,
    }
}

impl Streams {
    pub(super) fn ordered_rendezvous(&mut self, to: &NodeSet, order: &RendezvousOrder) {
        for node in to.iter() {
            match order {
                RendezvousOrder::Credit { bytes } => self.item_window(node).grant(*bytes),
                RendezvousOrder::Link { link, word } => {
                    let Some(known) = self.links.get_mut(&(node, *link)) else { continue };
                    match word {
                        LinkWord::Credit(bytes) => known.window.grant(*bytes),
                        LinkWord::LastWords => known.window.grant(LAST_WORDS_WINDOW_BYTES),
                        LinkWord::Bytes(bytes) => known.sent.send(bytes.0.len()),
                        _ => {}
                    }
                }
                _ => return,
            }
        }
    }

    /// Of a node that has so many ranks, for which it may speak.
    pub(super) fn noticed_rendezvous(
        &mut self,
        node: NodeId,
        ranks: u64,
        notice: &RendezvousNotice,
    ) -> Admitted {
        match notice {
            RendezvousNotice::Put { .. } | RendezvousNotice::Get(_) | RendezvousNotice::Status(_) => {}
            RendezvousNotice::Piece { rank, bytes, .. } => {
                if bytes.0.is_empty() {
                    return Err(Violation::new(format!("sent an empty piece of the item of rank {rank}")));
                }
                let window = self.item_window(node).take(count(bytes.0.len()));
                window.map_err(|overrun| Violation::overran("rendezvous items", overrun))?;
            }
            RendezvousNotice::Link { link, word } => self.link(node, ranks, *link, word)?,
        }
        Ok(Word::News)
    }

    fn item_window(&mut self, node: NodeId) -> &mut Receiver {
        self.items.entry(node).or_insert_with(|| Receiver::new(ITEM_WINDOW_BYTES))
    }

    fn link(&mut self, node: NodeId, ranks: u64, number: u32, word: &LinkWord) -> Result<(), Violation> {
        let key = (node, number);
        if let LinkWord::Open(_) = word {
            let open = self.links.range((node, 0)..=(node, u32::MAX)).count() as u64;
            if self.links.contains_key(&key) || open >= ranks + MORE_LINKS {
                return Err(Violation::new(format!("opened link {number} twice, or too many links")));
            }
            self.links.insert(key, Link { window: Receiver::new(0), sent: Outstanding::default() });
            return Ok(());
        }
        let never = || Violation::new(format!("spoke on link {number}, which is not open"));
        let link = self.links.get_mut(&key).ok_or_else(never)?;
        match word {
            LinkWord::Bytes(bytes) => {
                let taken = link.window.take(count(bytes.0.len()));
                taken.map_err(|overrun| Violation::overran(format!("link {number}"), overrun))?;
            }
            LinkWord::Credit(bytes) => {
                let back = link.sent.give_back(*bytes);
                back.map_err(|overrun| Violation::new(format!("took too much on link {number}: {overrun}")))?;
            }
            LinkWord::Close => drop(self.links.remove(&key)),
            LinkWord::Open(_) | LinkWord::LastWords => {}
        }
        Ok(())
    }

    pub(super) fn ordered_channel(&mut self, to: &NodeSet, order: &ChannelOrder) {
        match order {
            ChannelOrder::Credit { daemon, bytes } => {
                for node in to.iter() {
                    self.message_window(Member { node, daemon: *daemon }).grant(*bytes);
                }
            }
            ChannelOrder::Collect { operation, of, .. } => {
                self.last_operation = self.last_operation.max(*operation);
                let (missing, parts, made) = (MemberSet::default(), HashMap::new(), HashMap::new());
                self.operations.insert(*operation, Operation { of: of.clone(), missing, parts, made });
            }
            ChannelOrder::End { operation } => drop(self.operations.remove(operation)),
            ChannelOrder::More { operation, node, part, bytes } => {
                let operation = self.operations.get_mut(operation);
                if let Some(window) = operation.and_then(|it| it.parts.get_mut(&(*node, *part))) {
                    window.grant(*bytes);
                }
            }
            ChannelOrder::Message { .. } | ChannelOrder::Stream { .. } | ChannelOrder::Hurry { .. } => {}
        }
    }

    fn message_window(&mut self, member: Member) -> &mut Receiver {
        self.messages.entry(member).or_insert_with(|| Receiver::new(CHANNEL_WINDOW_BYTES))
    }

    pub(super) fn noticed_channel(
        &mut self,
        node: NodeId,
        below: &dyn Fn() -> NodeSet,
        notice: &ChannelNotice,
    ) -> Admitted {
        match notice {
            ChannelNotice::Message { daemon, bytes, .. } => {
                if bytes.0.len() > MAX_MESSAGE_BYTES {
                    return Err(Violation::new(format!("sent a message of {} bytes", bytes.0.len())));
                }
                let window = self.message_window(Member { node, daemon: *daemon });
                let taken = window.take(cost_of(bytes.0.len()));
                taken
                    .map_err(|overrun| Violation::overran(format!("messages of daemon {daemon}"), overrun))?;
                Ok(Word::News)
            }
            ChannelNotice::Part { operation, part, of, bytes, .. } => {
                let Some(known) = self.find_operation(*operation)? else { return Ok(Word::Old) };
                known.part(node, below, (*part, of), bytes.0.len())
            }
            ChannelNotice::Missing { operation, of, .. } => {
                check_below(of, below)?;
                let Some(known) = self.find_operation(*operation)? else { return Ok(Word::Old) };
                let fresh = of.intersection(&known.of).difference(&known.missing);
                known.missing = known.missing.union(&fresh);
                Ok(if fresh.is_empty() { Word::Old } else { Word::News })
            }
        }
    }

    /// None: it is over.
    fn find_operation(&mut self, number: u64) -> Result<Option<&mut Operation>, Violation> {
        if number > self.last_operation {
            return Err(Violation::new(format!("contributed to operation {number}, which does not exist")));
        }
        Ok(self.operations.get_mut(&number))
    }
}

impl Operation {
    /// A chunk of a part. The first one comes without credit; each part has a member at least.
    fn part(
        &mut self,
        node: NodeId,
        below: &dyn Fn() -> NodeSet,
        (part, of): (u32, &MemberSet),
        bytes: usize,
    ) -> Admitted {
        if let Some(window) = self.parts.get_mut(&(node, part)) {
            let taken = window.take(count(bytes));
            taken.map_err(|overrun| Violation::overran("contributions", overrun))?;
            return Ok(Word::News);
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
        Ok(Word::News)
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
