//! Patterns of a shell: for names, not for paths, so a `*` also matches slashes.
//!
//! A match takes at most time proportional to the product of both lengths. Pure.

/// Whether the whole text matches a pattern: `*` is any text, `?` any byte.
#[must_use]
pub fn is_match(pattern: &[u8], text: &[u8]) -> bool {
    is_match_by(pattern, text, |pattern, byte| (pattern.first() == Some(&byte)).then_some(1))
}

/// As [`is_match`]. `[..]` is any byte of a set, `[!..]` any other.
#[must_use]
pub fn is_match_with_sets(pattern: &[u8], text: &[u8]) -> bool {
    is_match_by(pattern, text, |pattern, byte| match pattern.first() {
        Some(b'[') => match_set(pattern, byte),
        first => (first == Some(&byte)).then_some(1),
    })
}

/// `match_one` returns the length of the pattern's beginning that matches a byte.
fn is_match_by(pattern: &[u8], text: &[u8], match_one: impl Fn(&[u8], u8) -> Option<usize>) -> bool {
    let (mut at, mut taken) = (0, 0);
    // What stands behind the last star, and how much text comes before that.
    let mut star: Option<(usize, usize)> = None;
    while let Some(byte) = text.get(taken) {
        let rest = pattern.get(at..).unwrap_or_default();
        let one = match rest.first() {
            Some(b'*') => {
                at += 1;
                star = Some((at, taken));
                continue;
            }
            Some(b'?') => Some(1),
            _ => match_one(rest, *byte),
        };
        match (one, &mut star) {
            (Some(length), _) => (at, taken) = (at + length, taken + 1),
            (None, Some((behind, from))) => {
                *from += 1;
                (at, taken) = (*behind, *from);
            }
            (None, None) => return false,
        }
    }
    pattern.get(at..).is_some_and(|rest| rest.iter().all(|byte| *byte == b'*'))
}

/// The length of the set `[..]` at the beginning of the pattern, if `byte` is in it.
fn match_set(pattern: &[u8], byte: u8) -> Option<usize> {
    let negated = matches!(pattern.get(1), Some(b'!' | b'^'));
    let begin = if negated { 2 } else { 1 };
    // A bracket that comes first is a member.
    let end = begin + 1 + pattern.get(begin + 1..)?.iter().position(|it| *it == b']')?;
    let mut set = pattern.get(begin..end)?;
    let mut is_in = false;
    while let [first, rest @ ..] = set {
        match rest {
            [b'-', last, behind @ ..] => {
                is_in |= (*first..=*last).contains(&byte);
                set = behind;
            }
            _ => {
                is_in |= *first == byte;
                set = rest;
            }
        }
    }
    (is_in != negated).then_some(end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_texts() {
        let check = |pattern: &str, text: &str, plain: bool, with_sets: bool| {
            let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
            let found = (is_match(pattern, text), is_match_with_sets(pattern, text));
            assert_eq!(found, (plain, with_sets), "{} {}", pattern.escape_ascii(), text.escape_ascii());
        };
        check("", "", true, true);
        check("", "a", false, false);
        check("*", "", true, true);
        check("?", "", false, false);
        check("*.conf", "a.conf", true, true);
        check("*.conf", "a.confx", false, false);
        check("LAN?", "LANG", true, true);
        check("LANG", "LANGUAGE", false, false);
        check("a*b*c", "aXbYbZc", true, true);
        check("/opt/*/a?p", "/opt/x/bin/app", true, true);
        check("?[a-c]", "xb", false, true);
        check("?[a-c]", "x[a-c]", true, false);
        check("?[!a-c]", "xb", false, false);
        check("?[!a-c]", "xd", false, true);
        check("[]x]", "]", false, true);
        check("[", "[", true, false);
        check(&"*a".repeat(40), &"a".repeat(60), true, true);
        check(&format!("{}b", "*a".repeat(40)), &"a".repeat(60), false, false);
    }
}
