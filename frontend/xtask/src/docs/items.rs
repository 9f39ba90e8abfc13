//! Parses documented enums and structs from source text, as far as this is needed to describe their JSON.

use crate::Result;

/// A field, or a variant of an enum.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Item {
    /// Its name in JSON.
    pub(super) name: String,
    /// Its documentation.
    pub(super) doc: String,
    /// The type of a field, or the text in the parentheses of a variant.
    pub(super) of: String,
    /// Whether its own fields replace it (`flatten`).
    pub(super) is_flat: bool,
    /// Whether it may be left out.
    pub(super) is_optional: bool,
    /// The fields of a variant.
    pub(super) fields: Vec<Item>,
    /// The text of an error.
    pub(super) message: String,
}

/// The variants of an enum.
///
/// # Errors
/// There is none of that name.
pub(super) fn variants(text: &str, name: &str) -> Result<Vec<Item>> {
    let mut found: Vec<Item> = Vec::new();
    let mut next = Next::default();
    for line in body(text, &format!("enum {name} {{"))? {
        let inner = line.starts_with("        ");
        let line = line.trim();
        if next.takes(line) {
            continue;
        }
        if inner {
            match (next.field(line), found.last_mut()) {
                (Some(field), Some(variant)) => variant.fields.push(field),
                // The type in a variant of several lines: the comments before it do not belong to the next variant.
                _ => next = Next::default(),
            }
        } else if let Some(variant) = next.variant(line) {
            found.push(variant);
        }
    }
    Ok(found)
}

/// The fields of a struct.
///
/// # Errors
/// There is none of that name.
pub(super) fn fields(text: &str, name: &str) -> Result<Vec<Item>> {
    let mut next = Next::default();
    let mut found = Vec::new();
    for line in body(text, &format!("struct {name} {{"))? {
        let line = line.trim();
        if !next.takes(line) {
            found.extend(next.field(line));
        }
    }
    Ok(found)
}

/// The documentation of a module, or of the item that begins so.
pub(super) fn module_doc(text: &str) -> String {
    let lines = text.lines().map_while(|line| line.strip_prefix("//!"));
    lines.map(|line| format!("{}\n", line.strip_prefix(' ').unwrap_or(line))).collect()
}

/// The lines between the braces of an item.
fn body<'a>(text: &'a str, head: &str) -> Result<Vec<&'a str>> {
    let mut lines = text.lines().skip_while(|line| !line.ends_with(head));
    lines.next().ok_or_else(|| format!("there is no '{head}'"))?;
    Ok(lines.take_while(|line| *line != "}").collect())
}

/// The comments and attributes before an item.
#[derive(Debug, Default)]
struct Next {
    doc: String,
    is_flat: bool,
    is_optional: bool,
    message: String,
}

impl Next {
    /// Takes a line of documentation or an attribute.
    fn takes(&mut self, line: &str) -> bool {
        if let Some(doc) = line.strip_prefix("///") {
            self.doc.push_str(doc);
        } else if line.starts_with("#[") {
            self.is_flat |= line.contains("flatten");
            self.is_optional |= line.contains("skip_serializing_if") || line.contains("default");
            if let Some(text) = line.strip_prefix("#[error(") {
                self.message = text.split('"').nth(1).unwrap_or_default().to_owned();
            }
        } else {
            return false;
        }
        true
    }

    fn take(&mut self, name: String, of: String) -> Item {
        let Self { doc, is_flat, is_optional, message } = std::mem::take(self);
        let doc = doc.trim().to_owned();
        Item { name, doc, of, is_flat, is_optional, fields: Vec::new(), message }
    }

    /// `name: Type,`
    fn field(&mut self, line: &str) -> Option<Item> {
        let line = line.strip_prefix("pub ").unwrap_or(line);
        let (name, of) = line.strip_suffix(',')?.split_once(": ")?;
        Some(self.take(name.to_owned(), of.to_owned()))
    }

    /// `Name,` or `Name(Type),` or `Name {`
    fn variant(&mut self, line: &str) -> Option<Item> {
        let end = line.find([',', '(', ' '])?;
        let of = line[end..].strip_prefix('(').and_then(|rest| rest.strip_suffix("),")).unwrap_or_default();
        line.starts_with(char::is_uppercase).then(|| self.take(snake_case(&line[..end]), of.to_owned()))
    }
}

/// `NodesLost` as `nodes_lost`.
fn snake_case(name: &str) -> String {
    let mut text = String::new();
    for (at, letter) in name.char_indices() {
        if letter.is_uppercase() && at > 0 {
            text.push('_');
        }
        text.extend(letter.to_lowercase());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "//! A module.\n//!\n//! More.\n\n/// An enum.\npub enum Event {\n    /// All run,\n    /// here.\n    #[error(\"lost {}\", .0)]\n    NodesLost {\n        \
        /// Their names.\n        #[serde(default)]\n        hosts: Vec<String>,\n    },\n    /// Ends.\n    Exited(\n        /// How.\n        Exit,\n    ),\n    /// Alone.\n    \
        Kill,\n}\n\npub struct Exit {\n    /// The code.\n    #[serde(flatten)]\n    pub code: i32,\n}\n";

    #[test]
    fn variants_and_fields_come_with_their_documentation() {
        let found = variants(TEXT, "Event").unwrap();
        let names: Vec<_> =
            found.iter().map(|it| (it.name.as_str(), it.doc.as_str(), it.of.as_str())).collect();
        assert_eq!(
            names,
            [("nodes_lost", "All run, here.", ""), ("exited", "Ends.", ""), ("kill", "Alone.", "")]
        );
        assert_eq!((found[0].message.as_str(), found[1].message.as_str()), ("lost {}", ""));
        assert_eq!(found[0].fields.len(), 1);
        assert_eq!((found[0].fields[0].name.as_str(), found[0].fields[0].is_optional), ("hosts", true));
        let exit = fields(TEXT, "Exit").unwrap();
        assert_eq!((exit[0].name.as_str(), exit[0].of.as_str(), exit[0].is_flat), ("code", "i32", true));
    }

    #[test]
    fn what_is_not_there_is_an_error() {
        assert!(variants(TEXT, "Other").is_err());
        assert_eq!(module_doc(TEXT), "A module.\n\nMore.\n");
    }
}
