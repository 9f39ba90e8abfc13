//! Lists of hosts as people write them, `n[001-128],login1`, and back.
//!
//! WLMs, host files and command lines all name hosts this way. Zero padding is part of a name: `n01` and `n1` are
//! different hosts.

use std::{collections::BTreeMap, fmt::Write, net::Ipv6Addr};

/// How many hosts a list may stand for.
pub const MAX_HOSTS: usize = 1_000_000;

/// How many characters a host's name may have (RFC 1035 allows 255 bytes).
pub const MAX_HOST_CHARS: usize = 255;

/// How many digits a number in brackets may have: they fit into 64 bits.
const MAX_DIGITS: usize = 18;

/// A text is not a list of hosts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem} at character {position}")]
pub struct ParseHostsError {
    /// The problem.
    pub problem: HostProblem,
    /// Its position in characters, counted from 1.
    pub position: usize,
}

/// A problem in a list of hosts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HostProblem {
    /// The text between two commas, or at an end, is empty.
    #[error("a host name is missing")]
    Empty,
    /// A name starts with `-`: a command would take it for an option.
    #[error("a host name starts with '-'")]
    Dash,
    /// No host name has this character. A colon is one only of IPv6 addresses.
    #[error("a host name has no {0:?}")]
    Character(char),
    /// A bracket within brackets.
    #[error("brackets within brackets")]
    Nested,
    /// A bracket that is never closed.
    #[error("a bracket that is not closed")]
    Open,
    /// A bracket that was never opened.
    #[error("a bracket that was not opened")]
    Closed,
    /// Something else stands in brackets where a number must be.
    #[error("expected a number of at most {MAX_DIGITS} digits, found {0:?}")]
    NotANumber(String),
    /// A range ends before it starts.
    #[error("the range {0} ends before it starts")]
    Backwards(String),
    /// The end of a range is padded with zeros to another width than its start.
    #[error("the ends of the range {0} are padded to different widths")]
    Widths(String),
    /// A name is longer than [`MAX_HOST_CHARS`].
    #[error("a host name has more than {MAX_HOST_CHARS} characters")]
    TooLong,
    /// The list stands for more than [`MAX_HOSTS`].
    #[error("the list stands for more than {MAX_HOSTS} hosts")]
    TooMany,
}

impl HostProblem {
    /// The error for this problem at that character, counted from 0.
    fn at(self, index: usize) -> ParseHostsError {
        ParseHostsError { problem: self, position: index + 1 }
    }
}

/// Whether names of hosts have this character.
pub(crate) fn is_name_char(sign: char) -> bool {
    sign.is_ascii_alphanumeric() || matches!(sign, '-' | '_' | '.')
}

/// Reads `n[001-004,7],r[1-2]n[1-4]`: names separated by commas, with spaces around them if one likes.
///
/// Names come in the order of the list, the last bracket of a name counting fastest, with repetitions as written.
/// An empty text is an empty list.
///
/// # Errors
/// With the place, when the text is no such list, or stands for more than [`MAX_HOSTS`].
pub fn parse_host_list(text: &str) -> Result<Vec<String>, ParseHostsError> {
    let mut hosts = Vec::new();
    if text.trim().is_empty() {
        return Ok(hosts);
    }
    for (start, item) in split_outside_brackets(text)? {
        let parts = parse_item(item, start)?;
        let count = parts.iter().map(Part::count).try_fold(1_u64, u64::checked_mul);
        let room = (MAX_HOSTS - hosts.len()) as u64;
        if count.is_none_or(|count| count > room) {
            return Err(HostProblem::TooMany.at(start));
        }
        // Check the longest name before any is built, so that a short text cannot fill the memory.
        if parts.iter().map(Part::max_chars).sum::<usize>() > MAX_HOST_CHARS {
            return Err(HostProblem::TooLong.at(start));
        }
        expand(&parts, &mut String::new(), &mut hosts);
    }
    Ok(hosts)
}

/// The items between commas that stand outside brackets, trimmed, each with the index of its first character.
fn split_outside_brackets(text: &str) -> Result<Vec<(usize, &str)>, ParseHostsError> {
    let mut items = Vec::new();
    let mut opened = None;
    let (mut start_byte, mut start) = (0, 0);
    for (index, (byte, c)) in text.char_indices().enumerate() {
        match (c, opened) {
            ('[', Some(_)) => return Err(HostProblem::Nested.at(index)),
            ('[', None) => opened = Some(index),
            (']', None) => return Err(HostProblem::Closed.at(index)),
            (']', Some(_)) => opened = None,
            (',', None) => {
                items.push(trimmed(&text[start_byte..byte], start));
                (start_byte, start) = (byte + 1, index + 1);
            }
            _ => {}
        }
    }
    if let Some(index) = opened {
        return Err(HostProblem::Open.at(index));
    }
    items.push(trimmed(&text[start_byte..], start));
    Ok(items)
}

/// A text without surrounding spaces, and the index of its first character.
fn trimmed(text: &str, start: usize) -> (usize, &str) {
    let rest = text.trim_start();
    (start + text.chars().count() - rest.chars().count(), rest.trim_end())
}

/// A piece of a name.
enum Part<'a> {
    Text(&'a str),
    Numbers(Vec<Numbers>),
}

/// An item in brackets: `first` to `last`, written with at least `width` digits.
struct Numbers {
    first: u64,
    last: u64,
    width: usize,
}

impl Part<'_> {
    /// How many texts it stands for.
    fn count(&self) -> u64 {
        match self {
            Self::Text(_) => 1,
            Self::Numbers(list) => {
                list.iter().fold(0, |sum, range| sum.saturating_add(range.last - range.first + 1))
            }
        }
    }

    /// How long the longest of them is.
    fn max_chars(&self) -> usize {
        let digits = |range: &Numbers| range.width.max(range.last.to_string().len());
        match self {
            Self::Text(text) => text.len(),
            Self::Numbers(list) => list.iter().map(digits).max().unwrap_or(0),
        }
    }
}

/// Takes one item of the list, which starts at that character, apart at its brackets; these are known to be paired.
fn parse_item(item: &str, start: usize) -> Result<Vec<Part<'_>>, ParseHostsError> {
    if item.is_empty() {
        return Err(HostProblem::Empty.at(start));
    }
    if item.starts_with('-') {
        return Err(HostProblem::Dash.at(start));
    }
    if item.parse::<Ipv6Addr>().is_ok() {
        return Ok(vec![Part::Text(item)]);
    }
    let mut parts = Vec::new();
    let (mut rest, mut index) = (item, start);
    while !rest.is_empty() {
        let (text, brackets) = rest.split_once('[').unwrap_or((rest, ""));
        check_characters(text, index)?;
        if !text.is_empty() {
            parts.push(Part::Text(text));
        }
        index += text.len() + 1;
        let (numbers, after) = brackets.split_once(']').unwrap_or_default();
        if text.len() < rest.len() {
            parts.push(Part::Numbers(parse_numbers(numbers, index)?));
        }
        index += numbers.chars().count() + 1;
        rest = after;
    }
    Ok(parts)
}

fn check_characters(text: &str, start: usize) -> Result<(), ParseHostsError> {
    match text.chars().enumerate().find(|&(_, c)| !is_name_char(c)) {
        Some((index, c)) => Err(HostProblem::Character(c).at(start + index)),
        None => Ok(()),
    }
}

/// Parses the content of brackets: `001-004,7`.
fn parse_numbers(text: &str, start: usize) -> Result<Vec<Numbers>, ParseHostsError> {
    let mut list = Vec::new();
    let mut index = start;
    for part in text.split(',') {
        let (at, range) = trimmed(part, index);
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let second = at + range.len() - last.len();
        let numbers = Numbers {
            first: parse_number(first, at)?,
            last: parse_number(last, second)?,
            width: first.len(),
        };
        if numbers.first > numbers.last {
            return Err(HostProblem::Backwards(range.to_owned()).at(at));
        }
        if last.starts_with('0') && last.len() != first.len() {
            return Err(HostProblem::Widths(range.to_owned()).at(at));
        }
        list.push(numbers);
        index += part.chars().count() + 1;
    }
    Ok(list)
}

fn parse_number(digits: &str, index: usize) -> Result<u64, ParseHostsError> {
    let plain = digits.len() <= MAX_DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number = if plain { digits.parse().ok() } else { None };
    // The beginning of an invalid text, for the error.
    number.ok_or_else(|| HostProblem::NotANumber(digits.chars().take(40).collect()).at(index))
}

/// Adds all names that start with `name` and go on with `parts`.
///
/// Recursion is as deep as a name has parts, which its checked length bounds.
fn expand(parts: &[Part<'_>], name: &mut String, hosts: &mut Vec<String>) {
    let Some((part, rest)) = parts.split_first() else {
        hosts.push(name.clone());
        return;
    };
    let length = name.len();
    match part {
        Part::Text(text) => {
            name.push_str(text);
            expand(rest, name, hosts);
        }
        Part::Numbers(list) => {
            for range in list {
                for number in range.first..=range.last {
                    push_number(name, number, range.width);
                    expand(rest, name, hosts);
                    name.truncate(length);
                }
            }
        }
    }
    name.truncate(length);
}

fn push_number(text: &mut String, number: u64, width: usize) {
    // Writing to a `String` cannot fail.
    let _infallible = write!(text, "{number:0width$}");
}

/// Writes hosts as the short list that [`parse_host_list`] reads: `login1,n[001-128]`.
///
/// The list is of the *set*: sorted, each host once, whatever order they came in. One number of a name is folded: the
/// last one before the first dot, or the last of all for an IPv4 address.
pub fn fold_hosts(hosts: &[impl AsRef<str>]) -> String {
    let mut groups: BTreeMap<(&str, &str), Vec<(u64, &str)>> = BTreeMap::new();
    for host in hosts {
        let (before, digits, after) = split_number(host.as_ref());
        let numbers = groups.entry((before, after)).or_default();
        numbers.extend(digits.parse().ok().map(|number: u64| (number, digits)));
    }
    let mut list = Vec::with_capacity(groups.len());
    for ((before, after), mut numbers) in groups {
        numbers.sort_unstable_by_key(|&(number, digits)| (number, digits.len()));
        numbers.dedup();
        list.push(match numbers.as_slice() {
            [] => format!("{before}{after}"),
            [(_, digits)] => format!("{before}{digits}{after}"),
            _ => format!("{before}[{}]{after}", fold_numbers(&numbers)),
        });
    }
    list.join(",")
}

/// Writes sorted numbers as `001-128,7`. A range goes on as long as the parser would count on to the same digits.
fn fold_numbers(numbers: &[(u64, &str)]) -> String {
    let mut folded = String::new();
    let mut rest = numbers;
    while let Some((&(first, digits), others)) = rest.split_first() {
        let mut counted = String::new();
        let follows = |&(number, next): &(u64, &(u64, &str))| {
            counted.clear();
            push_number(&mut counted, number, digits.len());
            counted == next.1
        };
        let more = (first + 1..).zip(others).take_while(follows).count();
        let comma = if folded.is_empty() { "" } else { "," };
        folded.push_str(comma);
        folded.push_str(digits);
        if more > 0 {
            folded.push('-');
            folded.push_str(others[more - 1].1);
        }
        rest = &others[more..];
    }
    folded
}

/// Splits a host name at the number to fold: the text before, the digits, the text after. No digits: there is nothing
/// to fold.
fn split_number(host: &str) -> (&str, &str, &str) {
    let is_digit = |c: char| c.is_ascii_digit();
    let address = host.chars().all(|c| is_digit(c) || c == '.');
    let label = if address { host } else { host.split('.').next().unwrap_or(host) };
    let head = label.trim_end_matches(|c| !is_digit(c));
    let before = head.trim_end_matches(is_digit);
    let digits = &head[before.len()..];
    if host.contains(':') || digits.len() > MAX_DIGITS {
        return (host, "", "");
    }
    (before, digits, &host[head.len()..])
}

#[cfg(test)]
mod tests;
