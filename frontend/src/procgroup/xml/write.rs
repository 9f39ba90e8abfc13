//! Answers as documents, in the draft's form.

use std::io::{self, Write};

use gantry_types::error::Kind;
use quick_xml::escape::escape;
use quick_xml::events::attributes::Attribute;
use quick_xml::events::{BytesEnd, BytesStart, Event};
use quick_xml::name::QName;
use quick_xml::writer::Writer;

use super::tree::is_foreign;
use crate::procgroup::request::{Answer, Told};

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
