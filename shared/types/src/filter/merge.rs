//! The common part of the built-in filters.

use crate::error::{Failure, Kind};

/// The most bytes that a part may have, contribution or result: 16 MiB.
///
/// A stack of fifty thousand nodes, or a set of a million ranges, is a quarter of that. An agent holds what it has merged and one part more.
pub const MAX_PART_BYTES: usize = 16 * 1024 * 1024;

/// A built-in filter's operations on decoded parts.
pub(super) trait Merge: Sized + Send {
    /// Reads a part, which has bytes, no more than the limit.
    fn read(part: &[u8]) -> Result<Self, Failure>;
    /// Takes another one in; on an error it is as it was.
    fn merge(&mut self, other: Self) -> Result<(), Failure>;
    /// Writes it as a part.
    fn write(&self) -> Result<Vec<u8>, Failure>;
}

/// The part, when it is no longer than parts may be.
pub(super) fn bounded(part: &[u8]) -> Result<&[u8], Failure> {
    if part.len() <= MAX_PART_BYTES {
        return Ok(part);
    }
    let bytes = part.len();
    Err(Failure::new(
        Kind::Invalid,
        format!("reduce a part of {bytes} bytes: at most {MAX_PART_BYTES} are allowed"),
    ))
}
