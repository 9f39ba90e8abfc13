//! Parses and builds the messages of PMI-1 and PMI-2. Pure: bytes in, words out.
//!
//! A PMI-1 message is a line, `cmd=get kvsname=K key=A`. One message has several lines: `mcmd=spawn` to `endcmd`. A
//! PMI-2 message is six digits with the length of the rest, then `cmd=kvs-get;key=A;`. A program that speaks PMI-2
//! begins with a line of PMI-1. The specifications are `pmi-1.1.txt` and `pmi-2.0.txt` of MPICH.

use std::fmt::Display;
use std::io::Write;

/// The most bytes of a message.
pub const MAX_MESSAGE_BYTES: usize = 64 * 1024;

/// The most bytes of a key.
pub const MAX_KEY_BYTES: usize = 64;

/// The most bytes of a value.
pub const MAX_VALUE_BYTES: usize = 1024;

/// The most bytes of the name of a key-value space.
pub const MAX_NAME_BYTES: usize = 256;

/// Digits of the length that begins a PMI-2 message.
const LENGTH_BYTES: usize = 6;

/// The input is not a valid message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(pub &'static str);

/// The format of a message. An answer has the format of its question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire {
    /// A line.
    One,
    /// A length, and words that end with a semicolon.
    Two,
}

/// One message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    /// Its format.
    pub wire: Wire,
    words: &'a [u8],
    separator: u8,
}

impl<'a> Message<'a> {
    /// Parses the first message of `input`. Returns it and its length in bytes. `None`: more bytes are needed.
    ///
    /// # Errors
    /// [`Malformed`]: no further bytes can make this a message.
    pub fn take(input: &'a [u8]) -> Result<Option<(Self, usize)>, Malformed> {
        let taken = if begins(input, b"cmd=") {
            find(input, b"\n").map(|end| (end, end + 1, b' ', Wire::One))
        } else if begins(input, b"mcmd=") {
            find(input, b"endcmd\n").map(|end| (end, end + b"endcmd\n".len(), b'\n', Wire::One))
        } else {
            let Some((length, rest)) = input.split_at_checked(LENGTH_BYTES) else { return Ok(None) };
            let length = parse_number::<usize>(length.trim_ascii());
            let length = length.ok_or(Malformed("begins neither with 'cmd=' nor with a length"))?;
            if length > MAX_MESSAGE_BYTES {
                return Err(Malformed("is longer than 65536 bytes"));
            }
            if !begins(rest, b"cmd=") {
                return Err(Malformed("does not begin with 'cmd='"));
            }
            let end = LENGTH_BYTES + length;
            (input.len() >= end).then_some((end, end, b';', Wire::Two))
        };
        let Some((end, taken, separator, wire)) = taken else {
            return if input.len() > MAX_MESSAGE_BYTES + LENGTH_BYTES {
                Err(Malformed("is longer than 65536 bytes"))
            } else {
                Ok(None)
            };
        };
        let begin = if wire == Wire::Two { LENGTH_BYTES } else { 0 };
        let words = input.get(begin..end).unwrap_or_default();
        Ok(Some((Self { wire, words, separator }, taken)))
    }

    /// The command.
    #[must_use]
    pub fn command(&self) -> &'a [u8] {
        self.get(b"cmd").or_else(|| self.get(b"mcmd")).unwrap_or_default()
    }

    /// The value of the first word with that name. Words without a value have none.
    #[must_use]
    pub fn get(&self, name: &[u8]) -> Option<&'a [u8]> {
        let mut words = self.words.split(|byte| *byte == self.separator);
        words.find_map(|word| word.strip_prefix(name)?.strip_prefix(b"="))
    }

    /// A number by its name.
    #[must_use]
    pub fn get_number(&self, name: &[u8]) -> Option<i32> {
        self.get(name).and_then(parse_number)
    }
}

/// Whether `input`, as far as it has arrived, begins with `with`.
fn begins(input: &[u8], with: &[u8]) -> bool {
    input.iter().zip(with).all(|(have, want)| have == want)
}

fn find(input: &[u8], what: &[u8]) -> Option<usize> {
    input.windows(what.len()).position(|bytes| bytes == what)
}

fn parse_number<T: std::str::FromStr>(digits: &[u8]) -> Option<T> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// An answer under construction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    wire: Wire,
    text: Vec<u8>,
}

impl Reply {
    /// Begins the answer with this name to `question`: success.
    #[must_use]
    pub fn ok(question: &Message<'_>, name: &str) -> Self {
        Self::new(question, name).with("rc", 0)
    }

    /// Begins the answer with this name to `question`: failure. `why` is a single word.
    #[must_use]
    pub fn refused(question: &Message<'_>, name: &str, why: &str) -> Self {
        let reason = if question.wire == Wire::One { "msg" } else { "errmsg" };
        Self::new(question, name).with("rc", -1).with(reason, why)
    }

    fn new(question: &Message<'_>, name: &str) -> Self {
        let reply = Self { wire: question.wire, text: Vec::new() }.with("cmd", name);
        // A client thread recognises its answer by this.
        match question.get(b"thrid").filter(|_| question.wire == Wire::Two) {
            Some(thread) => reply.with_bytes("thrid", thread),
            None => reply,
        }
    }

    /// Adds a word.
    #[must_use]
    pub fn with(self, name: &str, value: impl Display) -> Self {
        self.with_bytes(name, value.to_string().as_bytes())
    }

    /// As [`Reply::with`].
    #[must_use]
    pub fn with_bytes(mut self, name: &str, value: &[u8]) -> Self {
        if self.wire == Wire::One && !self.text.is_empty() {
            self.text.push(b' ');
        }
        for part in [name.as_bytes(), b"=", value] {
            self.text.extend_from_slice(part);
        }
        if self.wire == Wire::Two {
            self.text.push(b';');
        }
        self
    }

    /// The bytes to send.
    #[must_use]
    pub fn into_bytes(mut self) -> Vec<u8> {
        match self.wire {
            Wire::One => {
                self.text.push(b'\n');
                self.text
            }
            Wire::Two => {
                let mut bytes = Vec::with_capacity(LENGTH_BYTES + self.text.len());
                // A write to memory cannot fail.
                drop(write!(bytes, "{:6}", self.text.len()));
                bytes.append(&mut self.text);
                bytes
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn only(input: &str) -> Message<'_> {
        let (message, taken) = Message::take(input.as_bytes()).unwrap().expect("a message");
        assert_eq!(taken, input.len());
        message
    }

    #[test]
    fn lines_are_read_as_mpich_writes_them() {
        let message = only("cmd=put kvsname=kvs_1 key=P0-bc value=a=b\\;c\n");
        assert_eq!((message.wire, message.command()), (Wire::One, &b"put"[..]));
        assert_eq!(message.get(b"key"), Some(&b"P0-bc"[..]));
        assert_eq!(message.get(b"value"), Some(&b"a=b\\;c"[..]), "as it was sent");
        assert_eq!((message.get(b"val"), message.get(b"kvs")), (None, None));
        assert_eq!(only("cmd=abort exitcode=-7 msg of words\n").get_number(b"exitcode"), Some(-7));
        let spawn = only("mcmd=spawn\nnprocs=2\nexecname=./a b\nendcmd\n");
        assert_eq!((spawn.command(), spawn.get(b"execname")), (&b"spawn"[..], Some(&b"./a b"[..])));
    }

    #[test]
    fn messages_with_a_length_are_read() {
        let message = only("    33cmd=kvs-get;thrid=0x7;key=a b=c;;");
        assert_eq!((message.wire, message.command()), (Wire::Two, &b"kvs-get"[..]));
        assert_eq!(message.get(b"key"), Some(&b"a b=c"[..]));
        assert_eq!(only("13    cmd=finalize;").command(), b"finalize");
    }

    #[test]
    fn one_message_after_the_other() {
        let both = b"cmd=init pmi_version=2 pmi_subversion=0\n    13cmd=fullinit;cmd=";
        let (init, taken) = Message::take(both).unwrap().unwrap();
        assert_eq!((init.command(), taken), (&b"init"[..], 40));
        let (full, more) = Message::take(&both[taken..]).unwrap().unwrap();
        assert_eq!((full.command(), more), (&b"fullinit"[..], 19));
        assert_eq!(Message::take(&both[taken + more..]), Ok(None));
    }

    #[test]
    fn other_bytes_are_refused_as_soon_as_it_is_known() {
        let check = |input: &[u8], expected: &str| {
            assert_eq!(Message::take(input).unwrap_err().to_string(), expected, "{input:?}");
        };
        check(b"hello, world", "begins neither with 'cmd=' nor with a length");
        check(b"\n\n\n\n\n\n", "begins neither with 'cmd=' nor with a length");
        check(b"    -5cmd=", "begins neither with 'cmd=' nor with a length");
        check(b"     9put=x;;", "does not begin with 'cmd='");
        check(b"999999cmd=", "is longer than 65536 bytes");
        check(&[&b"cmd="[..], &[b'x'; MAX_MESSAGE_BYTES + 3]].concat(), "is longer than 65536 bytes");
        check(&[&b"mcmd="[..], &[b'x'; MAX_MESSAGE_BYTES + 2]].concat(), "is longer than 65536 bytes");
        assert_eq!(Message::take(b""), Ok(None));
        assert_eq!(Message::take(b"mcm"), Ok(None));
    }

    #[test]
    fn answers_are_written_as_their_questions() {
        let reply = Reply::ok(&only("cmd=get key=a\n"), "get_result").with("value", "1 2");
        assert_eq!(reply.into_bytes(), b"cmd=get_result rc=0 value=1 2\n");
        let question = only("    27cmd=kvs-get;thrid=7;key=a;;");
        let reply = Reply::ok(&question, "kvs-get-response").with("found", "TRUE").into_bytes();
        assert_eq!(reply, b"    45cmd=kvs-get-response;thrid=7;rc=0;found=TRUE;");
        let refused = Reply::refused(&only("cmd=lookup_name service=a\n"), "lookup_result", "not_here");
        assert_eq!(refused.into_bytes(), b"cmd=lookup_result rc=-1 msg=not_here\n");
    }

    proptest! {
        /// Any input, cut anywhere, gives the same messages and no panic.
        #[test]
        fn pieces_do_not_matter(input in "(cmd=[a-z]{1,9}( [a-z]{1,3}=[a-z;]{0,5}){0,3}\n|    1[0-9]cmd=[a-z;=]{20}){0,4}", cut in 0_usize..100) {
            let read = |mut input: &[u8]| {
                let mut all = Vec::new();
                while let Ok(Some((message, taken))) = Message::take(input) {
                    all.push((message.command().to_vec(), message.get(b"a").map(<[u8]>::to_vec)));
                    input = &input[taken..];
                }
                (all, input.len())
            };
            let (all, rest) = read(input.as_bytes());
            let cut = cut.min(input.len());
            let (mut first, left) = read(&input.as_bytes()[..cut]);
            first.extend(read(&input.as_bytes()[cut - left..]).0);
            prop_assert_eq!(&first, &all);
            prop_assert!(rest <= input.len());
        }

        #[test]
        fn no_bytes_make_it_panic(input in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(Some((message, taken))) = Message::take(&input) {
                prop_assert!(taken <= input.len());
                prop_assert!(message.command().len() <= taken);
            }
        }
    }
}
