//! Merges the texts of many ranks into classes. Texts that differ only in numbers become one text with ranges: `rank =
//! [0;63]`.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use gantry_types::rank_set::RankSet;

/// Ranks with the same text, except for numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Class {
    /// The ranks.
    pub ranks: RankSet,
    /// The merged text.
    pub text: String,
}

/// The kind of a number. Numbers of different kinds are not merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Decimal,
    Hexadecimal,
}

/// A piece of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Piece<'t> {
    Plain(&'t str),
    Number(Kind, &'t str),
}

/// A text with its numbers cut out.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Bone {
    Plain(String),
    Number(Kind),
}

/// The values seen in place of a number.
#[derive(Debug, Clone)]
struct Span {
    least: String,
    most: String,
}

/// Merges texts into classes. The class with the fewest ranks comes first, because it is the odd one.
pub fn fold<'t>(texts: impl IntoIterator<Item = (&'t str, &'t RankSet)>) -> Vec<Class> {
    let mut classes: BTreeMap<Vec<Bone>, (RankSet, Vec<Span>)> = BTreeMap::new();
    for (text, ranks) in texts {
        let pieces = split(text);
        let bones = pieces.iter().map(|piece| match piece {
            Piece::Plain(text) => Bone::Plain((*text).to_owned()),
            Piece::Number(kind, _) => Bone::Number(*kind),
        });
        let numbers = pieces.iter().filter_map(|piece| match piece {
            Piece::Plain(_) => None,
            Piece::Number(_, text) => Some(*text),
        });
        match classes.entry(bones.collect()) {
            std::collections::btree_map::Entry::Vacant(entry) => {
                let span = |text: &str| Span { least: text.to_owned(), most: text.to_owned() };
                entry.insert((ranks.clone(), numbers.map(span).collect()));
            }
            std::collections::btree_map::Entry::Occupied(mut entry) => {
                let (all, spans) = entry.get_mut();
                *all = all.union(ranks);
                spans.iter_mut().zip(numbers).for_each(|(span, text)| span.widen(text));
            }
        }
    }
    let mut classes: Vec<Class> = classes
        .into_iter()
        .map(|(bones, (ranks, spans))| Class { ranks, text: write(&bones, &spans) })
        .collect();
    classes.sort_by_key(|class| (class.ranks.len(), class.ranks.first()));
    classes
}

impl Span {
    fn widen(&mut self, text: &str) {
        if compare(text, &self.least) == Ordering::Less {
            text.clone_into(&mut self.least);
        }
        if compare(text, &self.most) == Ordering::Greater {
            text.clone_into(&mut self.most);
        }
    }
}

fn write(bones: &[Bone], spans: &[Span]) -> String {
    let mut text = String::new();
    let mut spans = spans.iter();
    for bone in bones {
        match bone {
            Bone::Plain(plain) => text.push_str(plain),
            Bone::Number(_) => match spans.next() {
                Some(span) if span.least == span.most => text.push_str(&span.least),
                Some(span) => text.push_str(&format!("[{};{}]", span.least, span.most)),
                None => {}
            },
        }
    }
    text
}

/// Compares by value. Numbers of equal value compare by their text.
fn compare(one: &str, other: &str) -> Ordering {
    let whole = |text: &str| match text.strip_prefix("0x") {
        Some(digits) => i128::from_str_radix(digits, 16).ok(),
        None => text.parse::<i128>().ok(),
    };
    let by_value = match (whole(one), whole(other)) {
        (Some(one), Some(other)) => one.cmp(&other),
        _ => {
            let real = |text: &str| text.parse::<f64>().unwrap_or(f64::NAN);
            real(one).total_cmp(&real(other))
        }
    };
    by_value.then_with(|| one.cmp(other))
}

/// Finds the numbers that may be merged. Digits in a name, a version, a path or a source line stay as they are: another
/// line is another place.
fn split(text: &str) -> Vec<Piece<'_>> {
    let bytes = text.as_bytes();
    let mut pieces = Vec::new();
    let (mut at, mut plain) = (0, 0);
    while at < bytes.len() {
        match number_at(bytes, at) {
            Some((kind, end)) => {
                if plain < at {
                    pieces.push(Piece::Plain(&text[plain..at]));
                }
                pieces.push(Piece::Number(kind, &text[at..end]));
                (at, plain) = (end, end);
            }
            None => {
                // The rest of the word is not a number either.
                let is_word = bytes[at].is_ascii_alphanumeric();
                at += 1;
                while is_word && at < bytes.len() && bytes[at].is_ascii_alphanumeric() {
                    at += 1;
                }
            }
        }
    }
    if plain < bytes.len() {
        pieces.push(Piece::Plain(&text[plain..]));
    }
    pieces
}

/// Returns the kind and the end of the number that starts here.
fn number_at(bytes: &[u8], at: usize) -> Option<(Kind, usize)> {
    let before = at.checked_sub(1).map_or(b' ', |before| bytes[before]);
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || !byte.is_ascii();
    if is_part(before) || matches!(before, b':' | b'/' | b'.' | b'-' | b'+' | b'~') {
        return None;
    }
    let digits_from = if bytes[at] == b'-' { at + 1 } else { at };
    let count = |from: usize, is_digit: fn(&u8) -> bool| {
        bytes.get(from..).unwrap_or_default().iter().take_while(|byte| is_digit(byte)).count()
    };
    if bytes.get(digits_from..digits_from + 2) == Some(b"0x") && digits_from == at {
        let end = at + 2 + count(at + 2, u8::is_ascii_hexdigit);
        let is_whole = end > at + 2 && bytes.get(end).is_none_or(|next| !is_part(*next));
        return is_whole.then_some((Kind::Hexadecimal, end));
    }
    let whole = count(digits_from, u8::is_ascii_digit);
    if whole == 0 {
        return None;
    }
    let mut end = digits_from + whole;
    if bytes.get(end) == Some(&b'.') {
        let fraction = count(end + 1, u8::is_ascii_digit);
        if fraction > 0 {
            end += 1 + fraction;
        }
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'-' | b'+')));
        let exponent = count(end + 1 + sign, u8::is_ascii_digit);
        if exponent > 0 {
            end += 1 + sign + exponent;
        }
    }
    // "1.2.3" is a version, "3rd" is a word.
    let next = bytes.get(end).copied().unwrap_or(b' ');
    let is_more = is_part(next) || (next == b'.' && count(end + 1, u8::is_ascii_digit) > 0);
    (!is_more).then_some((Kind::Decimal, end))
}

#[cfg(test)]
mod tests {
    use gantry_types::id::Rank;
    use proptest::prelude::*;

    use super::*;

    fn folded(texts: &[&str]) -> Vec<String> {
        let ranks: Vec<RankSet> =
            (0..).map(|rank| RankSet::from_range(Rank(rank)..=Rank(rank))).take(texts.len()).collect();
        let classes = fold(texts.iter().copied().zip(&ranks));
        classes.iter().map(|class| format!("{} {}", class.ranks, class.text)).collect()
    }

    #[test]
    fn numbers_become_ranges() {
        let check = |texts: &[&str], expected: &[&str]| assert_eq!(folded(texts), expected);
        check(&["$1 = 0", "$1 = 1", "$1 = 63"], &["0-2 $1 = [0;63]"]);
        check(&["x = -1.5", "x = 2e3", "x = 7"], &["0-2 x = [-1.5;2e3]"]);
        check(&["p = 0x10", "p = 0x9"], &["0-1 p = [0x9;0x10]"]);
        check(&["p = 0x10", "p = 9"], &["0 p = 0x10", "1 p = 9"]);
        check(&["a 1 b 2", "a 1 b 3"], &["0-1 a 1 b [2;3]"]);
        check(&["x = 1", "x = 1", "y = 1"], &["2 y = 1", "0-1 x = 1"]);
        check(&["(LWP 12) {3, 4}", "(LWP 13) {3, 5}"], &["0-1 (LWP [12;13]) {3, [4;5]}"]);
    }

    #[test]
    fn other_digits_stay() {
        let check = |one: &str, other: &str| assert_eq!(folded(&[one, other]).len(), 2, "{one} {other}");
        check("main at a.c:7", "main at a.c:8");
        check("solve1 ()", "solve2 ()");
        check("in x86_64", "in x86_65");
        check("libc.so.6", "libc.so.7");
        check("1.2.3", "1.2.4");
        check("/lib/64", "/lib/65");
        check("0x1g", "0x2g");
        check("ä1", "ä2");
    }

    proptest! {
        #[test]
        fn one_text_is_itself(text in "[ -~ä\\n]{0,60}") {
            let ranks = RankSet::first_n(3);
            let classes = fold([(text.as_str(), &ranks)]);
            prop_assert_eq!(classes, [Class { ranks, text }]);
        }

        #[test]
        fn no_rank_is_lost(texts in proptest::collection::vec("[a0-9x.:e= -]{0,8}", 0..12)) {
            let ranks: Vec<RankSet> =
                (0..).map(|rank| RankSet::from_range(Rank(rank)..=Rank(rank))).take(texts.len()).collect();
            let classes = fold(texts.iter().map(String::as_str).zip(&ranks));
            let all = classes.iter().fold(RankSet::new(), |all, class| all.union(&class.ranks));
            prop_assert_eq!(all.len(), texts.len() as u64);
        }
    }
}
