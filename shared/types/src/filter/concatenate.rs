//! [`Filter::Concatenate`](super::Filter::Concatenate): every part unchanged, with its sender.
//!
//! A part of the reduction is a list, ascending by member: node, daemon, length, bytes. So the tool gets the nodes in
//! order, independent of the tree. Several parts of one member stay in the order in which they were merged.

use serde::{Deserialize, Serialize};

use super::bytes::{Reader, garbled, invalid, write_bytes, write_number};
use super::merge::{Merge, bounded};
use crate::error::Failure;
use crate::id::{DaemonId, NodeId};

/// The most parts in a list: a contribution of each daemon on a quarter of a million nodes.
pub const MAX_PARTS: usize = 262_144;

/// A contributor: a tool daemon on one node. It is an end of its session's channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Member {
    /// The node that the daemon runs on.
    pub node: NodeId,
    /// The daemon.
    pub daemon: DaemonId,
}

impl std::fmt::Display for Member {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "daemon {} on node {}", self.daemon, self.node)
    }
}

/// A member's contribution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Its sender.
    pub member: Member,
    /// The contribution, unchanged.
    pub bytes: Vec<u8>,
}

/// The list as a part of a reduction, brought into the order of its members.
///
/// # Errors
/// [`Kind::Invalid`](crate::error::Kind::Invalid) for more than [`MAX_PARTS`].
pub fn encode(parts: &[Part]) -> Result<Vec<u8>, Failure> {
    if parts.len() > MAX_PARTS {
        return Err(too_many());
    }
    let mut ordered: Vec<&Part> = parts.iter().collect();
    ordered.sort_by_key(|part| part.member);
    let mut list = Vec::new();
    for part in ordered {
        write_number(part.member.node.0.into(), &mut list);
        write_number(part.member.daemon.0.into(), &mut list);
        write_bytes(&part.bytes, &mut list);
    }
    Ok(list)
}

/// The list of a part; the empty one when nothing was contributed.
///
/// # Errors
/// [`Kind::Protocol`](crate::error::Kind::Protocol) when it is no such part.
pub fn decode(part: &[u8]) -> Result<Vec<Part>, Failure> {
    let part = bounded(part)?;
    let mut reader = Reader::new(part);
    let mut parts: Vec<Part> = Vec::new();
    while !reader.is_empty() {
        if parts.len() == MAX_PARTS {
            return Err(garbled(&format!("more than {MAX_PARTS} parts")));
        }
        let member = Member { node: NodeId(reader.number()?), daemon: DaemonId(reader.number()?) };
        if parts.last().is_some_and(|last| last.member > member) {
            return Err(garbled("members are not ascending"));
        }
        parts.push(Part { member, bytes: reader.bytes(part.len(), "bytes of a member")?.to_vec() });
    }
    Ok(parts)
}

fn too_many() -> Failure {
    invalid(format!("more than {MAX_PARTS} parts"))
}

/// The list so far, in the order in which it came.
pub(super) struct Parts(Vec<Part>);

impl Merge for Parts {
    fn read(part: &[u8]) -> Result<Self, Failure> {
        decode(part).map(Self)
    }

    fn merge(&mut self, other: Self) -> Result<(), Failure> {
        if self.0.len() + other.0.len() > MAX_PARTS {
            return Err(too_many());
        }
        self.0.extend(other.0);
        Ok(())
    }

    fn write(&self) -> Result<Vec<u8>, Failure> {
        encode(&self.0)
    }
}
