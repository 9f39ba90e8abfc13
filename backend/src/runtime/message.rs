//! A message between ranks.

use gantry_types::runtime::Peer;

/// A message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The sender.
    pub from: Peer,
    /// The content.
    pub bytes: Vec<u8>,
}
