//! [`Filter::Sum`](super::Filter::Sum), [`Filter::Min`](super::Filter::Min) and [`Filter::Max`](super::Filter::Max): vectors of numbers, place by place.
//!
//! All vectors of a reduction have one length and one type. A part is a byte that tells the type, then the values:
//!
//! | byte | values |
//! | --- | --- |
//! | 0 | `i64`, 8 bytes each, little endian |
//! | 1 | `f64`, 8 bytes each, little endian |
//! | 2 | sums of integers that may have exceeded 64 bits, of variable length (results of `Sum`) |
//! | 3 | sums of floating point numbers, exact (results of `Sum`) |
//!
//! Sums are exact in all intermediate results: `i64::MAX`, 1 and -1 make `i64::MAX` in any order, and 1e300, 1 and
//! -1e300 make 1. So an overflow shows only when the final sum is decoded.

use super::bytes::{Reader, garbled, invalid, write_number};
use super::exact::Exact;
use super::merge::{Merge, bounded};
use crate::error::Failure;

/// The most values in a vector.
pub const MAX_VALUES: usize = 131_072;

const INTEGERS: u8 = 0;
const FLOATS: u8 = 1;
const INTEGER_SUMS: u8 = 2;
const FLOAT_SUMS: u8 = 3;

/// A vector of numbers: a daemon's contribution, and the tool's result.
#[derive(Debug, Clone, PartialEq)]
pub enum Numbers {
    /// Whole numbers.
    Integers(Vec<i64>),
    /// Floating point numbers: no NaN, and for a sum no infinity.
    Floats(Vec<f64>),
}

impl Numbers {
    /// The vector as a part of a reduction by `Sum`, `Min` or `Max`.
    ///
    /// # Errors
    /// [`Kind::Invalid`](crate::error::Kind::Invalid) for more than [`MAX_VALUES`], and for a NaN.
    pub fn encode(&self) -> Result<Vec<u8>, Failure> {
        let (kind, count) = match self {
            Self::Integers(values) => (INTEGERS, values.len()),
            Self::Floats(values) => (FLOATS, values.len()),
        };
        if count > MAX_VALUES {
            return Err(invalid(format!("{count} values, at most {MAX_VALUES} are allowed")));
        }
        let mut part = Vec::with_capacity(1 + 8 * count);
        part.push(kind);
        match self {
            Self::Integers(values) => part.extend(values.iter().flat_map(|value| value.to_le_bytes())),
            Self::Floats(values) if values.iter().any(|value| value.is_nan()) => {
                return Err(invalid("a value is not a number (NaN)".to_owned()));
            }
            Self::Floats(values) => part.extend(values.iter().flat_map(|value| value.to_le_bytes())),
        }
        Ok(part)
    }

    /// The vector of a part; `None` when nothing was contributed. A sum of floating point numbers is rounded here, once.
    ///
    /// # Errors
    /// [`Kind::Protocol`](crate::error::Kind::Protocol) when it is no such part; [`Kind::Invalid`](crate::error::Kind::Invalid) when a sum does not fit.
    pub fn decode(part: &[u8]) -> Result<Option<Self>, Failure> {
        if part.is_empty() {
            return Ok(None);
        }
        let overflow = |at: usize| invalid(format!("the sum at place {at} (counted from 0) is too large"));
        Ok(Some(match Values::read(bounded(part)?)? {
            Values::Integers(values) => Self::Integers(values),
            Values::Floats(values) => Self::Floats(values),
            Values::IntegerSums(sums) => {
                let fit = |(at, sum)| i64::try_from(sum).map_err(|_| overflow(at));
                Self::Integers(sums.into_iter().enumerate().map(fit).collect::<Result<_, _>>()?)
            }
            Values::FloatSums(sums) => {
                let fit = |(at, sum): (usize, &Exact)| sum.rounded().ok_or_else(|| overflow(at));
                Self::Floats(sums.iter().enumerate().map(fit).collect::<Result<_, _>>()?)
            }
        }))
    }
}

/// A decoded part.
enum Values {
    Integers(Vec<i64>),
    Floats(Vec<f64>),
    IntegerSums(Vec<i128>),
    FloatSums(Vec<Exact>),
}

impl Values {
    fn read(part: &[u8]) -> Result<Self, Failure> {
        let mut reader = Reader::new(part);
        let kind = reader.take(1)?[0];
        Ok(match kind {
            INTEGERS => {
                Self::Integers(read_values(&mut reader, |from| read_eight(from).map(i64::from_le_bytes))?)
            }
            FLOATS => Self::Floats(read_values(&mut reader, |from| {
                let value = f64::from_le_bytes(read_eight(from)?);
                if value.is_nan() { Err(garbled("a value is not a number (NaN)")) } else { Ok(value) }
            })?),
            INTEGER_SUMS => {
                Self::IntegerSums(read_values(&mut reader, |from| from.wide_number().map(unfold))?)
            }
            FLOAT_SUMS => Self::FloatSums(read_values(&mut reader, Exact::read)?),
            _ => return Err(garbled(&format!("{kind} is not a number type"))),
        })
    }
}

fn read_values<'a, T>(
    from: &mut Reader<'a>,
    read: impl Fn(&mut Reader<'a>) -> Result<T, Failure>,
) -> Result<Vec<T>, Failure> {
    let mut values = Vec::new();
    while !from.is_empty() {
        if values.len() == MAX_VALUES {
            return Err(garbled(&format!("more than {MAX_VALUES} values")));
        }
        values.push(read(from)?);
    }
    Ok(values)
}

fn read_eight(from: &mut Reader<'_>) -> Result<[u8; 8], Failure> {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(from.take(8)?);
    Ok(bytes)
}

/// Numbers near 0 of either sign become small ones without a sign: 0, -1, 1, -2.
fn fold(number: i128) -> u128 {
    (number << 1 ^ number >> 127).cast_unsigned()
}

fn unfold(folded: u128) -> i128 {
    (folded >> 1).cast_signed() ^ -(folded & 1).cast_signed()
}

/// Both vectors place by place. Neither is changed, so that a part that does not fit spoils nothing.
fn zip<T>(ours: &[T], theirs: &[T], join: impl Fn(&T, &T) -> Option<T>) -> Result<Vec<T>, Failure> {
    if ours.len() != theirs.len() {
        let (ours, theirs) = (ours.len(), theirs.len());
        return Err(invalid(format!("vectors of {ours} and of {theirs} values do not go together")));
    }
    let joined: Option<Vec<T>> = ours.iter().zip(theirs).map(|(a, b)| join(a, b)).collect();
    joined.ok_or_else(|| invalid("a sum is too large".to_owned()))
}

fn mixed() -> Failure {
    invalid("vectors of integers and of floating point numbers do not go together".to_owned())
}

/// The result of `Sum` so far.
pub(super) enum Sum {
    Integers(Vec<i128>),
    Floats(Vec<Exact>),
}

impl Merge for Sum {
    fn read(part: &[u8]) -> Result<Self, Failure> {
        Ok(match Values::read(part)? {
            Values::Integers(values) => Self::Integers(values.into_iter().map(i128::from).collect()),
            Values::IntegerSums(sums) => Self::Integers(sums),
            Values::FloatSums(sums) => Self::Floats(sums),
            Values::Floats(values) => {
                let exact: Option<Vec<_>> = values.into_iter().map(Exact::of).collect();
                Self::Floats(exact.ok_or_else(|| invalid("infinity cannot be added up".to_owned()))?)
            }
        })
    }

    fn merge(&mut self, other: Self) -> Result<(), Failure> {
        match (self, other) {
            (Self::Integers(ours), Self::Integers(theirs)) => {
                *ours = zip(ours, &theirs, |a, b| a.checked_add(*b))?;
            }
            (Self::Floats(ours), Self::Floats(theirs)) => *ours = zip(ours, &theirs, Exact::plus)?,
            _ => return Err(mixed()),
        }
        Ok(())
    }

    fn write(&self) -> Result<Vec<u8>, Failure> {
        let mut part = Vec::new();
        match self {
            Self::Integers(sums) => {
                part.push(INTEGER_SUMS);
                sums.iter().for_each(|sum| write_number(fold(*sum), &mut part));
            }
            Self::Floats(sums) => {
                part.push(FLOAT_SUMS);
                sums.iter().for_each(|sum| sum.write(&mut part));
            }
        }
        Ok(part)
    }
}

/// The result of `Min` so far, or of `Max` with `LARGEST`. Of the two zeros -0.0 is the smaller one.
pub(super) struct Extreme<const LARGEST: bool>(Numbers);

impl<const LARGEST: bool> Merge for Extreme<LARGEST> {
    fn read(part: &[u8]) -> Result<Self, Failure> {
        match Values::read(part)? {
            Values::Integers(values) => Ok(Self(Numbers::Integers(values))),
            Values::Floats(values) => Ok(Self(Numbers::Floats(values))),
            _ => Err(garbled("a sum cannot be part of a minimum or maximum")),
        }
    }

    fn merge(&mut self, other: Self) -> Result<(), Failure> {
        let first = |order: std::cmp::Ordering| if LARGEST { order.is_ge() } else { order.is_le() };
        match (&mut self.0, other.0) {
            (Numbers::Integers(ours), Numbers::Integers(theirs)) => {
                *ours = zip(ours, &theirs, |a, b| Some(if first(a.cmp(b)) { *a } else { *b }))?;
            }
            (Numbers::Floats(ours), Numbers::Floats(theirs)) => {
                *ours = zip(ours, &theirs, |a, b| Some(if first(a.total_cmp(b)) { *a } else { *b }))?;
            }
            _ => return Err(mixed()),
        }
        Ok(())
    }

    fn write(&self) -> Result<Vec<u8>, Failure> {
        self.0.encode()
    }
}
