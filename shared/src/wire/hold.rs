//! How an agent takes over a launcher's ranks: the ticket of the shim that runs in a rank's place, and the protocol
//! between shim and agent.
//!
//! The launcher starts the shim `gantry-agent hold PROGRAM ARGS` in place of the program. The first shim on a node
//! starts the node's agent. All shims check in there, and execute their programs when the agent tells them to. They use
//! a socket in the abstract name space, which belongs to the node and leaves nothing behind. Both sides check the
//! other's user id.

use std::ffi::OsString;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::build;
use super::frame::{self, FrameError};
use super::message::{Ticket, TicketError};
use super::mpi::MpiRanks;
use crate::secret::Secret;
use gantry_types::error::Failure;
use gantry_types::id::{AppId, Pid, Rank};
use gantry_types::rank_set::RankSet;

/// What a rank that could not be started writes to its standard error first.
pub const SHIM_WORDS: &str = "gantry: ";

/// The variable that gives ranks their [`HoldTicket`]; a launcher passes on only arguments and variables.
///
/// The shim removes it from the environment before it executes the program.
pub const GANTRY_TICKET: &str = "GANTRY_TICKET";

/// The variable with the path of the agent's file, if the launcher has put it on the node. The file is to be removed.
pub const GANTRY_SENT_AGENT: &str = "GANTRY_SENT_AGENT";

/// Most ranks of an app on one node.
pub const MAX_LOCAL_RANKS: u32 = 1 << 16;

/// The ticket of a shim.
#[derive(Debug, Serialize, Deserialize)]
pub struct HoldTicket {
    /// For the node's agent. Its `host` is empty: every node knows its own name.
    pub agent: Ticket,
    /// Whether ranks are held at their first instruction.
    pub hold: bool,
    /// Instead of the launcher's program, hold the first program of it, or of its descendants, whose path matches this
    /// pattern.
    pub hold_at: Option<String>,
    /// The name of a program that may wrap each rank: then the rank is its first child that executes a program.
    pub wrapper: Option<String>,
    /// Settings of single ranks, for launchers that give all ranks the same.
    pub own: Vec<Own>,
    /// The work of the agent that the launcher runs after each rank. `None`: the launcher runs none.
    pub after_rank: Option<AfterRank>,
    /// Whether agents serve them as MPI programs.
    pub mpi: MpiRanks,
}

/// The work after a rank has ended. The launcher runs an agent on the rank's node for it.
///
/// That agent also waits until the node's agent has cleaned up, if the launcher would kill the node's agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AfterRank {
    /// The program that the launcher would run without gantry. It has no arguments.
    pub program: Option<OsString>,
    /// Time limit for all of it.
    pub within: Duration,
}

/// Settings of some ranks. Only the user can see them, unlike arguments.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Own {
    /// Which ranks.
    pub ranks: RankSet,
    /// Variables in addition to those of all ranks.
    pub env: Vec<(OsString, OsString)>,
    /// Their working directory; `None`: the launcher's choice.
    pub cwd: Option<OsString>,
}

impl HoldTicket {
    /// The ticket as hexadecimal digits, the build that wrote it first. Wiped when dropped.
    ///
    /// # Errors
    /// It is too large for a frame.
    pub fn to_text(&self) -> Result<Zeroizing<String>, FrameError> {
        let bytes = Zeroizing::new(frame::encode_body(self)?);
        Ok(to_hex(&build::stamp(&bytes)))
    }

    /// The ticket that [`HoldTicket::to_text`] wrote.
    ///
    /// # Errors
    /// [`TicketError`].
    pub fn from_text(text: &str) -> Result<Self, TicketError> {
        Ok(frame::decode(build::check(&from_hex(text)?)?)?)
    }
}

/// Bytes as hexadecimal digits, for a variable. Wiped when dropped.
#[must_use]
pub fn to_hex(bytes: &[u8]) -> Zeroizing<String> {
    let mut text = Zeroizing::new(String::with_capacity(bytes.len() * 2));
    for byte in bytes {
        for digit in [byte >> 4, byte & 15] {
            text.push(char::from_digit(digit.into(), 16).unwrap_or('0'));
        }
    }
    text
}

/// The bytes that [`to_hex`] wrote. Wiped when dropped.
///
/// # Errors
/// [`TicketError::NotHex`].
pub fn from_hex(text: &str) -> Result<Zeroizing<Vec<u8>>, TicketError> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return Err(TicketError::NotHex) };
    let bytes: Option<Vec<u8>> =
        pairs.iter().map(|[high, low]| Some(digit(high)? << 4 | digit(low)?)).collect();
    bytes.map(Zeroizing::new).ok_or(TicketError::NotHex)
}

/// The name of the socket where an app's ranks of a node check in, in the abstract name space.
///
/// It is derived from the app's secret, so that no other user can take it first.
#[must_use]
pub fn build_desk_name(app: AppId, secret: &Secret) -> String {
    format!("gantry-desk-{app}-{}", secret.derive("desk of the node"))
}

/// From a shim to its node's agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToDesk {
    /// A rank checks in. Its pid is the pid of the socket's peer.
    CheckIn(CheckIn),
    /// The agent may trace this process now.
    Ready,
    /// The shim could not execute its program, and ends.
    NotStarted(Failure),
    /// A rank has ended. The launcher kills what it started when this process ends. The agent closes the socket when it
    /// has cleaned up.
    RankEnded,
}

/// A rank's facts from its launcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckIn {
    /// Its rank.
    pub rank: Rank,
    /// Number of ranks of the app.
    pub size: u32,
    /// Number of them on this node.
    pub local_size: u32,
}

/// From the agent to a shim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromDesk {
    /// Allow the agent to trace this process, and report when it may.
    Prepare {
        /// The agent's pid on this node.
        agent: Pid,
    },
    /// Execute your program.
    Go,
    /// The rank is refused: end.
    Refused(Failure),
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_ticket_survives_the_environment_and_shows_no_secret() {
        let secret = Secret::random().unwrap();
        let agent = Ticket {
            app: "3kx9w0fz".parse().unwrap(),
            secret: secret.clone(),
            frontend: vec!["127.0.0.1:1".parse().unwrap()],
            host: String::new(),
            wlm: "none".to_owned(),
            stage_base: None,
            node_variables: Vec::new(),
            patience: Duration::from_secs(1),
            subjob: None,
        };
        let (env, cwd) = (vec![("A".into(), "b c".into())], Some("/d".into()));
        let own = Own { ranks: "0-3".parse().unwrap(), env, cwd };
        let after_rank = AfterRank { program: Some("/e".into()), within: Duration::from_secs(2) };
        let ticket = HoldTicket {
            agent,
            hold: true,
            hold_at: Some("*/app".to_owned()),
            wrapper: None,
            own: vec![own.clone()],
            after_rank: Some(after_rank.clone()),
            mpi: MpiRanks::Join,
        };
        let text = ticket.to_text().unwrap();
        let back = HoldTicket::from_text(&text).unwrap();
        assert_eq!(back.agent.secret.expose(), secret.expose());
        assert_eq!(
            (back.hold, back.hold_at, back.agent.app),
            (true, ticket.hold_at.clone(), ticket.agent.app)
        );
        assert_eq!((back.own, back.after_rank), (vec![own], Some(after_rank)));
        assert!(!format!("{ticket:?}").contains(&*to_hex(secret.expose())));
    }

    #[test]
    fn other_texts_are_no_tickets() {
        let malformed = HoldTicket::from_text(&to_hex(&build::stamp(b"\xff"))).unwrap_err();
        assert!(matches!(malformed, TicketError::Malformed(_)), "{malformed}");
        let other = HoldTicket::from_text(&to_hex(b"9.9.9.1:\xff")).unwrap_err();
        assert!(matches!(other, TicketError::OtherBuild(_)), "{other}");
        for text in ["0", "xy", "00", "", "é0", "0102030405"] {
            let error = HoldTicket::from_text(text).unwrap_err();
            assert!(!error.to_string().contains("é"), "{error}");
        }
    }
}
