//! Converts a document to a request.

use std::time::Duration;

use super::tree::{Element, XmlError, parse_document};
use crate::procgroup::attribute::{GroupAttribute, ProcessAttribute};
use gantry_types::host_name::check_host_name;

use crate::procgroup::hosts::parse_hosts;
use crate::procgroup::query::{MAX_PARTS, Pattern, Query, Restriction, Term, parse_numbers, shorten};
use crate::procgroup::request::{CreateGroup, ProcessSpec, Request};

/// The value of `output` that discards it.
const DISCARD: &str = "discard";

/// The longest timeout of a wait, in seconds.
const MAX_SECONDS: u64 = 10_000_000;

/// Parses a message.
///
/// # Errors
/// The error in the message, and its line.
pub fn parse_request(bytes: &[u8]) -> Result<Request, XmlError> {
    read_request(&parse_document(bytes)?)
}

/// Interprets a document as a message.
///
/// # Errors
/// As [`parse_request`].
pub fn read_request(root: &Element) -> Result<Request, XmlError> {
    match root.name.as_str() {
        "create-process-group" => read_create(root).map(Request::Create),
        "get-process-group" => read_query(root, &[]).map(Request::Get),
        "get-process-group-info" => {
            let mut query = read_query(root, &[])?;
            // The published form asks for no attributes, and gets all of them.
            query.patterns.iter_mut().for_each(|pattern| pattern.everything = !pattern.asks());
            Ok(Request::Get(query))
        }
        "signal-process-group" => {
            let signal = root.attribute("signal").ok_or_else(|| root.error("no signal is named"))?;
            let signal = signal.parse().map_err(|error| root.error(format!("signal: {error}")))?;
            Ok(Request::Signal { query: read_query(root, &["signal"])?, signal })
        }
        "kill-process-group" => read_query(root, &[]).map(Request::Kill),
        "del-process-group" | "del-process-group-info" => read_query(root, &[]).map(Request::Forget),
        "wait-process-group" => {
            let limit = root.attribute("timeout").map(|text| read_seconds(root, text)).transpose()?;
            Ok(Request::Wait { query: read_query(root, &["timeout"])?, limit })
        }
        "checkpoint-process-group" => read_query(root, &[]).map(Request::Checkpoint),
        other => Err(root.error(format!("<{}> is not a message to a process manager", shorten(other)))),
    }
}

fn read_seconds(element: &Element, text: &str) -> Result<Duration, XmlError> {
    let seconds = text.parse::<u64>().ok().filter(|seconds| (1..=MAX_SECONDS).contains(seconds));
    let seconds = seconds.ok_or_else(|| {
        element
            .error(format!("timeout: '{}' is not a number of seconds from 1 to {MAX_SECONDS}", shorten(text)))
    })?;
    Ok(Duration::from_secs(seconds))
}

/// The patterns of a message. Without any, the message's own attributes are one pattern, except those in `own`.
fn read_query(root: &Element, own: &[&str]) -> Result<Query, XmlError> {
    check_no_text(root)?;
    let given: Vec<_> =
        root.attributes.iter().filter(|(name, _)| !own.contains(&name.as_str())).cloned().collect();
    let mut query = Query::default();
    match (given.is_empty(), root.children.is_empty()) {
        (true, true) => return Err(root.error("no process group is given: there is no <process-group>")),
        (false, false) => {
            let name = given.first().map_or("", |(name, _)| name.as_str());
            return Err(root.error(format!("'{}' is not for <{}>", shorten(name), root.name)));
        }
        (false, true) => {
            let pattern = Element { attributes: given, ..root.clone() };
            query.patterns.push(read_pattern(&pattern)?);
        }
        (true, false) => {}
    }
    let mut parts = 0;
    for child in &root.children {
        if child.name != "process-group" {
            return Err(unexpected(child, root));
        }
        parts += 1 + child.children.len();
        if parts > MAX_PARTS {
            return Err(child.error(format!("more than {MAX_PARTS} patterns and restrictions")));
        }
        query.patterns.push(read_pattern(child)?);
    }
    Ok(query)
}

fn read_pattern(element: &Element) -> Result<Pattern, XmlError> {
    check_no_text(element)?;
    let mut pattern = Pattern::default();
    for (name, value) in &element.attributes {
        let attribute = GroupAttribute::of_name(name).ok_or_else(|| unknown(name, element))?;
        let term = Term::of_group(attribute, value);
        pattern.group.push((attribute, term.map_err(|error| element.error(format!("{name}: {error}")))?));
    }
    for child in &element.children {
        if child.name != "process-group-restriction" {
            return Err(unexpected(child, element));
        }
        pattern.restrictions.push(read_restriction(child)?);
    }
    Ok(pattern)
}

fn read_restriction(element: &Element) -> Result<Restriction, XmlError> {
    check_empty(element)?;
    let terms = element.attributes.iter().map(|(name, value)| {
        let attribute = ProcessAttribute::of_name(name).ok_or_else(|| unknown(name, element))?;
        let term = Term::of_process(attribute, value);
        Ok((attribute, term.map_err(|error| element.error(format!("{name}: {error}")))?))
    });
    terms.collect()
}

fn read_create(root: &Element) -> Result<CreateGroup, XmlError> {
    check_no_text(root)?;
    let mut create = CreateGroup::default();
    for (name, value) in &root.attributes {
        match name.as_str() {
            "submitter" => create.submitter = Some(plain(root, name, value)?),
            "totalprocs" => create.totalprocs = Some(read_count(root, name, value)?),
            "wlm" => create.wlm = Some(plain(root, name, value)?),
            "output" if value == DISCARD => create.output = None,
            "output" if value.starts_with('/') => create.output = Some(value.clone()),
            "output" => {
                let reason =
                    format!("output: '{}' is neither '{DISCARD}' nor an absolute path", shorten(value));
                return Err(root.error(reason));
            }
            // It is reported in any case.
            "pgid" if value == "*" => {}
            _ => return Err(unknown(name, root)),
        }
    }
    for child in &root.children {
        match child.name.as_str() {
            "process-spec" => create.specs.push(read_spec(child)?),
            "host-spec" | "hostspec" if create.hosts.is_empty() => create.hosts = read_hosts(child)?,
            "host-spec" | "hostspec" => return Err(child.error("hosts are named twice")),
            _ => return Err(unexpected(child, root)),
        }
    }
    match create.specs.is_empty() {
        true => Err(root.error("nothing to start: there is no <process-spec>")),
        false => Ok(create),
    }
}

/// Parses `<host-spec> node1 node2 </host-spec>` of the published form, and `<hostspec name='ccn-%d:64-73'/>` of the
/// draft.
fn read_hosts(element: &Element) -> Result<Vec<String>, XmlError> {
    if let Some(child) = element.children.first() {
        return Err(unexpected(child, element));
    }
    if let Some((name, _)) = element.attributes.iter().find(|(name, _)| name != "name") {
        return Err(unknown(name, element));
    }
    let text = match (element.attribute("name"), element.text.trim()) {
        (Some(name), "") => name,
        (None, text) => text,
        (Some(_), _) => return Err(element.error("hosts are named twice")),
    };
    let hosts = parse_hosts(text).map_err(|error| element.error(error))?;
    // A WLM passes host names to its commands.
    hosts
        .iter()
        .try_for_each(|host| check_host_name(host))
        .map_err(|error| element.error(error.to_string()))?;
    Ok(hosts)
}

fn read_spec(element: &Element) -> Result<ProcessSpec, XmlError> {
    check_no_text(element)?;
    let mut spec = ProcessSpec::default();
    for (name, value) in &element.attributes {
        let text = || plain(element, name, value);
        match name.as_str() {
            "exec" => spec.exec = text()?,
            "path" => spec.path = Some(text()?),
            "cwd" => spec.cwd = Some(text()?),
            "user" => spec.user = Some(text()?),
            "co-process" => spec.co_process = Some(text()?),
            "range" => {
                let range = parse_numbers(value).map_err(|e| element.error(format!("range: {e}")))?;
                if range.first().is_some_and(|first| first.0 == 0) {
                    return Err(element.error("range: processes are counted from 1"));
                }
                spec.range = Some(range);
            }
            _ => return Err(unknown(name, element)),
        }
    }
    if spec.exec.is_empty() {
        return Err(element.error("a <process-spec> needs 'exec'"));
    }
    let mut args = Vec::new();
    for child in &element.children {
        check_empty(child)?;
        match child.name.as_str() {
            "arg" => {
                let index = required(child, &["idx"])?;
                let index = read_count(child, "idx", index)?;
                args.push((index, required(child, VALUES)?.to_owned(), child));
            }
            "env" => {
                let name = required(child, &["name"])?;
                if name.is_empty() || name.contains('=') {
                    return Err(child.error(format!("'{}' can be no variable's name", shorten(name))));
                }
                spec.env.push((name.to_owned(), required(child, VALUES)?.to_owned()));
            }
            _ => return Err(unexpected(child, element)),
        }
        let known = ["idx", "name", "val", "value"];
        if let Some((name, _)) = child.attributes.iter().find(|(name, _)| !known.contains(&name.as_str())) {
            return Err(unknown(name, child));
        }
    }
    args.sort_by_key(|(index, ..)| *index);
    for ((index, value, child), expected) in args.into_iter().zip(1..) {
        if index != expected {
            return Err(child.error(format!(
                "idx: found argument {index} where argument {expected} is due; one is missing or given twice"
            )));
        }
        spec.args.push(value);
    }
    Ok(spec)
}

/// The draft's name and the published one.
const VALUES: &[&str] = &["val", "value"];

/// The value of a required attribute, under one of its names.
fn required<'a>(element: &'a Element, names: &[&str]) -> Result<&'a str, XmlError> {
    let value = names.iter().find_map(|name| element.attribute(name));
    value.ok_or_else(|| {
        let name = names.first().copied().unwrap_or_default();
        element.error(format!("<{}> needs '{name}'", element.name))
    })
}

fn plain(element: &Element, name: &str, value: &str) -> Result<String, XmlError> {
    match value.is_empty() {
        true => Err(element.error(format!("{name}: an empty value"))),
        false => Ok(value.to_owned()),
    }
}

fn read_count(element: &Element, name: &str, value: &str) -> Result<u32, XmlError> {
    let count = value.parse::<u32>().ok().filter(|count| *count > 0);
    count.ok_or_else(|| element.error(format!("{name}: '{}' is not a number above 0", shorten(value))))
}

fn unknown(name: &str, element: &Element) -> XmlError {
    element.error(format!("'{}' is not an attribute of <{}>", shorten(name), shorten(&element.name)))
}

fn unexpected(child: &Element, parent: &Element) -> XmlError {
    child.error(format!("<{}> is not for <{}>", shorten(&child.name), shorten(&parent.name)))
}

fn check_no_text(element: &Element) -> Result<(), XmlError> {
    match element.text.trim() {
        "" => Ok(()),
        text => Err(element.error(format!("the text '{}' is not for <{}>", shorten(text), element.name))),
    }
}

fn check_empty(element: &Element) -> Result<(), XmlError> {
    check_no_text(element)?;
    element.children.first().map_or(Ok(()), |child| Err(unexpected(child, element)))
}

#[cfg(test)]
mod tests;
