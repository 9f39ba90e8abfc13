//! Queries as a line of text: `exec=b.out host=ccn-%d:20-21 or submitter=lusk`.
//!
//! Consecutive terms `NAME=VALUE` make a pattern; `or` begins the next one. Terms of processes are conditions on
//! *one* process: `exec=b.out host=n1` matches a group that has b.out on n1. `and` begins the conditions on another
//! process: `exec=a and exec=b` matches a group that has both. Values with blanks are quoted. `NAME=*` restricts
//! nothing and asks for a column. A group's state is `state`, a process's `pstate`.

use super::attribute::{GroupAttribute, ProcessAttribute};
use super::query::{MAX_PARTS, Pattern, Query, Restriction, Term, shorten};

/// The name of a process's state. `state` is the group's.
const PROCESS_STATE: &str = "pstate";

/// All names that a term can have.
pub fn names() -> impl Iterator<Item = &'static str> {
    let group = GroupAttribute::ALL.into_iter().map(GroupAttribute::name);
    group.chain(ProcessAttribute::ALL.into_iter().map(process_name))
}

fn process_name(attribute: ProcessAttribute) -> &'static str {
    match attribute {
        ProcessAttribute::State => PROCESS_STATE,
        other => other.name(),
    }
}

/// Whether a text is a query and not an app's id: only queries have terms.
#[must_use]
pub fn is_query(text: &str) -> bool {
    text.contains('=')
}

/// Reads a query.
///
/// # Errors
/// What is wrong with it.
pub fn parse_query(text: &str) -> Result<Query, String> {
    let mut query = Query::default();
    let mut reading = Reading::default();
    for word in split_words(text)? {
        match word.as_str() {
            "or" => query.patterns.push(reading.finish_pattern()?),
            "and" => reading.finish_restriction()?,
            word => reading.term(word)?,
        }
        if query.patterns.len() + reading.pattern.restrictions.len() >= MAX_PARTS {
            return Err(format!("more than {MAX_PARTS} patterns"));
        }
    }
    query.patterns.push(reading.finish_pattern()?);
    Ok(query)
}

/// The parsed part of a pattern.
#[derive(Default)]
struct Reading {
    pattern: Pattern,
    restriction: Restriction,
    /// Whether there is a term since the last `or` or `and`.
    begun: bool,
}

impl Reading {
    fn term(&mut self, word: &str) -> Result<(), String> {
        let (name, value) = word
            .split_once('=')
            .ok_or_else(|| format!("'{}' is neither NAME=VALUE nor 'or' nor 'and'", shorten(word)))?;
        let within = |error: String| format!("{}: {error}", shorten(name));
        let twice = || format!("'{name}' is given twice; 'and' begins the conditions for another process");
        if let Some(attribute) = GroupAttribute::of_name(name) {
            if self.pattern.group.iter().any(|(known, _)| *known == attribute) {
                return Err(twice());
            }
            self.pattern.group.push((attribute, Term::of_group(attribute, value).map_err(within)?));
        } else if let Some(attribute) =
            ProcessAttribute::ALL.into_iter().find(|attribute| process_name(*attribute) == name)
        {
            if self.restriction.iter().any(|(known, _)| *known == attribute) {
                return Err(twice());
            }
            self.restriction.push((attribute, Term::of_process(attribute, value).map_err(within)?));
        } else {
            let known: Vec<&str> = names().collect();
            return Err(format!("'{}' is not one of {}", shorten(name), known.join(", ")));
        }
        self.begun = true;
        Ok(())
    }

    fn finish_restriction(&mut self) -> Result<(), String> {
        if !std::mem::take(&mut self.begun) {
            return Err("an 'or' or 'and' has no condition after it".to_owned());
        }
        if !self.restriction.is_empty() {
            self.pattern.restrictions.push(std::mem::take(&mut self.restriction));
        }
        Ok(())
    }

    fn finish_pattern(&mut self) -> Result<Pattern, String> {
        self.finish_restriction()?;
        Ok(std::mem::take(&mut self.pattern))
    }
}

/// Words between blanks; `'...'` and `"..."` keep blanks.
fn split_words(text: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for c in text.chars() {
        match quote {
            Some(closing) if c == closing => quote = None,
            Some(_) => word.get_or_insert_default().push(c),
            None if c == '\'' || c == '"' => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            None if c.is_whitespace() => words.extend(word.take()),
            None => word.get_or_insert_default().push(c),
        }
    }
    if let Some(quote) = quote {
        return Err(format!("the quote {quote} is not closed"));
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::procgroup::{Request, xml};

    /// A query means the same as the patterns of a message.
    #[track_caller]
    fn check(text: &str, expected: &str) {
        let message = format!("<get-process-group>{expected}</get-process-group>");
        let query = parse_query(text).map(Request::Get);
        assert_eq!(query.as_ref(), Ok(&xml::parse_request(message.as_bytes()).unwrap()), "{text}");
    }

    #[track_caller]
    fn check_refused(text: &str, part: &str) {
        let found = parse_query(text).unwrap_err();
        assert!(found.contains(part), "{text}: {found}");
    }

    #[test]
    fn queries_as_people_type_them() {
        let of_group = |group: &str| format!("<process-group {group}/>");
        let mixed = |group: &str, processes: &[&str]| {
            let one = |process: &&str| format!("<process-group-restriction {process}/>");
            let inside: String = processes.iter().map(one).collect();
            format!("<process-group {group}>{inside}</process-group>")
        };
        check("exec=b.out host=ccn-%d:20-21", &mixed("", &["exec='b.out' host='ccn-20 ccn-21'"]));
        check("host=n1,n2 pgid=3,1-2", &mixed("pgid='1-3'", &["host='n1 n2'"]));
        let either = of_group("submitter='lusk' pgid='*'") + &of_group("submitter='desai'");
        check("submitter=lusk pgid=* or submitter=desai", &either);
        check("exec=a and exec=b state=held", &mixed("state='held'", &["exec='a'", "exec='b'"]));
        check("pstate=held rank=0-3 pid=*", &mixed("", &["state='held' rank='0,1-3' pid='*'"]));
        check("exec='a b' submitter=\"x\"", &mixed("submitter='x'", &["exec='a b'"]));
        check("host='n1 n9'", &mixed("", &["host='n1 n9'"]));
        check("submitter=\"o'h\"'\"'", &of_group("submitter='o&apos;h&quot;'"));
    }

    #[test]
    fn a_malformed_query_is_refused_with_the_reason() {
        check_refused("", "has no condition after it");
        check_refused("or pgid=1", "has no condition after it");
        check_refused("pgid=1 or", "has no condition after it");
        check_refused("pgid=1 and", "has no condition after it");
        check_refused("pgid", "'pgid' is neither NAME=VALUE");
        check_refused("color=red", "'color' is not one of submitter, pgid");
        check_refused("pgid=x", "pgid: 'x' is not a list of numbers");
        check_refused("pgid=", "pgid: '' is not a list of numbers");
        check_refused("pgid='1, 2'", "not a list of numbers");
        check_refused("state=exited", "'exited' is not one of starting, held");
        check_refused("exec=", "an empty value");
        check_refused("host=n%d", "without ':'");
        check_refused("exec=a exec=b", "'exec' is given twice");
        check_refused("pgid=1 pgid=2", "'pgid' is given twice");
        check_refused("exec='a", "the quote ' is not closed");
        check_refused(&"pgid=1 or ".repeat(1_001), "more than 1000 patterns");
    }
}
