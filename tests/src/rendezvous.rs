//! The ranks' data in tests: it follows from their numbers, so that every rank can check it.

/// The data of a rank: from no byte to 1 MiB, of any value.
#[must_use]
pub fn item_of(rank: u32) -> Vec<u8> {
    let bytes = match rank % 64 {
        0 => 0,
        1 => 1_000_000,
        2 if rank < 64 => 1024 * 1024,
        3 => 1,
        // Sizes around the limits of a frame, a piece, a small answer: one byte more and one less.
        4 => 64 * 1024 + 1,
        5 => 128 * 1024 - 1,
        other => (rank * 37 + other) % 3000,
    };
    // An xorshift generator: it produces all byte values, and no two ranks get the same data.
    let mut state = rank.wrapping_mul(0x9e37_79b9) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state.to_le_bytes()[1]
    };
    std::iter::repeat_with(next).take(usize::try_from(bytes).unwrap_or(0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_have_all_values_and_differ() {
        let item = item_of(1);
        assert_eq!(item.len(), 1_000_000);
        for value in 0..=u8::MAX {
            assert!(item.contains(&value), "{value}");
        }
        assert!(item_of(64).is_empty() && item_of(2).len() == 1024 * 1024);
        assert_ne!(item_of(65), item);
    }
}
