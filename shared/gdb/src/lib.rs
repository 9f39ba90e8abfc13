//! The parts that `gantry gdb` and its daemons on the nodes share: orders, answers, and gdb's output format.
//!
//! | module | content |
//! | --- | --- |
//! | [`order`] | orders for daemons |
//! | [`answer`] | the state of a rank, and its gdb's reply |
//! | [`mi`] | gdb's output for a program that drives it |
//!
//! Each daemon makes one contribution per order: its ranks, grouped by their [`answer::Answer`]. Ranks with the same
//! answer are sent as one group.

use serde::Serialize;
use serde::de::DeserializeOwned;

pub mod answer;
pub mod mi;
pub mod order;

/// The bytes of an order, or the key of ranks with the same answer.
#[must_use]
pub fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    // No part of it can fail to encode.
    postcard::to_stdvec(value).unwrap_or_default()
}

/// Decodes what [`encode`] wrote. `None`: the bytes are not of this type.
#[must_use]
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    postcard::from_bytes(bytes).ok()
}

/// The file name of the daemon.
pub const DAEMON: &str = "gantry-gdbd";

/// The directory below the session's `lib` that has debug files of the login side, by build id as gdb searches them.
pub const DEBUG_FILES: &str = "debug-files";

/// Tags on the channel between the tool and its daemons.
pub mod tags {
    /// To daemons: an [`Order`](crate::order::Order).
    pub const ORDER: u32 = 1;
    /// From daemons: ranks by their [`Answer`](crate::answer::Answer), [`Words`](crate::answer::Words), or
    /// [`Lack`](crate::answer::Lack).
    pub const ANSWER: u32 = 2;
}
