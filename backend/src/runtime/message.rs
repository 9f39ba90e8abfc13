//! A message between ranks.

use gantry_shared::wire::runtime::Address;

/// A message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The sender.
    pub from: Address,
    /// What.
    pub bytes: Vec<u8>,
}
