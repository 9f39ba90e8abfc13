//! Requests and answers as documents, in the draft's form.

use std::io::{self, Write};

use gantry_types::error::Kind;
use quick_xml::escape::escape;
use quick_xml::events::attributes::Attribute;
use quick_xml::events::{BytesEnd, BytesStart, BytesText, Event};
use quick_xml::name::QName;
use quick_xml::writer::Writer;

use super::tree::is_foreign;
use crate::procgroup::attribute::{GroupAttribute, ProcessAttribute};
use crate::procgroup::hosts::fold_hosts;
use crate::procgroup::query::{Pattern, Query};
use crate::procgroup::request::{Answer, CreateGroup, ProcessSpec, Request, Told};

/// The indentation of an element's content.
const INDENT: usize = 2;

/// Writes an answer and a line's end.
///
/// # Errors
/// The writer's.
pub fn write_answer(to: &mut impl Write, answer: &Answer) -> io::Result<()> {
    let mut writer = Writer::new_with_indent(to, b' ', INDENT);
    match answer {
        Answer::Created { pgid } => empty(&mut writer, "process-group", [("pgid", pgid.to_string())])?,
        Answer::Groups(told) => write_told(&mut writer, told)?,
        Answer::Refused { line, failure } => {
            let line = line.map(|line| ("line", line.to_string()));
            let hint = failure.hint().map(|hint| ("hint", hint.to_owned()));
            let rest = [("kind", kind(failure.kind())), ("reason", failure.message().to_owned())];
            empty(&mut writer, "error", line.into_iter().chain(rest).chain(hint))?;
        }
    }
    writer.get_mut().write_all(b"\n")
}

/// The kind of a failure, as it is named everywhere.
fn kind(kind: Kind) -> String {
    serde_json::to_value(kind).ok().and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default()
}

fn write_told<W: Write>(writer: &mut Writer<W>, told: &Told) -> io::Result<()> {
    if told.found.is_empty() && told.troubles.is_empty() && told.silent.is_empty() {
        return empty(writer, "process-groups", []);
    }
    writer.write_event(Event::Start(BytesStart::new("process-groups")))?;
    for found in &told.found {
        let attributes = found
            .columns
            .of_group()
            .filter_map(|attribute| Some((attribute.name(), told.groups.attribute(found.at, attribute)?)));
        if !found.columns.lists_processes() {
            empty(writer, "process-group", attributes)?;
            continue;
        }
        let mut start = BytesStart::new("process-group");
        attributes.for_each(|(name, value)| push(&mut start, name, &value));
        writer.write_event(Event::Start(start))?;
        for process in told.groups.processes(found.at) {
            let mut element = BytesStart::new("process");
            for attribute in found.columns.of_process() {
                if let Some(value) = process.attribute(attribute) {
                    push(&mut element, attribute.name(), &value);
                }
            }
            writer.write_event(Event::Empty(element))?;
        }
        writer.write_event(Event::End(BytesEnd::new("process-group")))?;
    }
    for (pgid, failure) in &told.troubles {
        let attributes = [
            ("pgid", pgid.to_string()),
            ("kind", kind(failure.kind())),
            ("reason", failure.message().to_owned()),
        ];
        empty(
            writer,
            "error",
            attributes.into_iter().chain(failure.hint().map(|hint| ("hint", hint.to_owned()))),
        )?;
    }
    for app in &told.silent {
        let reason = format!("the frontend of app {app} gives no answer");
        empty(
            writer,
            "error",
            [("app", app.to_string()), ("kind", kind(Kind::TimedOut)), ("reason", reason)],
        )?;
    }
    writer.write_event(Event::End(BytesEnd::new("process-groups")))
}

/// Adds an attribute. Whitespace other than a space is written as a character reference: a reader would turn it into
/// spaces. Characters that XML does not have, as a launcher's words may, are replaced: no reader takes them.
fn push(element: &mut BytesStart<'_>, name: &str, value: &str) {
    let mut escaped = escape(value);
    if escaped.contains(is_foreign) {
        escaped = escaped.replace(is_foreign, "\u{fffd}").into();
    }
    if escaped.contains(['\t', '\n', '\r']) {
        escaped = escaped.replace('\t', "&#9;").replace('\n', "&#10;").replace('\r', "&#13;").into();
    }
    element.push_attribute(Attribute { key: QName(name), value: escaped });
}

fn empty<W: Write>(
    writer: &mut Writer<W>,
    name: &str,
    attributes: impl IntoIterator<Item = (&'static str, String)>,
) -> io::Result<()> {
    let mut element = BytesStart::new(name);
    for (name, value) in attributes {
        push(&mut element, name, &value);
    }
    writer.write_event(Event::Empty(element))
}

/// Writes a request in the form that [`parse_request`](super::parse_request) reads, and a newline.
///
/// # Errors
/// The writer's.
pub fn write_request(to: &mut impl Write, request: &Request) -> io::Result<()> {
    let mut writer = Writer::new_with_indent(to, b' ', INDENT);
    let none = Vec::new();
    match request {
        Request::Create(create) => write_create(&mut writer, create)?,
        Request::Get(query) if query.patterns.iter().any(|pattern| pattern.everything) => {
            write_query(&mut writer, "get-process-group-info", none, query)?;
        }
        Request::Get(query) => write_query(&mut writer, "get-process-group", none, query)?,
        Request::Signal { query, signal } => {
            let signal = vec![("signal", signal.to_string())];
            write_query(&mut writer, "signal-process-group", signal, query)?;
        }
        Request::Kill(query) => write_query(&mut writer, "kill-process-group", none, query)?,
        Request::Forget(query) => write_query(&mut writer, "del-process-group-info", none, query)?,
        Request::Wait { query, limit } => {
            let limit = limit.map(|limit| ("timeout", limit.as_secs().to_string()));
            write_query(&mut writer, "wait-process-group", limit.into_iter().collect(), query)?;
        }
        Request::Checkpoint(query) => write_query(&mut writer, "checkpoint-process-group", none, query)?,
    }
    writer.get_mut().write_all(b"\n")
}

fn start<W: Write>(
    writer: &mut Writer<W>,
    name: &str,
    attributes: Vec<(&'static str, String)>,
) -> io::Result<()> {
    let mut element = BytesStart::new(name);
    for (name, value) in &attributes {
        push(&mut element, name, value);
    }
    writer.write_event(Event::Start(element))
}

fn write_query<W: Write>(
    writer: &mut Writer<W>,
    name: &str,
    attributes: Vec<(&'static str, String)>,
    query: &Query,
) -> io::Result<()> {
    start(writer, name, attributes)?;
    for pattern in &query.patterns {
        write_pattern(writer, pattern)?;
    }
    writer.write_event(Event::End(BytesEnd::new(name)))
}

fn write_pattern<W: Write>(writer: &mut Writer<W>, pattern: &Pattern) -> io::Result<()> {
    let of_group = |(attribute, term): &(GroupAttribute, _)| (attribute.name(), format!("{term}"));
    start(writer, "process-group", pattern.group.iter().map(of_group).collect())?;
    for restriction in &pattern.restrictions {
        let of_process = |(attribute, term): &(ProcessAttribute, _)| (attribute.name(), format!("{term}"));
        empty(writer, "process-group-restriction", restriction.iter().map(of_process))?;
    }
    writer.write_event(Event::End(BytesEnd::new("process-group")))
}

fn write_create<W: Write>(writer: &mut Writer<W>, create: &CreateGroup) -> io::Result<()> {
    let attributes = [
        create.submitter.clone().map(|submitter| ("submitter", submitter)),
        create.totalprocs.map(|count| ("totalprocs", count.to_string())),
        create.wlm.clone().map(|wlm| ("wlm", wlm)),
        Some(("output", create.output.clone().unwrap_or_else(|| "discard".to_owned()))),
    ];
    start(writer, "create-process-group", attributes.into_iter().flatten().collect())?;
    for spec in &create.specs {
        write_spec(writer, spec)?;
    }
    if !create.hosts.is_empty() {
        start(writer, "host-spec", Vec::new())?;
        writer.write_event(Event::Text(BytesText::new(&fold_hosts(&create.hosts))))?;
        writer.write_event(Event::End(BytesEnd::new("host-spec")))?;
    }
    writer.write_event(Event::End(BytesEnd::new("create-process-group")))
}

fn write_spec<W: Write>(writer: &mut Writer<W>, spec: &ProcessSpec) -> io::Result<()> {
    let attributes = [
        Some(("exec", spec.exec.clone())),
        spec.path.clone().map(|path| ("path", path)),
        spec.cwd.clone().map(|cwd| ("cwd", cwd)),
        spec.user.clone().map(|user| ("user", user)),
        spec.range.as_ref().map(|range| ("range", range.to_string())),
        spec.co_process.clone().map(|daemon| ("co-process", daemon)),
    ];
    start(writer, "process-spec", attributes.into_iter().flatten().collect())?;
    for (index, value) in (1..).zip(&spec.args) {
        let index: u32 = index;
        empty(writer, "arg", [("idx", index.to_string()), ("val", value.clone())])?;
    }
    for (name, value) in &spec.env {
        empty(writer, "env", [("name", name.clone()), ("val", value.clone())])?;
    }
    writer.write_event(Event::End(BytesEnd::new("process-spec")))
}

#[cfg(test)]
mod tests {
    use gantry_types::error::Failure;

    use super::*;
    use crate::procgroup::xml::parse_document;

    #[test]
    fn an_answer_with_characters_that_xml_lacks_is_readable() {
        let failure = Failure::new(Kind::LauncherFailed, "\u{1b}[31mno\0\tnodes\u{ffff}");
        let mut text = Vec::new();
        write_answer(&mut text, &Answer::Refused { line: None, failure }).unwrap();
        assert!(!text.contains(&0), "a message ends with a zero byte");
        let answer = parse_document(&text).unwrap();
        assert_eq!(answer.attribute("reason"), Some("\u{fffd}[31mno\u{fffd}\tnodes\u{fffd}"));
    }
}
