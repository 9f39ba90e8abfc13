//! Sets as text, `0-3,7`: how users write them and how every message prints them.

use std::{fmt, str::FromStr};

use super::{IdSet, MAX_RANGES, SetId, Span};

impl<T: SetId> fmt::Display for IdSet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut comma = "";
        for &(first, last) in &self.spans {
            match first == last {
                true => write!(f, "{comma}{first}")?,
                false => write!(f, "{comma}{first}-{last}")?,
            }
            comma = ",";
        }
        Ok(())
    }
}

impl<T: SetId> fmt::Debug for IdSet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}

/// A text is not a set such as `0-3,7`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem} at character {position}")]
pub struct ParseSetError {
    /// The problem.
    pub problem: SetProblem,
    /// Its position in characters, counted from 1.
    pub position: usize,
}

/// A problem in the text of a set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SetProblem {
    /// Something else stands where a number must be.
    #[error("expected a number, found {0:?}")]
    NotANumber(String),
    /// A number is larger than any identifier.
    #[error("{0} is too large")]
    TooLarge(String),
    /// A range ends before it starts.
    #[error("the range {0} ends before it starts")]
    Backwards(String),
    /// There are more than [`MAX_RANGES`] ranges.
    #[error("more than {MAX_RANGES} ranges")]
    TooMany,
}

impl<T: SetId> FromStr for IdSet<T> {
    type Err = ParseSetError;

    /// Reads `0-3,7`, in any order, with spaces around the commas; an empty text is the empty set.
    fn from_str(text: &str) -> Result<Self, ParseSetError> {
        if text.trim().is_empty() {
            return Ok(Self::new());
        }
        let mut spans = Vec::new();
        let mut position = 1;
        for part in text.split(',') {
            let item = part.trim();
            let start = position + part.chars().take_while(|c| c.is_whitespace()).count();
            if spans.len() == MAX_RANGES {
                return Err(ParseSetError { problem: SetProblem::TooMany, position: start });
            }
            spans.push(parse_span(item, start)?);
            position += part.chars().count() + 1;
        }
        Ok(Self::from_spans(spans))
    }
}

/// Reads `7` or `0-3`, which starts at that character of the whole text.
fn parse_span(item: &str, position: usize) -> Result<Span, ParseSetError> {
    let Some((first, last)) = item.split_once('-') else {
        let number = parse_number(item, position)?;
        return Ok((number, number));
    };
    let span = (parse_number(first, position)?, parse_number(last, position + first.len() + 1)?);
    if span.0 > span.1 {
        return Err(ParseSetError { problem: SetProblem::Backwards(item.to_owned()), position });
    }
    Ok(span)
}

fn parse_number(digits: &str, position: usize) -> Result<u32, ParseSetError> {
    /// The length of an invalid text in an error.
    const SHOWN: usize = 40;

    let shown = || digits.chars().take(SHOWN).collect();
    let problem = if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        SetProblem::NotANumber(shown())
    } else if let Ok(number) = digits.parse() {
        return Ok(number);
    } else {
        SetProblem::TooLarge(shown())
    };
    Err(ParseSetError { problem, position })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::rank_set::{NodeSet, RankSet};

    #[test]
    fn text_is_read_in_any_order_and_printed_squashed() {
        let check = |text: &str, expected: &str| {
            assert_eq!(text.parse::<RankSet>().unwrap().to_string(), expected, "{text:?}");
        };
        check("", "");
        check("  ", "");
        check("7", "7");
        check("0-3,7", "0-3,7");
        check(" 7 , 0-3 ,4", "0-4,7");
        check("2-2,1-3,0-1", "0-3");
        check("0-4294967295", "0-4294967295");
        check("4294967295,4294967294", "4294967294-4294967295");
    }

    #[test]
    fn bad_text_is_refused_with_the_place() {
        let check = |text: &str, expected: &str| {
            assert_eq!(text.parse::<NodeSet>().unwrap_err().to_string(), expected, "{text:?}");
        };
        check("3-0", "the range 3-0 ends before it starts at character 1");
        check("0-3,é", r#"expected a number, found "é" at character 5"#);
        check("0,,1", r#"expected a number, found "" at character 3"#);
        check("0,1,", r#"expected a number, found "" at character 5"#);
        check("1 -3", r#"expected a number, found "1 " at character 1"#);
        check("1-2-3", r#"expected a number, found "2-3" at character 3"#);
        check("-3", r#"expected a number, found "" at character 1"#);
        check("+3", r#"expected a number, found "+3" at character 1"#);
        check("0, 1-4294967296", "4294967296 is too large at character 6");
        let many = "1,".repeat(MAX_RANGES) + "1";
        check(&many, &format!("more than 1000000 ranges at character {}", 2 * MAX_RANGES + 1));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[0-9, -]{0,12}|\\PC{0,12}") {
            let _outcome = text.parse::<RankSet>();
        }
    }
}
