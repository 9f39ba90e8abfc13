//! The bounds of the wire, in one place, so that no peer can make another hold or wait without end.

use std::time::Duration;

/// The most bytes a frame's body may have: 1 MiB.
///
/// The largest control message is one node's share of an answer: a proctable slice or a report of some ten thousand
/// ranks at less than 100 bytes each. What is larger is data, and data goes as bulk chunks. An agent with
/// 64 children that all stop inside their largest frame holds 64 MiB, which a node can bear.
pub const MAX_FRAME_BYTES: usize = 1024 * 1024;

/// The most plain bytes in one bulk chunk: 256 KiB.
///
/// A chunk is forwarded only when all of it is there, so its size is the delay that every level of the tree adds.
/// 256 KiB is 0.2 ms at 10 Gbit/s, and large enough that the 37 bytes of header and seal do not matter.
pub const MAX_BULK_CHUNK_BYTES: usize = 256 * 1024;

/// How long a handshake may take, from the first byte to the proof of the secret: 10 s.
///
/// It is two and a half round trips. A loaded login node that accepts a thousand agents at once needs seconds, and a peer
/// that says nothing must not keep one of its places for longer.
pub const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(10);

/// The most bytes of text in a refusal: enough for a sentence, too few to fill a log.
pub const MAX_REASON_BYTES: usize = 256;
