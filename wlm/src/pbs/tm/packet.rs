//! Packets: the framing of messages on a connection.
//!
//! Since OpenPBS 20 every message is one packet: six bytes of magic, one byte for its type, four for the length of
//! the body. Earlier servers send the same messages without frames, and the end of an answer follows only from the
//! request.

/// The beginning of every packet.
const MAGIC: [u8; 6] = *b"PKTV1\0";

/// Bytes before the message of a packet.
pub const HEADER_BYTES: usize = 11;

/// The largest packet for a mom. The mom uses the result of one read as the whole packet (`do_tcp` in mom_main.c). It
/// sometimes loses a part of a larger packet, and then the connection.
pub const LARGEST_REQUEST_BYTES: usize = 60_000;

/// The largest accepted message. Only a job with a million tasks on one host would need more.
pub const LARGEST_REPLY_BYTES: usize = 16 * 1024 * 1024;

/// How messages are framed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Framing {
    /// One packet for each message: OpenPBS since version 20.
    #[default]
    Packets,
    /// No framing: PBS up to version 19.
    Bare,
}

/// Why bytes are not a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PacketError {
    /// It has another prefix.
    #[error("a packet does not begin with PKTV1")]
    Magic,
    /// It would be larger than allowed.
    #[error("a packet of {length} bytes where {most} are allowed")]
    TooLarge {
        /// The length in its header.
        length: u32,
        /// The most.
        most: usize,
    },
}

/// Puts the header before a message of at most `u32::MAX` bytes; longer ones have no packet.
#[must_use]
pub fn seal(message: &[u8]) -> Option<Vec<u8>> {
    let length = u32::try_from(message.len()).ok()?;
    let mut packet = Vec::with_capacity(HEADER_BYTES + message.len());
    packet.extend_from_slice(&MAGIC);
    packet.push(0);
    packet.extend_from_slice(&length.to_be_bytes());
    packet.extend_from_slice(message);
    Some(packet)
}

/// The message of the first packet in `bytes`, and the packet's size. None: it is incomplete. The type is ignored:
/// moms leave it uninitialised.
///
/// # Errors
/// A packet of that size cannot be valid.
pub fn open(bytes: &[u8], most: usize) -> Result<Option<(&[u8], usize)>, PacketError> {
    let begun = bytes.len().min(MAGIC.len());
    if bytes[..begun] != MAGIC[..begun] {
        return Err(PacketError::Magic);
    }
    let Some((header, rest)) = bytes.split_at_checked(HEADER_BYTES) else { return Ok(None) };
    let length = u32::from_be_bytes([header[7], header[8], header[9], header[10]]);
    let wanted = usize::try_from(length).unwrap_or(usize::MAX);
    if wanted > most {
        return Err(PacketError::TooLarge { length, most });
    }
    Ok(rest.get(..wanted).map(|message| (message, HEADER_BYTES + wanted)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_packet_is_judged_by_its_first_bytes() {
        assert_eq!(open(b"", 9), Ok(None));
        assert_eq!(open(b"PKT", 9), Ok(None));
        assert_eq!(open(b"PKX", 9), Err(PacketError::Magic));
        assert_eq!(open(b"+2+2", 9), Err(PacketError::Magic));
        let large = b"PKTV1\0\0\xff\xff\xff\xff";
        assert_eq!(open(large, 9), Err(PacketError::TooLarge { length: u32::MAX, most: 9 }));
        assert_eq!(open(b"PKTV1\0y\0\0\0\x02+2more", 9), Ok(Some((&b"+2"[..], 13))));
    }

    proptest! {
        #[test]
        fn packets_go_round_and_are_not_seen_before_they_are_whole(message: Vec<u8>, cut: prop::sample::Index) {
            let packet = seal(&message).unwrap();
            prop_assert_eq!(open(&packet, message.len()), Ok(Some((&message[..], packet.len()))));
            prop_assert_eq!(open(&packet[..cut.index(packet.len())], message.len()), Ok(None));
        }
    }
}
