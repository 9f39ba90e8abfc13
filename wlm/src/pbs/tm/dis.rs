//! Data Is Strings (DIS), the encoding of PBS. A number is its decimal digits after their count. A string follows its
//! length.
//!
//! `7` is `+7`, and `10` is `2+10`. `2147483649` is `210+2147483649`: it has ten digits, and the number ten has two
//! digits itself. Every value has exactly one encoding, and no other is accepted. So decoded data is encoded again to
//! the same bytes.

/// The maximum number of digits: those of `u32::MAX`.
const MOST_DIGITS: usize = 10;

/// Why bytes are not the expected value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DisError {
    /// The bytes end before the value does; more may come.
    #[error("the bytes end within a value")]
    Short,
    /// A byte that is not allowed in a number.
    #[error("byte {0:#04x} is neither a digit nor a sign")]
    NotADigit(
        /// The byte.
        u8,
    ),
    /// A number with superfluous digits.
    #[error("a number has a superfluous digit")]
    Superfluous,
    /// A number that does not fit into 32 bits.
    #[error("a number is larger than 32 bits")]
    Overflow,
    /// A negative number where none is allowed.
    #[error("a number is below zero")]
    Negative,
    /// A string that is longer than allowed here.
    #[error("a string of {length} bytes where {most} are allowed")]
    TooLong {
        /// Its claimed length.
        length: u32,
        /// The most.
        most: usize,
    },
    /// A zero byte in a string that must have none.
    #[error("a zero byte in a string")]
    Nul,
    /// Bytes after the last value.
    #[error("{0} bytes follow the last value")]
    Trailing(
        /// How many.
        usize,
    ),
}

/// Writes a number that is zero or more.
pub fn put_unsigned(out: &mut Vec<u8>, value: u32) {
    put_digits(out, b'+', &value.to_string());
}

/// Writes a number.
pub fn put_signed(out: &mut Vec<u8>, value: i32) {
    put_digits(out, if value < 0 { b'-' } else { b'+' }, &value.unsigned_abs().to_string());
}

/// Writes a string behind its length.
///
/// # Errors
/// [`DisError::Overflow`] if the length does not fit.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) -> Result<(), DisError> {
    put_unsigned(out, u32::try_from(bytes.len()).map_err(|_| DisError::Overflow)?);
    out.extend_from_slice(bytes);
    Ok(())
}

fn put_digits(out: &mut Vec<u8>, sign: u8, digits: &str) {
    // Lengths of lengths, the innermost last: "10" before "210", so they are collected first.
    let mut counts = Vec::new();
    let mut length = digits.len();
    while length > 1 {
        let count = length.to_string();
        length = count.len();
        counts.push(count);
    }
    for count in counts.iter().rev() {
        out.extend_from_slice(count.as_bytes());
    }
    out.push(sign);
    out.extend_from_slice(digits.as_bytes());
}

/// Decodes values from the front of bytes. Memory grows only with received bytes.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Starts at the front of `bytes`.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The bytes that are not decoded yet.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Decodes an unsigned number.
    ///
    /// # Errors
    /// The next value is something else.
    pub fn unsigned(&mut self) -> Result<u32, DisError> {
        match self.number()? {
            (false, value) => u32::try_from(value).map_err(|_| DisError::Overflow),
            (true, _) => Err(DisError::Negative),
        }
    }

    /// Decodes a number.
    ///
    /// # Errors
    /// The next value is something else.
    pub fn signed(&mut self) -> Result<i32, DisError> {
        let (negative, value) = self.number()?;
        // Ten digits fit into an i64 with either sign.
        let value = i64::try_from(value).map_err(|_| DisError::Overflow)?;
        i32::try_from(if negative { -value } else { value }).map_err(|_| DisError::Overflow)
    }

    /// Decodes a string of at most `most` bytes of any values.
    ///
    /// # Errors
    /// [`DisError::TooLong`], or the next value is something else.
    pub fn bytes(&mut self, most: usize) -> Result<&'a [u8], DisError> {
        let length = self.unsigned()?;
        let wanted = usize::try_from(length).unwrap_or(usize::MAX);
        if wanted > most {
            return Err(DisError::TooLong { length, most });
        }
        self.take(wanted)
    }

    /// As [`bytes`](Self::bytes), but refuses a zero byte.
    ///
    /// # Errors
    /// [`DisError::Nul`], and as `bytes`.
    pub fn string(&mut self, most: usize) -> Result<&'a [u8], DisError> {
        let text = self.bytes(most)?;
        if text.contains(&0) { Err(DisError::Nul) } else { Ok(text) }
    }

    /// Checks that no bytes are left.
    ///
    /// # Errors
    /// [`DisError::Trailing`] if there are some.
    pub fn end(&self) -> Result<(), DisError> {
        if self.rest.is_empty() { Ok(()) } else { Err(DisError::Trailing(self.rest.len())) }
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], DisError> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(DisError::Short)?;
        self.rest = rest;
        Ok(taken)
    }

    /// Decodes the sign and the value of the digits. True: negative.
    fn number(&mut self) -> Result<(bool, u64), DisError> {
        let mut count = 1;
        loop {
            match *self.rest.first().ok_or(DisError::Short)? {
                sign @ (b'+' | b'-') => {
                    self.take(1)?;
                    let value = digits(self.take_or_judge(count)?)?;
                    // Zero has only one valid sign.
                    return if sign == b'-' && value == 0 {
                        Err(DisError::Superfluous)
                    } else {
                        Ok((sign == b'-', value))
                    };
                }
                b'0' => return Err(DisError::Superfluous),
                _ => {
                    let value = digits(self.take_or_judge(count)?)?;
                    // Only a length of two or more is written.
                    if value < 2 {
                        return Err(DisError::Superfluous);
                    }
                    count = usize::try_from(value).unwrap_or(usize::MAX);
                    if count > MOST_DIGITS {
                        return Err(DisError::Overflow);
                    }
                }
            }
        }
    }

    /// Takes that many bytes. If some are missing, checks the received ones, so that invalid data is refused at once.
    fn take_or_judge(&mut self, count: usize) -> Result<&'a [u8], DisError> {
        if self.rest.len() < count && !self.rest.is_empty() {
            digits(self.rest)?;
        }
        self.take(count)
    }
}

/// The value of at most [`MOST_DIGITS`] decimal digits.
fn digits(text: &[u8]) -> Result<u64, DisError> {
    if text.len() > 1 && text[0] == b'0' {
        return Err(DisError::Superfluous);
    }
    text.iter().try_fold(0, |value, digit| match digit {
        b'0'..=b'9' => Ok(value * 10 + u64::from(digit - b'0')),
        other => Err(DisError::NotADigit(*other)),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check_signed(text: &str, expected: Result<i32, DisError>) {
        assert_eq!(Reader::new(text.as_bytes()).signed(), expected, "{text:?}");
    }

    fn check_unsigned(text: &str, expected: Result<u32, DisError>) {
        assert_eq!(Reader::new(text.as_bytes()).unsigned(), expected, "{text:?}");
    }

    #[test]
    fn a_number_has_one_encoding() {
        for (value, text) in [
            (0_u32, "+0"),
            (7, "+7"),
            (10, "2+10"),
            (999, "3+999"),
            (17006, "5+17006"),
            (2_147_483_649, "210+2147483649"),
            (u32::MAX, "210+4294967295"),
        ] {
            let mut out = Vec::new();
            put_unsigned(&mut out, value);
            assert_eq!(out, text.as_bytes());
            check_unsigned(text, Ok(value));
        }
        for (value, text) in [(-1, "-1"), (-5, "-5"), (-10, "2-10"), (i32::MIN, "210-2147483648"), (0, "+0")]
        {
            let mut out = Vec::new();
            put_signed(&mut out, value);
            assert_eq!(out, text.as_bytes());
            check_signed(text, Ok(value));
        }
    }

    #[test]
    fn nothing_else_is_a_number() {
        for text in ["", "+", "-", "2", "2+", "2+1", "210+214748364", "21", "21 "] {
            let wanted = if text == "21 " { DisError::NotADigit(b' ') } else { DisError::Short };
            check_signed(text, Err(wanted));
        }
        check_signed("0+1", Err(DisError::Superfluous));
        check_signed("1+5", Err(DisError::Superfluous));
        check_signed("2+05", Err(DisError::Superfluous));
        check_signed("-0", Err(DisError::Superfluous));
        check_signed("12+10", Err(DisError::Superfluous));
        check_signed("hello world", Err(DisError::NotADigit(b'h')));
        check_signed("+a", Err(DisError::NotADigit(b'a')));
        check_signed("2+1a", Err(DisError::NotADigit(b'a')));
        check_signed("2a", Err(DisError::NotADigit(b'a')));
        check_signed("210+2147483648", Err(DisError::Overflow));
        check_signed("210-2147483649", Err(DisError::Overflow));
        check_unsigned("210+4294967296", Err(DisError::Overflow));
        check_unsigned("211+12345678901", Err(DisError::Overflow));
        check_unsigned("299", Err(DisError::Overflow));
        check_unsigned("-1", Err(DisError::Negative));
    }

    #[test]
    fn a_string_is_bounded_before_it_has_come() {
        assert_eq!(
            Reader::new(b"9+123456789").bytes(100),
            Err(DisError::TooLong { length: 123_456_789, most: 100 })
        );
        assert_eq!(Reader::new(b"3+100abc").bytes(100), Err(DisError::Short));
        assert_eq!(Reader::new(b"+3a\0c").bytes(3), Ok(&b"a\0c"[..]));
        assert_eq!(Reader::new(b"+3a\0c").string(3), Err(DisError::Nul));
        assert_eq!(Reader::new(b"+0").string(0), Ok(&b""[..]));
        let mut two = Reader::new(b"+1a+1b");
        assert_eq!((two.string(1), two.end()), (Ok(&b"a"[..]), Err(DisError::Trailing(3))));
    }

    proptest! {
        #[test]
        fn numbers_and_strings_go_round(unsigned: u32, signed: i32, bytes: Vec<u8>) {
            let mut out = Vec::new();
            put_unsigned(&mut out, unsigned);
            put_signed(&mut out, signed);
            put_bytes(&mut out, &bytes).unwrap();
            let mut reader = Reader::new(&out);
            prop_assert_eq!(reader.unsigned(), Ok(unsigned));
            prop_assert_eq!(reader.signed(), Ok(signed));
            prop_assert_eq!(reader.bytes(bytes.len()), Ok(&bytes[..]));
            prop_assert_eq!(reader.end(), Ok(()));
        }

        #[test]
        fn decoded_values_are_encoded_unchanged(text in "[-+0-9]{0,16}") {
            let mut reader = Reader::new(text.as_bytes());
            if let Ok(value) = reader.signed() {
                let mut out = Vec::new();
                put_signed(&mut out, value);
                prop_assert_eq!(&out[..], &text.as_bytes()[..text.len() - reader.rest().len()]);
            }
        }

        #[test]
        fn a_number_that_is_cut_off_waits_for_more(value: i32, cut in 0_usize..14) {
            let mut out = Vec::new();
            put_signed(&mut out, value);
            if cut < out.len() {
                prop_assert_eq!(Reader::new(&out[..cut]).signed(), Err(DisError::Short));
            }
        }
    }
}
