//! How a launcher's ranks come to be ours: what the program that stands in a rank's place is told, and what it and its node's
//! agent say to each other.
//!
//! The launcher starts `gantry-agent hold PROGRAM ARGS` where it would have started the program. The first one on a node starts the node's
//! agent; all check in there, and become their programs when the agent says so. They talk over a socket in the abstract name space: it
//! belongs to the node and leaves nothing behind. Both sides check the other's user id.

use std::ffi::OsString;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::frame::{self, FrameError};
use super::message::Ticket;
use super::mpi::MpiRanks;
use crate::secret::Secret;
use gantry_types::error::Failure;
use gantry_types::id::{AppId, Pid, Rank};
use gantry_types::rank_set::RankSet;

/// The variable by which ranks get their [`HoldTicket`], as a launcher passes on nothing but arguments and variables. It is taken out of the
/// environment before the rank becomes its program.
pub const GANTRY_TICKET: &str = "GANTRY_TICKET";

/// The variable with the path at which the launcher has put the agent on the node, for it to be removed.
pub const GANTRY_SENT_AGENT: &str = "GANTRY_SENT_AGENT";

/// Most ranks of an app on one node.
pub const MAX_LOCAL_RANKS: u32 = 1 << 16;

/// What stands in a rank's place is told.
#[derive(Debug, Serialize, Deserialize)]
pub struct HoldTicket {
    /// For the node's agent. Its `host` is empty: every node knows its own name.
    pub agent: Ticket,
    /// Whether ranks are held at their first instruction.
    pub hold: bool,
    /// Hold not the program that the launcher starts but the first one of it, or of its descendants, whose path matches this pattern.
    pub hold_at: Option<String>,
    /// The name of a program that may stand around each rank: then the rank is the first child of it that becomes a program.
    pub wrapper: Option<String>,
    /// What ranks have of their own, where a launcher gives all of them the same.
    pub own: Vec<Own>,
    /// What the agent does that the launcher runs after each rank. None: the launcher runs none.
    pub after_rank: Option<AfterRank>,
    /// Whether they are served as MPI programs.
    pub mpi: MpiRanks,
}

/// What is done after a rank has ended, by the agent that its launcher runs then on its node. It also waits until the node's agent has cleaned
/// up, where the launcher would kill that one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AfterRank {
    /// The program that the launcher would run without gantry. It has no arguments.
    pub program: Option<OsString>,
    /// Time limit for all of it.
    pub within: Duration,
}

/// What some ranks have of their own. Nobody but the user sees it, as it would be seen in arguments.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Own {
    /// Which ranks.
    pub ranks: RankSet,
    /// Variables beside those of all.
    pub env: Vec<(OsString, OsString)>,
    /// Their directory; none: the launcher's choice.
    pub cwd: Option<OsString>,
}

/// Why a text is no ticket.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TicketError {
    /// It is not hexadecimal digits. The text is not shown: it holds a secret.
    #[error("read {GANTRY_TICKET}: it is not hexadecimal digits")]
    NotHex,
    /// They are no ticket of this version.
    #[error("read {GANTRY_TICKET}")]
    Malformed(#[from] FrameError),
}

impl HoldTicket {
    /// The ticket as hexadecimal digits. Wiped when dropped.
    ///
    /// # Errors
    /// It is too large to be a frame.
    pub fn to_text(&self) -> Result<Zeroizing<String>, FrameError> {
        let bytes = Zeroizing::new(frame::encode_body(self)?);
        Ok(to_hex(&bytes))
    }

    /// The ticket that [`HoldTicket::to_text`] wrote.
    ///
    /// # Errors
    /// [`TicketError`].
    pub fn from_text(text: &str) -> Result<Self, TicketError> {
        Ok(frame::decode(&from_hex(text)?)?)
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

/// The name of the socket at which an app's ranks of a node check in, in the abstract name space. It follows from the app's secret, so that no other user can
/// take it first.
#[must_use]
pub fn build_desk_name(app: AppId, secret: &Secret) -> String {
    format!("gantry-desk-{app}-{}", secret.derive("desk of the node"))
}

/// From a rank-to-be to its node's agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToDesk {
    /// Here is a rank. Its pid is the socket's peer's.
    CheckIn(CheckIn),
    /// The agent may trace it now.
    Ready,
    /// It could not become its program, and ends.
    NotStarted(Failure),
    /// A rank has ended, and what its launcher started is killed when this process ends. The agent closes the socket when it has cleaned up.
    RankEnded,
}

/// What a rank knows of itself from its launcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckIn {
    /// Which rank.
    pub rank: Rank,
    /// How many ranks the app has.
    pub size: u32,
    /// How many of them are on this node.
    pub local_size: u32,
}

/// From the agent to a rank-to-be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromDesk {
    /// Let this process, the agent, trace you, and say when it may.
    Prepare {
        /// The agent's pid on this node.
        agent: Pid,
    },
    /// Become your program.
    Go,
    /// It will not be; end.
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
            release: "1".to_owned(),
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
        assert_eq!(back.agent.secret.to_hex(), secret.to_hex());
        assert_eq!(
            (back.hold, back.hold_at, back.agent.app),
            (true, ticket.hold_at.clone(), ticket.agent.app)
        );
        assert_eq!((back.own, back.after_rank), (vec![own], Some(after_rank)));
        assert!(!format!("{ticket:?}").contains(&*secret.to_hex()));
    }

    #[test]
    fn other_texts_are_no_tickets() {
        for text in ["0", "xy", "00", "", "é0", "0102030405"] {
            let error = HoldTicket::from_text(text).unwrap_err();
            assert!(!error.to_string().contains("é"), "{error}");
        }
    }
}
