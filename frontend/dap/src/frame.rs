//! Splits a stream of bytes into messages. A message is a header with the length, a blank line, and a body.
//!
//! The length is checked before memory is allocated. A malformed message is reported and skipped, and the next one is
//! read.

/// The maximum length of a body.
pub const MAX_BODY_BYTES: usize = 4 << 20;

/// The maximum length of a header.
pub const MAX_HEADER_BYTES: usize = 4 << 10;

/// How many bytes are kept of a header that is too long.
const KEPT_BYTES: usize = 64;

/// The end of a header.
const BLANK: &[u8] = b"\r\n\r\n";

/// A message, or the reason why one was skipped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// The body of a message.
    Body(Vec<u8>),
    /// The reason why a message was skipped.
    Bad(String),
}

/// The position inside a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Header,
    /// In a body of this many bytes.
    Body(usize),
    /// In a body that is too long. This many of its bytes are left.
    TooLong(u64),
    /// In a header that was too long and has been reported.
    Lost,
}

/// Splits a stream into messages.
#[derive(Debug)]
pub struct Frames {
    at: At,
    kept: Vec<u8>,
}

impl Default for Frames {
    fn default() -> Self {
        Self { at: At::Header, kept: Vec::new() }
    }
}

impl Frames {
    /// Takes the next bytes and passes on each complete message.
    pub fn push(&mut self, mut bytes: &[u8], mut take: impl FnMut(Frame)) {
        while !bytes.is_empty() {
            let used = match self.at {
                At::Header | At::Lost => self.in_header(bytes, &mut take),
                At::Body(length) => {
                    let used = bytes.len().min(length - self.kept.len());
                    self.kept.extend_from_slice(&bytes[..used]);
                    if self.kept.len() == length {
                        self.at = At::Header;
                        take(Frame::Body(std::mem::take(&mut self.kept)));
                    }
                    used
                }
                At::TooLong(left) => {
                    let used = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
                    let left = left - used as u64;
                    self.at = if left == 0 { At::Header } else { At::TooLong(left) };
                    used
                }
            };
            bytes = &bytes[used..];
        }
    }

    /// Takes bytes up to the end of a header. Returns their number.
    fn in_header(&mut self, bytes: &[u8], take: &mut impl FnMut(Frame)) -> usize {
        for (at, byte) in bytes.iter().enumerate() {
            self.kept.push(*byte);
            if self.kept.ends_with(BLANK) {
                self.end_header(take);
                return at + 1;
            }
            if self.kept.len() >= MAX_HEADER_BYTES {
                if self.at != At::Lost {
                    take(Frame::Bad(format!("a header has more than {MAX_HEADER_BYTES} bytes")));
                }
                self.at = At::Lost;
                // A valid header may have started.
                self.kept.drain(..MAX_HEADER_BYTES - KEPT_BYTES);
            }
        }
        bytes.len()
    }

    fn end_header(&mut self, take: &mut impl FnMut(Frame)) {
        let header = std::mem::take(&mut self.kept);
        let was_lost = self.at == At::Lost;
        self.at = At::Header;
        match parse_length(&header) {
            Some(0) => take(Frame::Body(Vec::new())),
            Some(length) => match usize::try_from(length) {
                Ok(length) if length <= MAX_BODY_BYTES => self.at = At::Body(length),
                _ => {
                    self.at = At::TooLong(length);
                    take(Frame::Bad(format!("a message of {length} bytes: {MAX_BODY_BYTES} is the most")));
                }
            },
            // This was reported already.
            None if was_lost => {}
            None => take(Frame::Bad("a header without Content-Length".to_owned())),
        }
    }
}

/// The last length in a header. Other text may precede it on its line.
fn parse_length(header: &[u8]) -> Option<u64> {
    let text = String::from_utf8_lossy(header).to_ascii_lowercase();
    let (_, behind) = text.rsplit_once("content-length:")?;
    behind.lines().next()?.trim().parse().ok()
}

/// Builds the bytes of a message.
#[must_use]
pub fn build_frame(body: &[u8]) -> Vec<u8> {
    let mut bytes = format!("Content-Length: {}\r\n\r\n", body.len()).into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cut(bytes: &[u8], piece: usize) -> Vec<Frame> {
        let (mut frames, mut all) = (Frames::default(), Vec::new());
        bytes.chunks(piece).for_each(|piece| frames.push(piece, |frame| all.push(frame)));
        all
    }

    fn body(text: &str) -> Frame {
        Frame::Body(text.as_bytes().to_vec())
    }

    #[test]
    fn messages_come_in_pieces_of_any_size() {
        let bytes = [build_frame(b"{}"), build_frame(b"abc")].concat();
        for piece in 1..bytes.len() {
            assert_eq!(cut(&bytes, piece), [body("{}"), body("abc")]);
        }
    }

    #[test]
    fn what_stands_before_a_message_does_not_lose_it() {
        let check = |before: &str, expected: &[&str]| {
            let mut found = cut(&[before.as_bytes(), &build_frame(b"{}")].concat(), 7);
            assert_eq!(found.pop(), Some(body("{}")), "{before:?}");
            assert_eq!(found.len(), expected.len(), "{found:?}");
            for (found, expected) in found.iter().zip(expected) {
                assert!(matches!(found, Frame::Bad(why) if why.contains(expected)), "{found:?}");
            }
        };
        check("content-type: x\r\n", &[]);
        check("hello\r\n", &[]);
        check("hello\r\n\r\n", &["without Content-Length"]);
        check("Content-Length: many\r\n\r\n", &["without Content-Length"]);
        check(&"x".repeat(20_000), &["more than 4096 bytes"]);
        check(&format!("{}\r\n\r\n", "x".repeat(20_000)), &["more than 4096 bytes"]);
        for more in 4000..4200 {
            check(
                &"x".repeat(more),
                if more + 21 <= MAX_HEADER_BYTES { &[] } else { &["more than 4096 bytes"] },
            );
        }
    }

    #[test]
    fn a_long_message_is_passed_over_without_its_memory() {
        let mut frames = Frames::default();
        let mut all = Vec::new();
        let length = MAX_BODY_BYTES + 1;
        frames.push(format!("Content-Length: {length}\r\n\r\n").as_bytes(), |frame| all.push(frame));
        for _ in 0..length {
            frames.push(b"x", |frame| all.push(frame));
            assert!(frames.kept.capacity() < MAX_HEADER_BYTES * 3);
        }
        frames.push(&build_frame(b"{}"), |frame| all.push(frame));
        assert_eq!((all.len(), &all[1]), (2, &body("{}")));
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400), piece in 1_usize..50) {
            drop(cut(&bytes, piece));
            drop(cut(&[b"Content-Length: 3\r\n\r\n", bytes.as_slice()].concat(), piece));
        }
    }
}
