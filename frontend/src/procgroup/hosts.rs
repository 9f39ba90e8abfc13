//! Lists of hosts in the format of the process manager's messages: `ccn-%d:64-73 login1`.
//!
//! A list is ordered, and a host occurs once for each of its processes. Names are separated by spaces or commas. A
//! name with `%d` is followed by a colon and the numbers that replace it. After a comma in those, a part that begins
//! with a digit continues the numbers.

/// How many hosts a list may stand for.
pub(super) const MAX_HOSTS: usize = 1_000_000;

/// How many bytes a host's name may have.
const MAX_NAME_BYTES: usize = 255;

/// How many digits a number in a name may have.
const MAX_DIGITS: usize = 18;

/// The place of the number.
const NUMBER: &str = "%d";

/// Reads a list of hosts, in its order, with repetitions.
///
/// # Errors
/// The list is malformed, or stands for more than [`MAX_HOSTS`].
pub(super) fn parse_hosts(text: &str) -> Result<Vec<String>, String> {
    let mut hosts = Vec::new();
    for list in text.split_ascii_whitespace() {
        // The text before and behind the number, as long as more numbers may follow.
        let mut open: Option<(&str, &str)> = None;
        for word in list.split(',') {
            if let Some((before, after)) = open.filter(|_| is_range(word)) {
                push_numbered(&mut hosts, before, after, word)?;
                continue;
            }
            open = None;
            if let Some((before, rest)) = word.split_once(NUMBER) {
                let (after, first) = rest.split_once(':').ok_or_else(|| {
                    format!("'{}' has {NUMBER} without ':' and numbers behind it", shorten(word))
                })?;
                push_numbered(&mut hosts, before, after, first)?;
                open = Some((before, after));
            } else if !word.is_empty() {
                push(&mut hosts, word.to_owned())?;
            }
        }
    }
    match hosts.is_empty() {
        true => Err("a list without a host".to_owned()),
        false => Ok(hosts),
    }
}

fn is_range(text: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.split_once('-').map_or_else(|| digits(text), |(first, last)| digits(first) && digits(last))
}

fn push(hosts: &mut Vec<String>, host: String) -> Result<(), String> {
    if host.len() > MAX_NAME_BYTES {
        return Err(format!("the host '{}' has more than {MAX_NAME_BYTES} bytes", shorten(&host)));
    }
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':');
    if let Some(odd) = host.chars().find(|c| !fits(*c)) {
        return Err(format!("'{}' is not a host name: {odd:?} is not allowed", shorten(&host)));
    }
    if hosts.len() == MAX_HOSTS {
        return Err(format!("more than {MAX_HOSTS} hosts"));
    }
    hosts.push(host);
    Ok(())
}

/// Adds the hosts of one range, `7` or `64-73`. Numbers have as many digits as the first.
fn push_numbered(hosts: &mut Vec<String>, before: &str, after: &str, range: &str) -> Result<(), String> {
    let bad = || format!("'{}' is neither a number nor a range of numbers", shorten(range));
    if !is_range(range) {
        return Err(bad());
    }
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    if first.len().max(last.len()) > MAX_DIGITS {
        return Err(bad());
    }
    let from: u64 = first.parse().map_err(|_| bad())?;
    let to: u64 = last.parse().map_err(|_| bad())?;
    if from > to {
        return Err(format!("the range {range} ends before it starts"));
    }
    if to - from >= MAX_HOSTS as u64 {
        return Err(format!("more than {MAX_HOSTS} hosts"));
    }
    for number in from..=to {
        push(hosts, format!("{before}{number:0width$}{after}", width = first.len()))?;
    }
    Ok(())
}

/// The beginning of an invalid text, for an error.
fn shorten(text: &str) -> String {
    text.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Result<&[&str], &str>) {
        let found = parse_hosts(text);
        match (found, expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{text}"),
            (Err(found), Err(expected)) => assert!(found.contains(expected), "{text}: {found}"),
            (found, expected) => panic!("{text}: {found:?}, expected {expected:?}"),
        }
    }

    #[test]
    fn lists_are_read_in_their_order_with_repetitions() {
        check("a", Ok(&["a"]));
        check(" node1 node2\nnode1 ", Ok(&["node1", "node2", "node1"]));
        check("node1,node2", Ok(&["node1", "node2"]));
        check("ccn-%d:64-66", Ok(&["ccn-64", "ccn-65", "ccn-66"]));
        check("n%d:1-2,5,x", Ok(&["n1", "n2", "n5", "x"]));
        check("n%d:1-2 5", Ok(&["n1", "n2", "5"]));
        check("n%d.site:08-10", Ok(&["n08.site", "n09.site", "n10.site"]));
        check("a%d:1,b%d:2-3", Ok(&["a1", "b2", "b3"]));
    }

    #[test]
    fn a_malformed_list_is_refused_with_the_reason() {
        check("", Err("without a host"));
        check(" , ", Err("without a host"));
        check("n%d", Err("without ':'"));
        check("n%d:", Err("neither a number"));
        check("n%d:x", Err("neither a number"));
        check("n%d:3-1", Err("ends before"));
        check("n%d:1-", Err("neither a number"));
        check("n%d:0-999999999999", Err("more than 1000000 hosts"));
        check("n%d:0-999999 m", Err("more than 1000000 hosts"));
        check("n%d:9999999999999999999", Err("neither a number"));
        check("*,", Err("'*' is not allowed"));
        check("n%d%:1", Err("'%' is not allowed"));
        check(&"x".repeat(256), Err("more than 255 bytes"));
    }
}
