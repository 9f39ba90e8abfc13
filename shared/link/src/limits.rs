//! The bounds of a link, so that no peer can make another hold or wait without end.

use std::time::Duration;

/// The most plain bytes in one bulk chunk: 256 KiB.
///
/// A chunk is forwarded only when all of it is there, so its size is the delay that every level of the tree adds.
/// 256 KiB is 0.2 ms at 10 Gbit/s, and large enough that the 37 bytes of header and seal do not matter.
pub const MAX_BULK_CHUNK_BYTES: usize = 256 * 1024;

/// How long a handshake may take, from the first byte to the proof of the secret: 10 s.
///
/// It takes two and a half round trips. A loaded login node that accepts a thousand agents at once needs seconds. A
/// silent peer must not keep a place for longer.
pub const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(10);

/// The most bytes of text in a refusal: enough for a sentence, too few to fill a log.
pub const MAX_REASON_BYTES: usize = 256;
