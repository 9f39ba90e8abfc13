//! The bytes of rendezvous data, of any level.
//!
//! There is exactly one encoding of a number: decimal digits, no leading zero, no sign, then one space. So decoded
//! data is encoded again to the same bytes. [`Decoder`] takes data in pieces of any size and stores none of them;
//! [`Data`] borrows from complete bytes. Memory grows only with received bytes, not with claimed sizes.

use std::io::{self, Write};

use super::{MAX_ITEM_BYTES, MAX_LEVEL, MAX_TOTAL_BYTES};

/// Limits of data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Items and groups in all.
    pub parts: u64,
    /// Bytes of one item.
    pub item_bytes: u64,
    /// Bytes in all, numbers included.
    pub bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { parts: 1 << 24, item_bytes: MAX_ITEM_BYTES, bytes: MAX_TOTAL_BYTES }
    }
}

/// Why bytes are not valid data of a level. `at` counts from the first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// A number was expected.
    #[error("read rendezvous data: no number at byte {at}")]
    NoNumber {
        /// The position.
        at: u64,
    },
    /// Something is larger than its limit.
    #[error("read rendezvous data: {what} at byte {at}: the limit is {limit}")]
    TooLarge {
        /// The position.
        at: u64,
        /// The subject.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
    /// The bytes end within the data.
    #[error("read rendezvous data: it ends at byte {at}, before its end")]
    Cut {
        /// How many bytes there are.
        at: u64,
    },
    /// There are bytes after the data.
    #[error("read rendezvous data: more bytes follow its end at byte {at}")]
    Trailing {
        /// Where the data ends.
        at: u64,
    },
    /// There is no such level here.
    #[error("read rendezvous data of level {level}: the highest is {MAX_LEVEL}")]
    Level {
        /// The level.
        level: u8,
    },
}

/// The next part of data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Token<'a> {
    /// A group begins, and that many parts of the level below follow.
    Group {
        /// The group's level.
        level: u8,
        /// How many parts it has.
        count: u64,
    },
    /// An item of that many bytes begins.
    Item {
        /// How many bytes.
        bytes: u64,
    },
    /// The next bytes of the item; never empty.
    Bytes(&'a [u8]),
}

/// Reads data that comes in pieces. It keeps one number for each level, whatever the data's size.
#[derive(Debug, Clone)]
pub struct Decoder {
    level: u8,
    limits: Limits,
    /// Parts that are still to come of every group that is open, the outermost first.
    open: Vec<u64>,
    number: Option<u64>,
    /// Bytes of the item that are still to come.
    left: u64,
    begun: bool,
    parts: u64,
    at: u64,
}

impl Decoder {
    /// Reads data of that level.
    ///
    /// # Errors
    /// [`DataError::Level`].
    pub fn new(level: u8, limits: Limits) -> Result<Self, DataError> {
        if level > MAX_LEVEL {
            return Err(DataError::Level { level });
        }
        Ok(Self { level, limits, open: Vec::new(), number: None, left: 0, begun: false, parts: 0, at: 0 })
    }

    /// Takes the next part from the front of `input`. `None`: all of `input` has been taken; more may be needed.
    ///
    /// # Errors
    /// [`DataError`], after which the decoder is of no use.
    pub fn next<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Token<'a>>, DataError> {
        if self.left > 0 {
            return Ok(self.take_bytes(input));
        }
        while self.open.last() == Some(&0) {
            self.open.pop();
        }
        if self.begun && self.open.is_empty() {
            return if input.is_empty() { Ok(None) } else { Err(DataError::Trailing { at: self.at }) };
        }
        while let Some((&byte, rest)) = input.split_first() {
            *input = rest;
            match (byte, self.number) {
                (b'0'..=b'9', number) => self.number = Some(self.add_digit(number, byte - b'0')?),
                (b' ', Some(number)) => {
                    self.at += 1;
                    self.number = None;
                    return self.begin(number).map(Some);
                }
                _ => return Err(DataError::NoNumber { at: self.at }),
            }
            self.at += 1;
        }
        Ok(None)
    }

    /// Whether the data is complete.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.begun && self.left == 0 && self.open.iter().all(|left| *left == 0)
    }

    /// Says that no more bytes will come.
    ///
    /// # Errors
    /// [`DataError::Cut`].
    pub fn finish(self) -> Result<(), DataError> {
        if self.is_complete() { Ok(()) } else { Err(DataError::Cut { at: self.at }) }
    }

    fn take_bytes<'a>(&mut self, input: &mut &'a [u8]) -> Option<Token<'a>> {
        let count = input.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let (bytes, rest) = input.split_at(count);
        *input = rest;
        self.left -= bytes.len() as u64;
        self.at += bytes.len() as u64;
        (!bytes.is_empty()).then_some(Token::Bytes(bytes))
    }

    fn add_digit(&self, number: Option<u64>, digit: u8) -> Result<u64, DataError> {
        match number {
            None => Ok(digit.into()),
            // A number has one encoding only.
            Some(0) => Err(DataError::NoNumber { at: self.at }),
            Some(number) => {
                let more = number.checked_mul(10).and_then(|number| number.checked_add(digit.into()));
                more.ok_or_else(|| self.too_large("a number", u64::MAX))
            }
        }
    }

    /// A number has been read: of parts, or of bytes.
    fn begin<'a>(&mut self, number: u64) -> Result<Token<'a>, DataError> {
        let Limits { parts, item_bytes, bytes } = self.limits;
        let depth = u8::try_from(self.open.len()).unwrap_or(u8::MAX);
        let level = self.level.saturating_sub(depth);
        self.begun = true;
        if let Some(left) = self.open.last_mut() {
            *left -= 1;
        }
        let room = bytes.saturating_sub(self.at);
        if self.at > bytes {
            return Err(self.too_large("the data", bytes));
        }
        if level == 0 {
            if number > item_bytes {
                return Err(self.too_large("an item", item_bytes));
            }
            if number > room {
                return Err(self.too_large("the data", bytes));
            }
            self.left = number;
            return Ok(Token::Item { bytes: number });
        }
        self.parts = self.parts.saturating_add(number);
        // The shortest part has two bytes.
        if self.parts > parts || number.saturating_mul(2) > room {
            return Err(self.too_large("the number of parts", parts.min(bytes / 2)));
        }
        self.open.push(number);
        Ok(Token::Group { level, count: number })
    }

    fn too_large(&self, what: &'static str, limit: u64) -> DataError {
        DataError::TooLarge { at: self.at, what, limit }
    }
}

/// Decoded data. It borrows its items.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Data<'a> {
    /// A task's registration.
    Item(&'a [u8]),
    /// Data of one level below, in the order of the members' numbers.
    Group(Vec<Data<'a>>),
}

impl<'a> Data<'a> {
    /// Reads data of that level. Nothing is copied.
    ///
    /// # Errors
    /// [`DataError`].
    pub fn decode(level: u8, bytes: &'a [u8], limits: Limits) -> Result<Self, DataError> {
        let mut decoder = Decoder::new(level, limits)?;
        let mut rest = bytes;
        let data = Self::read(&mut decoder, &mut rest)?;
        // Bytes after the end are an error.
        decoder.next(&mut rest)?;
        decoder.finish()?;
        Ok(data)
    }

    /// The next whole part. As deep as there are levels.
    fn read(decoder: &mut Decoder, rest: &mut &'a [u8]) -> Result<Self, DataError> {
        match decoder.next(rest)? {
            Some(Token::Group { count, .. }) => {
                let mut parts = Vec::new();
                for _ in 0..count {
                    parts.push(Self::read(decoder, rest)?);
                }
                Ok(Self::Group(parts))
            }
            Some(Token::Item { bytes: 0 }) => Ok(Self::Item(&[])),
            Some(Token::Item { bytes }) => match decoder.next(rest)? {
                Some(Token::Bytes(item)) if item.len() as u64 == bytes => Ok(Self::Item(item)),
                _ => Err(DataError::Cut { at: decoder.at }),
            },
            Some(Token::Bytes(_)) | None => Err(DataError::Cut { at: decoder.at }),
        }
    }

    /// The part at a path of indexes: `[1, 3]` is rank 3 of subjob 1 in data of level 2.
    #[must_use]
    pub fn get(&self, way: &[usize]) -> Option<&Self> {
        way.iter().try_fold(self, |data, index| match data {
            Data::Item(_) => None,
            Data::Group(parts) => parts.get(*index),
        })
    }

    /// The bytes, where it is an item.
    #[must_use]
    pub fn as_item(&self) -> Option<&'a [u8]> {
        match self {
            Data::Item(bytes) => Some(bytes),
            Data::Group(_) => None,
        }
    }

    /// The parts, where it is a group.
    #[must_use]
    pub fn as_group(&self) -> Option<&[Data<'a>]> {
        match self {
            Data::Item(_) => None,
            Data::Group(parts) => Some(parts),
        }
    }

    /// Encodes it.
    ///
    /// # Errors
    /// The errors of `out`.
    pub fn encode(&self, out: &mut impl Write) -> io::Result<()> {
        match self {
            Data::Item(bytes) => write_item(out, bytes),
            Data::Group(parts) => {
                out.write_all(Head::new(parts.len() as u64).as_bytes())?;
                parts.iter().try_for_each(|part| part.encode(out))
            }
        }
    }
}

/// Checks that bytes are data of that level, and says how many parts it has at the top (of an item: bytes).
///
/// # Errors
/// [`DataError`].
pub fn check(level: u8, bytes: &[u8], limits: Limits) -> Result<u64, DataError> {
    let mut decoder = Decoder::new(level, limits)?;
    let (mut rest, mut top) = (bytes, None);
    while let Some(token) = decoder.next(&mut rest)? {
        if let Token::Group { count: number, .. } | Token::Item { bytes: number } = token {
            top = top.or(Some(number));
        }
    }
    decoder.finish()?;
    Ok(top.unwrap_or_default())
}

/// Writes an item: data of level 0.
///
/// # Errors
/// The errors of `out`.
pub fn write_item(out: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    out.write_all(Head::new(bytes.len() as u64).as_bytes())?;
    out.write_all(bytes)
}

/// The prefix of an item's bytes or of a group's parts: a number and a space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// The last `length` bytes are used.
    bytes: [u8; Head::MOST],
    length: usize,
}

impl Head {
    /// Digits of the largest number, and the space.
    const MOST: usize = 21;

    /// The head of so many bytes or parts.
    #[must_use]
    pub fn new(mut number: u64) -> Self {
        let mut bytes = [b' '; Self::MOST];
        let mut length = 1;
        loop {
            length += 1;
            bytes[Self::MOST - length] = b'0' + u8::try_from(number % 10).unwrap_or_default();
            number /= 10;
            if number == 0 {
                return Self { bytes, length };
            }
        }
    }

    /// The encoded bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[Self::MOST - self.length..]
    }
}

#[cfg(test)]
mod tests;
