//! Exact sums of floating point numbers, so that the result does not depend on the shape of the tree.
//!
//! Every finite `f64` is a whole multiple of 2^-1074, and the largest is below 2^1024. So a fixed-point number of
//! some 2100 bits holds any sum exactly. Only decoding the result rounds it, once.

use super::bytes::{Reader, garbled, write_bytes, write_length};
use crate::error::Failure;

/// 2176 bits: 2098 for the numbers themselves, a sign, and room for 2^77 of them.
const LIMBS: usize = 34;
const BYTES: usize = 8 * LIMBS;

/// The bits of a mantissa that are written down, without the leading one.
const MANTISSA_BITS: usize = 52;

/// A sum, in units of 2^-1074, as two's complement with the lowest limb first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Exact([u64; LIMBS]);

impl Exact {
    /// The sum of one finite number.
    pub(super) fn of(value: f64) -> Option<Self> {
        if !value.is_finite() {
            return None;
        }
        let [top, next, ..] = value.abs().to_be_bytes();
        let exponent = usize::from(u16::from_be_bytes([top, next]) >> 4);
        let fraction = value.to_bits() & ((1 << MANTISSA_BITS) - 1);
        // Subnormal numbers have no leading one, and the exponent of the smallest normal ones.
        let (mantissa, shift) =
            if exponent == 0 { (fraction, 0) } else { (fraction | 1 << MANTISSA_BITS, exponent - 1) };
        let mut limbs = [0; LIMBS];
        limbs[shift / 64] = mantissa << (shift % 64);
        limbs[shift / 64 + 1] = shifted_down(mantissa, 64 - shift % 64);
        let sum = Self(limbs);
        Some(if value.is_sign_negative() { sum.negated() } else { sum })
    }

    /// The sum of both. None: it exceeds the limbs, which no sum of real numbers does.
    pub(super) fn plus(&self, other: &Self) -> Option<Self> {
        let mut carry = false;
        let mut limbs = [0; LIMBS];
        for (limb, (a, b)) in limbs.iter_mut().zip(self.0.iter().zip(other.0)) {
            let (sum, first) = a.overflowing_add(b);
            let (sum, second) = sum.overflowing_add(u64::from(carry));
            (*limb, carry) = (sum, first || second);
        }
        let sum = Self(limbs);
        let kept = self.is_negative() != other.is_negative() || self.is_negative() == sum.is_negative();
        kept.then_some(sum)
    }

    /// The number nearest to the sum; of two, the even one. None: it exceeds all numbers.
    pub(super) fn rounded(&self) -> Option<f64> {
        let magnitude = if self.is_negative() { self.negated() } else { self.clone() };
        let limbs = &magnitude.0;
        let top = (0..LIMBS).rev().find(|at| limbs[*at] != 0).unwrap_or(0);
        let bits = 64 * top + (64 - limbs[top].leading_zeros() as usize);
        // A value with no more bits than a mantissa is its own pattern, with and without a leading one.
        let Some(shift) = bits.checked_sub(MANTISSA_BITS + 1).filter(|shift| *shift > 0) else {
            return Some(self.signed(f64::from_bits(limbs[0])));
        };
        let half = shift - 1;
        let mantissa = magnitude.bits_from(shift);
        let above_half = limbs[..half / 64].iter().any(|limb| *limb != 0)
            || limbs[half / 64] & ((1 << (half % 64)) - 1) != 0;
        let up = magnitude.bits_from(half) & 1 == 1 && (above_half || mantissa & 1 == 1);
        // The leading one counts the exponent up by one, and so does a mantissa that is rounded up to the next power.
        let pattern = ((shift as u64) << MANTISSA_BITS).checked_add(mantissa + u64::from(up))?;
        let value = f64::from_bits(pattern);
        (pattern <= f64::MAX.to_bits()).then(|| self.signed(value))
    }

    /// Appends the sum: how many zero bytes are left out below, then the others, without those on top that only repeat the sign.
    pub(super) fn write(&self, onto: &mut Vec<u8>) {
        let bytes: Vec<u8> = self.0.iter().flat_map(|limb| limb.to_le_bytes()).collect();
        let Some(low) = bytes.iter().position(|byte| *byte != 0) else {
            return onto.extend([0, 0]);
        };
        let mut kept = &bytes[low..];
        while let [shorter @ .., _] = kept {
            if !repeats_sign(kept) {
                break;
            }
            kept = shorter;
        }
        write_length(low, onto);
        write_bytes(kept, onto);
    }

    /// Reads a sum in the one form that is written.
    pub(super) fn read(from: &mut Reader<'_>) -> Result<Self, Failure> {
        let low = from.length(BYTES, "bytes of a sum")?;
        let kept = from.bytes(BYTES - low, "bytes of a sum")?;
        let plain = kept.first().map_or(low == 0, |byte| *byte != 0) && !repeats_sign(kept);
        if !plain {
            return Err(garbled("a sum has a trailing byte"));
        }
        let sign = if kept.last().is_some_and(|byte| byte & 0x80 != 0) { 0xff } else { 0 };
        let mut bytes = [sign; BYTES];
        bytes[..low].fill(0);
        bytes[low..low + kept.len()].copy_from_slice(kept);
        let mut limbs = [0; LIMBS];
        for (limb, bytes) in limbs.iter_mut().zip(bytes.chunks_exact(8)) {
            *limb = bytes.iter().rev().fold(0, |limb, byte| limb << 8 | u64::from(*byte));
        }
        Ok(Self(limbs))
    }

    fn is_negative(&self) -> bool {
        self.0[LIMBS - 1] >> 63 == 1
    }

    fn signed(&self, value: f64) -> f64 {
        if self.is_negative() { -value } else { value }
    }

    fn negated(&self) -> Self {
        let mut carry = true;
        Self(self.0.map(|limb| {
            let (negated, next) = (!limb).overflowing_add(u64::from(carry));
            carry = next;
            negated
        }))
    }

    /// The 64 bits from that one on.
    fn bits_from(&self, bit: usize) -> u64 {
        let (at, shift) = (bit / 64, bit % 64);
        let above = self.0.get(at + 1).map_or(0, |above| if shift == 0 { 0 } else { above << (64 - shift) });
        above | self.0[at] >> shift
    }
}

/// The number without its lowest bits, which may be all 64.
fn shifted_down(number: u64, bits: usize) -> u64 {
    if bits < 64 { number >> bits } else { 0 }
}

/// Whether the top byte only repeats the sign of the byte below.
fn repeats_sign(bytes: &[u8]) -> bool {
    match bytes {
        [.., below, top] => *top == if below & 0x80 == 0 { 0 } else { 0xff },
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sum(values: &[f64]) -> Exact {
        let mut sum = Exact::of(0.0).unwrap();
        for value in values {
            sum = sum.plus(&Exact::of(*value).unwrap()).unwrap();
        }
        sum
    }

    fn check(values: &[f64], expected: Option<f64>) {
        let rounded = sum(values).rounded();
        assert_eq!(rounded.map(f64::to_bits), expected.map(f64::to_bits), "{values:?}: {rounded:?}");
    }

    #[test]
    fn nothing_is_lost_on_the_way() {
        check(&[], Some(0.0));
        check(&[1e300, 1.0, -1e300], Some(1.0));
        check(&[0.1; 10], Some(1.0));
        check(&[f64::MAX, f64::MAX, -f64::MAX], Some(f64::MAX));
        check(&[f64::MAX, f64::MAX], None);
        check(&[-f64::MAX, -f64::MAX], None);
        check(&[f64::from_bits(1), f64::from_bits(1)], Some(f64::from_bits(2)));
        check(
            &[f64::MIN_POSITIVE, -f64::from_bits(1)],
            Some(f64::from_bits(f64::MIN_POSITIVE.to_bits() - 1)),
        );
    }

    #[test]
    fn halves_go_to_the_even_number() {
        let tiny = f64::EPSILON / 2.0;
        check(&[1.0, tiny], Some(1.0));
        check(&[1.0 + f64::EPSILON, tiny], Some(1.0 + 2.0 * f64::EPSILON));
        check(&[1.0, tiny, 1e-300], Some(1.0 + f64::EPSILON));
        check(&[-1.0, -tiny, -1e-300], Some(-1.0 - f64::EPSILON));
        check(&[2.0 - f64::EPSILON, tiny], Some(2.0));
        // Half of the largest number's last place above it has no number.
        check(&[f64::MAX, f64::MAX * tiny / 2.0], Some(f64::MAX));
        check(&[f64::MAX, f64::MAX * tiny], None);
    }

    #[test]
    fn values_that_are_no_numbers_have_no_sum() {
        for value in [f64::NAN, f64::INFINITY, -f64::INFINITY] {
            assert_eq!(Exact::of(value), None);
        }
    }

    fn finite() -> impl Strategy<Value = f64> {
        any::<u64>().prop_map(f64::from_bits).prop_filter("finite", |value| value.is_finite())
    }

    proptest! {
        #[test]
        fn one_number_is_its_own_sum_and_two_add_up_as_the_processor_says(a in finite(), b in finite(), near in -1e9_f64..1e9) {
            prop_assert_eq!(Exact::of(a).unwrap().rounded(), Some(a));
            for b in [b, near, -a] {
                let plain = a + b;
                prop_assert_eq!(sum(&[a, b]).rounded(), plain.is_finite().then_some(plain));
            }
        }

        #[test]
        fn sums_read_back(values in prop::collection::vec(finite(), 0..6)) {
            let sum = sum(&values);
            let mut bytes = Vec::new();
            sum.write(&mut bytes);
            prop_assert_eq!(Exact::read(&mut Reader::new(&bytes)).unwrap(), sum);
        }

        #[test]
        fn a_sum_that_is_read_is_written_unchanged(bytes in prop::collection::vec(prop_oneof![Just(0), Just(1), Just(0xff), any::<u8>()], 0..12)) {
            let mut reader = Reader::new(&bytes);
            if let Ok(sum) = Exact::read(&mut reader) {
                let mut again = Vec::new();
                sum.write(&mut again);
                prop_assert!(bytes.starts_with(&again));
            }
        }
    }
}
