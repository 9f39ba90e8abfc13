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

/// Writes a query as [`parse_query`] reads it.
#[must_use]
pub fn write_query(query: &Query) -> String {
    let patterns = query.patterns.iter().map(|pattern| {
        let mut parts: Vec<String> = Vec::new();
        let terms = |terms: &mut dyn Iterator<Item = (&'static str, &Term)>| {
            let terms = terms.map(|(name, term)| format!("{name}={}", quote(&term.to_string())));
            terms.collect::<Vec<_>>().join(" ")
        };
        let group = terms(&mut pattern.group.iter().map(|(attribute, term)| (attribute.name(), term)));
        parts.extend(Some(group).filter(|group| !group.is_empty()));
        for restriction in &pattern.restrictions {
            let mut named = restriction.iter().map(|(attribute, term)| (process_name(*attribute), term));
            parts.push(terms(&mut named));
        }
        // Conditions on the group and on one process need no word between them.
        match (pattern.group.is_empty(), parts.len()) {
            (false, 2..) => format!("{} {}", parts[0], parts[1..].join(" and ")),
            _ => parts.join(" and "),
        }
    });
    patterns.collect::<Vec<_>>().join(" or ")
}

/// Quotes a value if necessary. A value with one kind of quote is enclosed in the other kind.
fn quote(value: &str) -> String {
    match value.contains(|c: char| c.is_whitespace() || matches!(c, '\'' | '"')) {
        true => format!("\"{}\"", value.replace('"', "\"'\"'\"")),
        false => value.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Result<&str, &str>) {
        match (parse_query(text), expected) {
            (Ok(query), Ok(expected)) => {
                assert_eq!(write_query(&query), expected, "{text}");
                assert_eq!(parse_query(expected), Ok(query), "{text}");
            }
            (Err(found), Err(expected)) => assert!(found.contains(expected), "{text}: {found}"),
            (found, expected) => panic!("{text}: {found:?}, expected {expected:?}"),
        }
    }

    #[test]
    fn queries_as_people_type_them() {
        check("exec=b.out host=ccn-%d:20-21", Ok("exec=b.out host=ccn-%d:20-21"));
        check("host=n1,n2 pgid=3,1-2", Ok("pgid=1-3 host=n%d:1-2"));
        check("submitter=lusk pgid=* or submitter=desai", Ok("submitter=lusk pgid=* or submitter=desai"));
        check("exec=a and exec=b state=held", Ok("state=held exec=a and exec=b"));
        check("pstate=held rank=0-3 pid=*", Ok("pstate=held rank=0-3 pid=*"));
        check("exec='a b' submitter=\"x\"", Ok("submitter=x exec=\"a b\""));
        check("host='n1 n9'", Ok("host=\"n1 n9\""));
        check("submitter=\"o'h\"'\"'", Ok("submitter=\"o'h\"'\"'\"\""));
    }

    #[test]
    fn a_malformed_query_is_refused_with_the_reason() {
        check("", Err("has no condition after it"));
        check("or pgid=1", Err("has no condition after it"));
        check("pgid=1 or", Err("has no condition after it"));
        check("pgid=1 and", Err("has no condition after it"));
        check("pgid", Err("'pgid' is neither NAME=VALUE"));
        check("color=red", Err("'color' is not one of submitter, pgid"));
        check("pgid=x", Err("pgid: 'x' is not a list of numbers"));
        check("pgid=", Err("pgid: '' is not a list of numbers"));
        check("pgid='1, 2'", Err("not a list of numbers"));
        check("state=exited", Err("'exited' is not one of starting, held"));
        check("exec=", Err("an empty value"));
        check("host=n%d", Err("without ':'"));
        check("exec=a exec=b", Err("'exec' is given twice"));
        check("pgid=1 pgid=2", Err("'pgid' is given twice"));
        check("exec='a", Err("the quote ' is not closed"));
        check(&"pgid=1 or ".repeat(1_001), Err("more than 1000 patterns"));
    }
}
