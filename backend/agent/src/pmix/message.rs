//! The messages between an agent and its PMIx server: frames, some of them followed by bytes.
//!
//! A foreign library runs in the server, so the agent checks every length before it takes memory.

use std::ffi::OsString;
use std::io::{self, Read};

use gantry_shared::wire::frame::{self, MAX_FRAME_BYTES, PREFIX_BYTES};
use gantry_shared::wire::mpi::MpiSubject;
use gantry_types::id::Rank;
use gantry_types::rank_set::RankSet;
use serde::{Deserialize, Serialize};

/// The most bytes that a node's ranks may exchange in one fence.
pub(super) const MAX_PUTS_BYTES: u64 = 8 * 1024 * 1024;

/// The most bytes that the ranks of all nodes may exchange in one fence.
pub(super) const MAX_ALL_BYTES: u64 = 256 * 1024 * 1024;

/// What the server must know before it starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Setup {
    /// Libraries to try, in this order: paths, or names for the system to find.
    pub(super) libraries: Vec<OsString>,
    /// The job's name.
    pub(super) namespace: String,
    /// The number of this node.
    pub(super) node: u32,
    /// The name of each node. No two are the same.
    pub(super) hosts: Vec<String>,
    /// The ranks of each node.
    pub(super) layout: Vec<RankSet>,
    /// The ranks of each program.
    pub(super) parts: Vec<RankSet>,
    /// An empty directory for files of the library and of the ranks.
    pub(super) directory: OsString,
}

/// A message of the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ToServer {
    /// The first message.
    Setup(Setup),
    /// The fence is complete. What the ranks of all nodes have put follows.
    Fenced {
        /// How much.
        bytes: u64,
    },
}

/// A message of the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum FromServer {
    /// A rank's variables. One message for each rank, before [`FromServer::Ready`].
    Variables(Rank, Vec<(OsString, OsString)>),
    /// The server runs, by this library.
    Ready(String),
    /// The server cannot start, for this reason.
    Failed(String),
    /// A rank has begun.
    Joined(Rank),
    /// A rank has left in good order.
    Left(Rank),
    /// A rank ends all ranks with this exit code.
    Aborted(Rank, i32),
    /// All ranks of this node are in the fence. What they have put follows.
    Fence {
        /// How much.
        bytes: u64,
    },
    /// A rank asks for something that gantry does not serve.
    Asked(Rank, MpiSubject),
}

/// A message and the bytes behind it, as bytes to send.
pub(super) fn build_message<T: Serialize>(message: &T, behind: &[u8]) -> io::Result<Vec<u8>> {
    let mut bytes = frame::encode(message).map_err(io::Error::other)?;
    bytes.extend_from_slice(behind);
    Ok(bytes)
}

/// The message that a fence is complete.
pub(crate) fn build_answer(all: &[u8]) -> io::Result<Vec<u8>> {
    build_message(&ToServer::Fenced { bytes: all.len() as u64 }, all)
}

/// Reads a message of the agent, and the bytes behind it. `None`: the agent has closed its end.
pub(super) fn read_message(from: &mut impl Read) -> io::Result<Option<(ToServer, Vec<u8>)>> {
    let Some(body) = frame::read_frame(from).map_err(io::Error::other)? else { return Ok(None) };
    let message: ToServer = frame::decode(&body).map_err(io::Error::other)?;
    let mut behind = Vec::new();
    if let ToServer::Fenced { bytes } = message {
        if bytes > MAX_ALL_BYTES {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let read = from.take(bytes).read_to_end(&mut behind)?;
        if read as u64 != bytes {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(Some((message, behind)))
}

/// Takes the first message out of the inbox, and the bytes behind it. `None`: it is not complete.
///
/// # Errors
/// It is malformed or too long.
pub(crate) fn take_message(inbox: &mut Vec<u8>) -> Result<Option<(FromServer, Vec<u8>)>, &'static str> {
    let Some(prefix) = inbox.first_chunk::<PREFIX_BYTES>() else { return Ok(None) };
    let length = u32::from_be_bytes(*prefix) as usize;
    if length > MAX_FRAME_BYTES {
        return Err("is too long");
    }
    let Some(body) = inbox.get(PREFIX_BYTES..PREFIX_BYTES + length) else { return Ok(None) };
    let message: FromServer = frame::decode(body).map_err(|_| "is malformed")?;
    let behind = match message {
        FromServer::Fence { bytes } if bytes > MAX_PUTS_BYTES => return Err("has too many bytes behind it"),
        FromServer::Fence { bytes } => usize::try_from(bytes).unwrap_or(usize::MAX),
        _ => 0,
    };
    let start = PREFIX_BYTES + length;
    let Some(data) = inbox.get(start..start.saturating_add(behind)) else { return Ok(None) };
    let data = data.to_vec();
    inbox.drain(..start + behind);
    Ok(Some((message, data)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_cut_out_with_the_bytes_behind_them() {
        let fence = build_message(&FromServer::Fence { bytes: 3 }, b"abc").unwrap();
        let left = build_message(&FromServer::Left(Rank(7)), b"").unwrap();
        let all = [fence, left].concat();
        for cut in 0..all.len() {
            let mut inbox = all[..cut].to_vec();
            while let Some((message, data)) = take_message(&mut inbox).unwrap() {
                assert_eq!((message, data.as_slice()), (FromServer::Fence { bytes: 3 }, &b"abc"[..]));
            }
        }
        let mut inbox = all;
        assert_eq!(take_message(&mut inbox), Ok(Some((FromServer::Fence { bytes: 3 }, b"abc".to_vec()))));
        assert_eq!(take_message(&mut inbox), Ok(Some((FromServer::Left(Rank(7)), Vec::new()))));
        assert!(inbox.is_empty());
    }

    #[test]
    fn what_is_too_long_is_refused_before_it_has_arrived() {
        assert_eq!(take_message(&mut vec![0xff; 8]), Err("is too long"));
        let mut inbox = build_message(&FromServer::Fence { bytes: MAX_PUTS_BYTES + 1 }, b"").unwrap();
        assert_eq!(take_message(&mut inbox), Err("has too many bytes behind it"));
        assert_eq!(take_message(&mut vec![0, 0, 0, 1, 0xff]), Err("is malformed"));
    }

    #[test]
    fn the_agents_messages_are_read_whole_or_not_at_all() {
        let answer = build_answer(b"all").unwrap();
        assert_eq!(
            read_message(&mut answer.as_slice()).unwrap(),
            Some((ToServer::Fenced { bytes: 3 }, b"all".to_vec()))
        );
        assert!(read_message(&mut &answer[..answer.len() - 1]).is_err());
        assert_eq!(read_message(&mut &b""[..]).unwrap(), None);
    }
}
