//! What daemons are to do. Each order is answered once, in time.

use std::time::Duration;

use gantry_types::id::Rank;
use gantry_types::rank_set::RankSet;
use serde::{Deserialize, Serialize};

/// The longest line for gdb.
pub const MAX_LINE_BYTES: usize = 16 << 10;

/// An order to all daemons of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// Orders are numbered, so that a late answer is known.
    pub number: u64,
    /// How long daemons wait for what they are to wait for. Then they answer with what there is.
    pub patience_ms: u32,
    /// What is to be done.
    pub what: What,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum What {
    /// Each of these ranks gets a command of gdb. A rank without a gdb gets one first.
    Tell {
        /// Who.
        ranks: RankSet,
        /// The command, as somebody types it.
        line: String,
    },
    /// Each of these ranks gets commands of gdb's machine interface, one after the other, whether it stands or runs. A rank without a gdb gets one first.
    /// What they are told does not wait for a rank that they let go on.
    Ask {
        /// Who.
        ranks: RankSet,
        /// The commands, without numbers. Each has a line of the answer: `^done,...` or `^error,...`.
        commands: Vec<String>,
        /// The most bytes of a rank's answer. A command whose line has no room has failed.
        room_bytes: u32,
        /// Names of values that are left out, such as `addr`: ranks that differ in those alone have the same answer.
        without: Vec<String>,
    },
    /// Wait until none of these ranks goes on.
    Stand {
        /// Who.
        ranks: RankSet,
    },
    /// Wait until these ranks have done what they were told.
    Wait {
        /// Who.
        ranks: RankSet,
    },
    /// Stop these ranks where they are, as far as they have a gdb.
    Interrupt {
        /// Who.
        ranks: RankSet,
    },
    /// Give what a rank's gdb has written.
    Words {
        /// Whose.
        rank: Rank,
        /// From this byte on.
        from: u64,
    },
    /// Let all ranks go, as they are to be left.
    Leave,
}

impl Order {
    /// How long daemons wait.
    #[must_use]
    pub fn patience(&self) -> Duration {
        Duration::from_millis(self.patience_ms.into())
    }

    /// The bytes of a message.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        // It has no part that can fail.
        postcard::to_stdvec(self).unwrap_or_default()
    }

    /// None: the bytes are no order.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        postcard::from_bytes(bytes).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_arrive_as_they_were_given() {
        let ranks: RankSet = "0-3,9".parse().unwrap();
        for what in [
            What::Tell { ranks: ranks.clone(), line: "print x".to_owned() },
            What::Wait { ranks: ranks.clone() },
            What::Stand { ranks: ranks.clone() },
            What::Ask {
                ranks: ranks.clone(),
                commands: vec!["-thread-info".to_owned()],
                room_bytes: 1000,
                without: vec!["addr".to_owned()],
            },
            What::Interrupt { ranks },
            What::Words { rank: Rank(7), from: 1 << 40 },
            What::Leave,
        ] {
            let order = Order { number: 3, patience_ms: 250, what };
            assert_eq!(Order::decode(&order.encode()), Some(order));
        }
        assert_eq!(Order::decode(b"\xff\xff\xff"), None);
    }
}
