//! Finds callers by return addresses among the words of a stack, for functions without a table and without frame
//! pointers, such as musl's.
//!
//! A return address follows a call. If that call leads to the beginning of the examined function, the call is its
//! caller. The registers that the function pushed at its beginning are right below.

use crate::maps::Maps;
use crate::memory::StackCopy;

/// How many words of a stack are examined. A function with more variables is not found.
const MOST_WORDS: u64 = 512;

/// How far away a function may be that jumps to the examined one.
const NEAR: u64 = 4 << 20;

/// The longest call instruction, and how many bytes at the beginning of a function are examined.
const CALL_BYTES: usize = 7;
const BEGINNING_BYTES: usize = 24;

/// The caller of a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Caller {
    /// The return address.
    pub(crate) instruction: u64,
    /// Its stack pointer.
    pub(crate) stack: u64,
    /// The numbers of registers that the function has saved, and where.
    pub(crate) saved: Vec<(u16, u64)>,
    /// It calls the function itself. Otherwise it is only the nearest possible caller.
    pub(crate) is_sure: bool,
}

/// The call before a return address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    To(u64),
    /// An indirect call, through a register or variable.
    Anywhere,
}

/// Finds the caller of the function that contains `instruction`, and whose stack begins at `stack`. `begin` is its
/// first instruction, if known.
pub(crate) fn find_caller(
    maps: &Maps,
    copy: &StackCopy,
    begin: Option<u64>,
    instruction: u64,
    stack: u64,
) -> Option<Caller> {
    let places = (0..MOST_WORDS).filter_map(|number| stack.checked_add(8 * number));
    let found = places.map_while(|place| Some((place, copy.word(place)?)));
    let found = found.filter(|(_, word)| maps.is_code(*word));
    let mut nearest = None;
    for (place, word) in found {
        let caller =
            |saved, is_sure| Some(Caller { instruction: word, stack: place.checked_add(8)?, saved, is_sure });
        match (call_before(copy, word), begin) {
            (Some(Call::To(called)), Some(begin)) if leads_to(copy, called, begin) => {
                return caller(pushed(&copy.bytes(begin, BEGINNING_BYTES), place), true);
            }
            (Some(Call::To(called)), _) if called.abs_diff(instruction) >= NEAR => {}
            (Some(_), _) => nearest = nearest.or_else(|| caller(Vec::new(), false)),
            (None, _) => {}
        }
    }
    nearest
}

/// Whether the called address is the function, or jumps to it at once.
fn leads_to(copy: &StackCopy, called: u64, begin: u64) -> bool {
    called == begin || jumps_to(&copy.bytes(called, BEGINNING_BYTES), called, begin)
}

/// Whether the first instructions contain a jump to the function.
fn jumps_to(beginning: &[u8], called: u64, begin: u64) -> bool {
    let behind = |at: usize, length: u64| called.wrapping_add(at as u64).wrapping_add(length);
    let target = |at: usize| match beginning.get(at..)? {
        [0xeb, distance, ..] => Some(behind(at, 2).wrapping_add_signed(i64::from(distance.cast_signed()))),
        [0xe9, a, b, c, d, ..] => {
            let distance = i64::from(i32::from_le_bytes([*a, *b, *c, *d]));
            Some(behind(at, 5).wrapping_add_signed(distance))
        }
        _ => None,
    };
    (0..beginning.len()).any(|at| target(at) == Some(begin))
}

/// The call whose return address this is.
fn call_before(copy: &StackCopy, address: u64) -> Option<Call> {
    let length = CALL_BYTES as u64;
    let bytes = copy.bytes(address.checked_sub(length)?, CALL_BYTES);
    parse_call(&bytes.try_into().ok()?, address)
}

/// Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, CALL.
fn parse_call(bytes: &[u8; CALL_BYTES], address: u64) -> Option<Call> {
    // The middle three bits of the byte after the opcode mark a call; the others give its length.
    let is_call = |byte: u8, mode: u8| byte >> 6 == mode && byte >> 3 & 7 == 2;
    match bytes {
        [_, _, 0xe8, distance @ ..] => {
            let distance = i64::from(i32::from_le_bytes(*distance));
            Some(Call::To(address.wrapping_add_signed(distance)))
        }
        [_, 0xff, 0x15, ..] => Some(Call::Anywhere),
        [.., 0xff, mode] if is_call(*mode, 3) => Some(Call::Anywhere),
        [.., 0xff, mode, _] if is_call(*mode, 1) => Some(Call::Anywhere),
        [_, 0xff, mode, ..] if is_call(*mode, 2) => Some(Call::Anywhere),
        _ => None,
    }
}

/// The registers that a function pushes first, by their numbers in unwinding tables, with their addresses. The return
/// address is at `place`.
fn pushed(beginning: &[u8], place: u64) -> Vec<(u16, u64)> {
    let mut rest = beginning.strip_prefix(&[0xf3, 0x0f, 0x1e, 0xfa]).unwrap_or(beginning);
    let mut saved = Vec::new();
    loop {
        let (register, more) = match rest {
            [0x53, more @ ..] => (3, more),
            [0x55, more @ ..] => (6, more),
            [0x41, register @ 0x54..=0x57, more @ ..] => (u16::from(register - 0x54) + 12, more),
            _ => return saved,
        };
        rest = more;
        let below = 8 * (saved.len() as u64 + 1);
        saved.push((register, place.wrapping_sub(below)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_known_by_their_bytes() {
        let check = |bytes, expected| assert_eq!(parse_call(&bytes, 0x1000), expected, "{bytes:x?}");
        check([0, 0, 0xe8, 0xfb, 0xff, 0xff, 0xff], Some(Call::To(0xffb)));
        check([0, 0xff, 0x15, 1, 2, 3, 4], Some(Call::Anywhere));
        check([0, 0, 0, 0, 0, 0xff, 0xd0], Some(Call::Anywhere));
        check([0, 0, 0, 0, 0x41, 0xff, 0xd4], Some(Call::Anywhere));
        check([0, 0, 0, 0, 0xff, 0x50, 0x18], Some(Call::Anywhere));
        check([0, 0xff, 0x90, 0, 1, 0, 0], Some(Call::Anywhere));
        // A jump, and an instruction with the same ending as a call.
        check([0, 0, 0xe9, 0, 0, 0, 0], None);
        check([0, 0, 0, 0, 0, 0xff, 0xe0], None);
    }

    #[test]
    fn a_function_that_only_jumps_is_the_other_one() {
        // xor %esi, %esi; jmp.
        let beginning = [0x31, 0xf6, 0xe9, 0xf9, 0, 0, 0];
        assert!(jumps_to(&beginning, 0x1000, 0x1100));
        assert!(!jumps_to(&beginning, 0x1000, 0x1101));
        assert!(jumps_to(&[0xeb, 0xfe], 0x1000, 0x1000));
        assert!(!jumps_to(&[0xe9, 0], 0x1000, 0x1005));
    }

    #[test]
    fn pushed_registers_are_below_the_return_address() {
        let beginning = [0xf3, 0x0f, 0x1e, 0xfa, 0x41, 0x56, 0x55, 0x53, 0x48, 0x83, 0xec, 0x20];
        assert_eq!(pushed(&beginning, 0x100), [(14, 0xf8), (6, 0xf0), (3, 0xe8)]);
        assert_eq!(pushed(&[0xc3], 0x100), []);
    }
}
