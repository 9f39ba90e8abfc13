//! The stream of a link after the preambles: records of one byte of kind, a 24-bit big-endian length, and a body.
//!
//! A record's header is in clear, and so is its kind. That is harmless: the meaning of a Noise record is in its first
//! plain byte, which is sealed with the rest, and a bulk chunk has its own seal.

use super::bulk::MAX_ENCODED_BYTES;
use super::error::{LinkError, Phase};
use super::primitives::TAG_BYTES;
use crate::limits::MAX_REASON_BYTES;

pub(super) const HEADER_BYTES: usize = 4;
/// Noise's limit of a message (specification, section 3).
pub(super) const MAX_NOISE_BYTES: usize = 65_535;
/// The most bytes of frames in one Noise record: the seal and the byte of meaning take their room.
pub(super) const MAX_PIECE_BYTES: usize = MAX_NOISE_BYTES - TAG_BYTES - 1;

/// The kind of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// A Noise transport message.
    Noise,
    /// A sealed bulk chunk.
    Bulk,
    /// A message of the Noise handshake.
    Handshake,
    /// Why the link is closed, in clear; only before the handshake is done. Its format is the same in all versions.
    Refusal,
}

impl Kind {
    /// By code.
    const ALL: [Self; 4] = [Self::Noise, Self::Bulk, Self::Handshake, Self::Refusal];

    pub(super) fn code(self) -> u8 {
        self as u8
    }

    fn limit(self) -> (&'static str, usize) {
        match self {
            Self::Noise => ("record", MAX_NOISE_BYTES),
            Self::Bulk => ("bulk chunk", MAX_ENCODED_BYTES),
            Self::Handshake => ("handshake message", 256),
            Self::Refusal => ("refusal", MAX_REASON_BYTES),
        }
    }
}

/// The meaning of a Noise record: the first byte of its plain text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Meaning {
    /// A piece of the stream of frames follows.
    Piece,
    /// The end of this record and of this link.
    Goodbye,
    /// As goodbye, with the reason.
    Refusal,
    /// The dialler's first record: it has the keys, so its first handshake message was no replay.
    Confirm,
    /// This many places for bulk chunks are free again.
    Credit,
}

impl Meaning {
    /// By code.
    const ALL: [Self; 5] = [Self::Piece, Self::Goodbye, Self::Refusal, Self::Confirm, Self::Credit];

    pub(super) fn code(self) -> u8 {
        self as u8
    }

    pub(super) fn parse(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }
}

/// The header of a record whose body is within its kind's limit.
pub(super) fn build_header(kind: Kind, body_bytes: usize) -> Result<[u8; HEADER_BYTES], LinkError> {
    let (what, limit) = kind.limit();
    match u32::try_from(body_bytes).map(u32::to_be_bytes) {
        Ok([0, high, middle, low]) if body_bytes <= limit => Ok([kind.code(), high, middle, low]),
        _ => Err(LinkError::Oversized { what, limit }),
    }
}

/// Kind and length of the body. The limit is checked here, before a byte of the body is read.
pub(super) fn parse_header(header: [u8; HEADER_BYTES], phase: Phase) -> Result<(Kind, usize), LinkError> {
    let [code, high, middle, low] = header;
    let kind = Kind::ALL.get(usize::from(code)).copied();
    let kind = kind.ok_or(LinkError::Malformed { phase, what: "a record is of an unknown kind" })?;
    let (what, limit) = kind.limit();
    match usize::try_from(u32::from_be_bytes([0, high, middle, low])) {
        Ok(length) if length <= limit => Ok((kind, length)),
        _ => Err(LinkError::Oversized { what, limit }),
    }
}

/// At most [`MAX_REASON_BYTES`] of `text`, cut between characters.
pub(super) fn build_reason(text: &str) -> &[u8] {
    let mut end = text.len().min(MAX_REASON_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text.as_bytes()[..end]
}

/// A peer's reason as printable text: it may come from an attacker, and control characters affect terminals.
pub(super) fn parse_reason(bytes: &[u8]) -> String {
    let shown = &bytes[..bytes.len().min(MAX_REASON_BYTES)];
    let text = String::from_utf8_lossy(shown);
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_go_round_up_to_the_limit_of_their_kind() {
        for kind in Kind::ALL {
            let (_, limit) = kind.limit();
            for length in [0, 1, limit] {
                let header = build_header(kind, length).unwrap();
                assert_eq!(parse_header(header, Phase::Open).unwrap(), (kind, length));
            }
            assert!(matches!(build_header(kind, limit + 1), Err(LinkError::Oversized { .. })));
            let [_, high, middle, low] = u32::try_from(limit + 1).unwrap().to_be_bytes();
            let header = [kind.code(), high, middle, low];
            assert!(matches!(parse_header(header, Phase::Open), Err(LinkError::Oversized { .. })));
        }
        assert!(matches!(parse_header([4, 0, 0, 0], Phase::Open), Err(LinkError::Malformed { .. })));
        assert_eq!(Meaning::parse(5), None);
    }

    #[test]
    fn reasons_are_bounded_and_safe_to_show() {
        let long = "\u{e9}".repeat(MAX_REASON_BYTES);
        assert_eq!(parse_reason(build_reason(&long)), "\u{e9}".repeat(MAX_REASON_BYTES / 2));
        assert_eq!(parse_reason(b"\x1b[31mred\x00\r\n"), "[31mred");
        assert_eq!(parse_reason(b"\xff"), "\u{fffd}");
        assert_eq!(build_reason(""), b"");
    }
}
