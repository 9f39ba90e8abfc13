//! The line of an instruction, by the table of its code object.

use super::layout::LineTable;

/// Kinds of entries of [`LineTable::Locations`].
const ONE_LINE: std::ops::RangeInclusive<u8> = 10..=12;
const WITHOUT_COLUMNS: u8 = 13;
const LONG: u8 = 14;
const NONE: u8 = 15;

/// The line of the instruction `at` bytes after the first one. None: the compiler recorded none.
pub(super) fn find_line(kind: LineTable, table: &[u8], first_line: u32, at: u64) -> Option<u32> {
    let line = match kind {
        LineTable::Increments => by_increments(table, i64::from(first_line), at),
        LineTable::Ranges => by_ranges(table, i64::from(first_line), at),
        LineTable::Locations => by_locations(table, i64::from(first_line), at),
    };
    line.and_then(|line| u32::try_from(line).ok())
}

fn by_increments(table: &[u8], mut line: i64, at: u64) -> Option<i64> {
    let mut address = 0;
    for pair in table.chunks_exact(2) {
        address += u64::from(pair[0]);
        if address > at {
            break;
        }
        line += i64::from(pair[1].cast_signed());
    }
    Some(line)
}

fn by_ranges(table: &[u8], mut line: i64, at: u64) -> Option<i64> {
    let mut end = 0;
    for pair in table.chunks_exact(2) {
        let change = pair[1].cast_signed();
        if change != i8::MIN {
            line += i64::from(change);
        }
        end += u64::from(pair[0]);
        if at < end {
            return (change != i8::MIN).then_some(line);
        }
    }
    None
}

fn by_locations(table: &[u8], mut line: i64, at: u64) -> Option<i64> {
    let mut end = 0;
    let mut rest = table;
    while let [first, more @ ..] = rest {
        // The highest bit marks the first byte of an entry.
        let length = more.iter().take_while(|byte| **byte & 0x80 == 0).count();
        let (entry, next) = more.split_at(length);
        let kind = first >> 3 & 15;
        line += match kind {
            kind if ONE_LINE.contains(&kind) => i64::from(kind - ONE_LINE.start()),
            WITHOUT_COLUMNS | LONG => signed(entry),
            _ => 0,
        };
        end += 2 * (u64::from(first & 7) + 1);
        if at < end {
            return (kind != NONE).then_some(line);
        }
        rest = next;
    }
    None
}

/// The signed number at the beginning of an entry: six bits per byte, lowest first; the lowest bit of all is the
/// sign.
fn signed(entry: &[u8]) -> i64 {
    let mut number: u32 = 0;
    for (place, byte) in entry.iter().enumerate().take(6) {
        number |=
            u32::from(byte & 0x3f).checked_shl(6 * u32::try_from(place).unwrap_or(u32::MAX)).unwrap_or(0);
        if byte & 0x40 == 0 {
            break;
        }
    }
    let size = i64::from(number >> 1);
    if number & 1 == 1 { -size } else { size }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_has_a_table_of_its_own() {
        let check = |kind, table: &[u8], expected: &[(u64, Option<u32>)]| {
            for (at, line) in expected {
                assert_eq!(find_line(kind, table, 10, *at), *line, "{kind:?} {at}");
            }
        };
        // Six bytes at line 10, then line 12, then back to 11.
        check(
            LineTable::Increments,
            &[6, 2, 4, 0xff],
            &[(0, Some(10)), (5, Some(10)), (6, Some(12)), (11, Some(11))],
        );
        // Four bytes at line 11, two without a line, then line 10.
        check(
            LineTable::Ranges,
            &[4, 1, 2, 0x80, 6, 0xff],
            &[(0, Some(11)), (3, Some(11)), (4, None), (6, Some(10)), (12, None)],
        );
        // A unit at the first line; two units one line on; a unit without one; a long entry 70 lines on; three lines back.
        let table = [0x80, 0x00, 0xd9, 1, 2, 0xf8, 0xf0, 0x4c, 0x02, 0, 1, 1, 0xe8, 0x07];
        check(
            LineTable::Locations,
            &table,
            &[
                (0, Some(10)),
                (2, Some(11)),
                (5, Some(11)),
                (6, None),
                (8, Some(81)),
                (10, Some(78)),
                (12, None),
            ],
        );
        // A damaged table ends.
        check(LineTable::Locations, &[0xf0, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f], &[(2, None)]);
        check(LineTable::Ranges, &[4], &[(0, None)]);
    }
}
