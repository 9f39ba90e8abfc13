//! A document as a tree, with limits for size and depth.

use quick_xml::errors::{Error, IllFormedError};
use quick_xml::events::{BytesStart, Event};
use quick_xml::reader::Reader;

/// The most bytes of a message: a million processes, each with its own host, fit.
pub const MAX_BYTES: usize = 16 << 20;

/// The deepest nesting of elements. Messages need four levels.
const MAX_DEPTH: usize = 8;

/// The most attributes of an element. Messages need eight.
const MAX_ATTRIBUTES: usize = 32;

/// The most elements of a message.
const MAX_ELEMENTS: usize = 200_000;

/// The reason why a document is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct XmlError {
    /// The line, from 1.
    pub line: u64,
    /// The error.
    pub reason: String,
}

/// An element of a document.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Element {
    /// Its name.
    pub name: String,
    /// Its attributes, in their order.
    pub attributes: Vec<(String, String)>,
    /// Its own text, without the text of its children.
    pub text: String,
    /// Its child elements.
    pub children: Vec<Element>,
    /// The line where it begins, from 1.
    pub line: u64,
}

impl Element {
    /// The value of an attribute.
    #[must_use]
    pub fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The child elements with that name.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Element> {
        self.children.iter().filter(move |child| child.name == name)
    }

    /// An error about this element.
    pub(super) fn error(&self, reason: impl Into<String>) -> XmlError {
        XmlError { line: self.line, reason: reason.into() }
    }
}

/// Parses a document: one element, with an optional declaration before it.
///
/// # Errors
/// The error and its line: the document is malformed, not UTF-8, has a DTD, an entity or a processing instruction, or
/// exceeds a limit.
pub fn parse_document(bytes: &[u8]) -> Result<Element, XmlError> {
    let at_start = |reason: String| XmlError { line: 1, reason };
    if bytes.len() > MAX_BYTES {
        return Err(at_start(format!("the message has more than {MAX_BYTES} bytes")));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| XmlError {
        line: count_lines(&bytes[..error.valid_up_to()]),
        reason: "the message is not UTF-8".to_owned(),
    })?;
    Parsing::new(text).run()
}

fn count_lines(before: &[u8]) -> u64 {
    1 + before.iter().filter(|byte| **byte == b'\n').count() as u64
}

struct Parsing<'a> {
    text: &'a str,
    reader: Reader<&'a [u8]>,
    /// Open elements, outermost first.
    open: Vec<Element>,
    root: Option<Element>,
    elements: usize,
    /// The position up to which lines are counted, and their number: so all counting is one pass.
    counted: (usize, u64),
}

impl<'a> Parsing<'a> {
    fn new(text: &'a str) -> Self {
        let mut reader = Reader::from_str(text);
        reader.config_mut().enable_all_checks(true);
        Self { text, reader, open: Vec::new(), root: None, elements: 0, counted: (0, 1) }
    }

    fn run(mut self) -> Result<Element, XmlError> {
        loop {
            let line = self.line_at(self.reader.buffer_position());
            let event = match self.reader.read_event() {
                Ok(event) => event,
                Err(error) => {
                    let line = self.line_at(self.reader.error_position());
                    return Err(XmlError { line, reason: describe(&error) });
                }
            };
            let refuse = |reason: &str| Err(XmlError { line, reason: reason.to_owned() });
            match event {
                Event::Start(start) => {
                    let element = self.begin(&start, line)?;
                    self.open.push(element);
                }
                Event::Empty(start) => {
                    let element = self.begin(&start, line)?;
                    self.end(element);
                }
                Event::End(_) => {
                    // The reader guarantees that the end belongs to the innermost element.
                    let Some(element) = self.open.pop() else { return refuse("an end without a beginning") };
                    self.end(element);
                }
                Event::Text(text) => self.add_text(&text, line)?,
                Event::CData(text) => self.add_text(&text, line)?,
                Event::GeneralRef(reference) => {
                    let resolved = match reference.resolve_char_ref() {
                        Ok(Some(char)) => Some(char),
                        Ok(None) => quick_xml::escape::resolve_xml_entity(&reference)
                            .and_then(|text| text.chars().next()),
                        Err(_) => None,
                    };
                    let Some(char) = resolved else {
                        return refuse(
                            "an entity: only &lt; &gt; &amp; &quot; &apos; and characters by number",
                        );
                    };
                    self.add_text(char.encode_utf8(&mut [0; 4]), line)?;
                }
                Event::DocType(_) => return refuse("a document type: messages have none"),
                Event::PI(_) => return refuse("a processing instruction: messages have none"),
                Event::Decl(declaration) => {
                    let known = declaration.encoding().is_none_or(|encoding| {
                        encoding.is_ok_and(|encoding| encoding.eq_ignore_ascii_case("utf-8"))
                    });
                    if !known {
                        return refuse("another encoding than UTF-8");
                    }
                    if self.elements > 0 {
                        return refuse("a declaration within the message");
                    }
                }
                Event::Comment(_) => {}
                Event::Eof => break,
            }
        }
        let line = self.line_at(self.text.len() as u64);
        if let Some(open) = self.open.last() {
            let reason =
                format!("the message ends within <{}>, which begins in line {}", open.name, open.line);
            return Err(XmlError { line, reason });
        }
        self.root.ok_or_else(|| XmlError { line, reason: "no message: there is no element".to_owned() })
    }

    /// Reads an element's name and attributes.
    fn begin(&mut self, start: &BytesStart<'_>, line: u64) -> Result<Element, XmlError> {
        let refuse = |reason: String| XmlError { line, reason };
        if self.root.is_some() {
            return Err(refuse("a second message behind the first".to_owned()));
        }
        if self.open.len() == MAX_DEPTH {
            return Err(refuse(format!("elements are more than {MAX_DEPTH} deep")));
        }
        self.elements += 1;
        if self.elements > MAX_ELEMENTS {
            return Err(refuse(format!("more than {MAX_ELEMENTS} elements")));
        }
        let mut element = Element { name: start.name().into_inner().to_owned(), line, ..Element::default() };
        // The reader compares each attribute with all before, so check the limit first.
        for attribute in start.attributes() {
            if element.attributes.len() == MAX_ATTRIBUTES {
                return Err(refuse(format!("<{}> has more than {MAX_ATTRIBUTES} attributes", element.name)));
            }
            let attribute = attribute.map_err(|error| refuse(error.to_string()))?;
            let value = attribute
                .normalized_value(quick_xml::XmlVersion::Implicit1_0)
                .map_err(|error| refuse(describe(&error)))?;
            check_characters(&value).map_err(refuse)?;
            element.attributes.push((attribute.key.into_inner().to_owned(), value.into_owned()));
        }
        Ok(element)
    }

    fn end(&mut self, element: Element) {
        match self.open.last_mut() {
            Some(parent) => parent.children.push(element),
            None => self.root = Some(element),
        }
    }

    fn add_text(&mut self, text: &str, line: u64) -> Result<(), XmlError> {
        check_characters(text).map_err(|reason| XmlError { line, reason })?;
        match self.open.last_mut() {
            Some(element) => element.text.push_str(text),
            None if text.trim().is_empty() => {}
            None => {
                return Err(XmlError { line, reason: "text outside of the message".to_owned() });
            }
        }
        Ok(())
    }

    /// The line of a position. Except in errors, positions must not decrease.
    fn line_at(&mut self, position: u64) -> u64 {
        let position = usize::try_from(position).unwrap_or(usize::MAX).min(self.text.len());
        let (counted, lines) = self.counted;
        let bytes = self.text.as_bytes();
        if position < counted {
            return count_lines(&bytes[..position]);
        }
        let lines = lines + count_lines(&bytes[counted..position]) - 1;
        self.counted = (position, lines);
        lines
    }
}

/// Whether XML does not have the character.
pub(super) fn is_foreign(c: char) -> bool {
    c < ' ' && !matches!(c, '\t' | '\n' | '\r') || matches!(c, '\u{fffe}' | '\u{ffff}')
}

/// Refuses characters that XML does not allow: an answer with them would be unreadable.
fn check_characters(text: &str) -> Result<(), String> {
    match text.chars().find(|c| is_foreign(*c)) {
        Some(c) => Err(format!("the character U+{:04X}, which XML does not have", u32::from(c))),
        None => Ok(()),
    }
}

/// The reader's error, cut to a limit: it may quote the input.
fn describe(error: &Error) -> String {
    let text = match error {
        Error::IllFormed(IllFormedError::MismatchedEndTag { expected, found }) => {
            format!("found </{}> where </{}> is due", shorten(found), shorten(expected))
        }
        other => other.to_string(),
    };
    text.chars().take(200).collect()
}

fn shorten(text: &str) -> String {
    text.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_read() {
        let root = parse_document(
            b"<?xml version='1.0' encoding='UTF-8'?>\n<!-- so -->\n<a x='1 &lt; 2' y=\"&#x41;\">t<b/>\n<![CDATA[<u>]]>&amp;</a>\n",
        )
        .unwrap();
        assert_eq!((root.name.as_str(), root.line), ("a", 3));
        assert_eq!(
            (root.attribute("x"), root.attribute("y"), root.attribute("z")),
            (Some("1 < 2"), Some("A"), None)
        );
        assert_eq!(root.text, "t\n<u>&");
        assert_eq!(root.all("b").map(|b| b.line).collect::<Vec<_>>(), [3]);
    }

    #[track_caller]
    fn check(text: impl AsRef<[u8]>, line: u64, part: &str) {
        let error = parse_document(text.as_ref()).unwrap_err();
        assert!(error.line == line && error.reason.contains(part), "{error}, expected {line} and '{part}'");
    }

    #[test]
    fn hostile_documents_are_refused_with_line_and_reason() {
        let bomb =
            "<!DOCTYPE lolz [\n<!ENTITY lol \"lol\">\n<!ENTITY lol2 \"&lol;&lol;\">\n]>\n<a>&lol2;</a>";
        check(bomb, 1, "a document type");
        check("<a>\n&lol;</a>", 2, "an entity");
        check("<a x='&lol;'/>", 1, "lol");
        check("<!DOCTYPE a SYSTEM 'file:///etc/passwd'><a/>", 1, "a document type");
        check("<?xml-stylesheet href='x'?><a/>", 1, "a processing instruction");
        check("<?xml version='1.0' encoding='latin1'?><a/>", 1, "another encoding");
        check("<a".to_owned() + &" x='1'".repeat(1_000_000) + "/>", 1, "duplicated");
        let many: String = (0..1_000_000).map(|n| format!(" x{n}='1'")).collect();
        check(format!("<a{many}/>"), 1, "more than 32 attributes");
        check("<a>\n".repeat(1_000_000), 9, "more than 8 deep");
        check("<a>".to_owned() + &"<b/>\n".repeat(1_000_000) + "</a>", 200_000, "more than 200000 elements");
        check(vec![b' '; MAX_BYTES + 1], 1, "more than 16777216 bytes");
        check(b"<a>\n\xff</a>", 2, "not UTF-8");
        check(b"<a x='\xc3'/>", 1, "not UTF-8");
        check("<a>\n<b>\n", 3, "ends within <b>, which begins in line 2");
        check("<a>\nfound </b>", 2, "</b> where </a> is due");
        check("<a", 1, "");
        check("<a x='1/>", 1, "");
        check("<a x=1/>", 1, "");
        check("<a/><b/>", 1, "a second message");
        check("<a/>\nx", 1, "text outside");
        check("", 1, "no message");
        check("x", 1, "text outside");
        check("<a x='\u{1}'/>", 1, "U+0001");
        check("<a>&#0;</a>", 1, "");
        check("</a>", 1, "");
        check("<a><!-- -- --></a>", 1, "");
    }
}
