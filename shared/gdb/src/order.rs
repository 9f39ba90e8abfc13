//! Orders for daemons. A daemon answers each order once, within its timeout.

use std::time::Duration;

use gantry_types::id::Rank;
use gantry_types::rank_set::RankSet;
use serde::{Deserialize, Serialize};

/// The longest line for gdb.
pub const MAX_LINE_BYTES: usize = 16 << 10;

/// An order to all daemons of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// The order's number, which identifies a late answer.
    pub number: u64,
    /// The timeout of the order. After it daemons answer with what they have.
    pub patience_ms: u32,
    /// The action.
    pub what: What,
}

/// The action of an order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum What {
    /// Give each of these ranks a gdb command. A rank without a gdb gets one first.
    Tell {
        /// The ranks.
        ranks: RankSet,
        /// The command, as a user types it.
        line: String,
    },
    /// Give each of these ranks commands of gdb's machine interface, one after the other, whether it is stopped or
    /// runs.
    ///
    /// A rank without a gdb gets one first. If a command continues the rank, its result does not wait for the next
    /// stop.
    Ask {
        /// The ranks.
        ranks: RankSet,
        /// The commands, without numbers. Each gets one line of the answer: `^done,...` or `^error,...`.
        commands: Vec<String>,
        /// The most bytes of a rank's answer. A command whose line exceeds it has failed.
        room_bytes: u32,
        /// Names of values that are left out, such as `addr`. Ranks that differ only in those have the same answer.
        without: Vec<String>,
    },
    /// Wait until none of these ranks runs.
    Stand {
        /// The ranks.
        ranks: RankSet,
    },
    /// Wait until these ranks have carried out their commands.
    Wait {
        /// The ranks.
        ranks: RankSet,
    },
    /// Stop these ranks where they are, if they have a gdb.
    Interrupt {
        /// The ranks.
        ranks: RankSet,
    },
    /// Return the output of a rank's gdb.
    Words {
        /// The rank.
        rank: Rank,
        /// Offset of the first byte.
        from: u64,
    },
    /// Name what gdb does not find of these ranks: debug information of programs, and deleted libraries.
    Lack {
        /// The ranks.
        ranks: RankSet,
    },
    /// Release all ranks, in the state in which they are to be left.
    Leave,
}

impl Order {
    /// How long daemons wait.
    #[must_use]
    pub fn patience(&self) -> Duration {
        Duration::from_millis(self.patience_ms.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{decode, encode};

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
            What::Lack { ranks: RankSet::new() },
            What::Leave,
        ] {
            let order = Order { number: 3, patience_ms: 250, what };
            assert_eq!(decode(&encode(&order)), Some(order));
        }
        assert_eq!(decode::<Order>(b"\xff\xff\xff"), None);
    }
}
