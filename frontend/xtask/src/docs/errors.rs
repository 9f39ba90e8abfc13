//! The page of errors: the meaning of every kind, and the errors of each library.

use super::items::{Item, variants};
use super::source;
use super::text::{head, prose};
use crate::Result;

const KINDS: &str = "shared/types/src/error.rs";
const CODES: &str = "frontend/cli/src/exit.rs";

/// The libraries: a title, the file with the enum, and words about it.
const LIBRARIES: [(&str, &str, &str); 3] = [
    (
        "Errors of a tool",
        "frontend/src/error.rs",
        "`gantry_frontend::Error`, also what the command line prints.",
    ),
    ("Errors of a workload manager", "wlm/src/error.rs", "`gantry_wlm::Error`, in a tool `Error::Wlm`."),
    ("Errors of a daemon or rank", "backend/src/error.rs", "`gantry_backend::Error`."),
];

/// The page.
///
/// # Errors
/// A source cannot be read, or is not as it was.
pub(super) fn page() -> Result<String> {
    let mut page = head("Errors", "`shared/types/src/error.rs` and the error types of the libraries");
    page += "Every error has a kind, a text, and often a hint. The kind says what you can do. It is the same word in JSON, in the exit code and in \
             `gantry_error_kind`. [Troubleshooting](../operations/troubleshooting.md) has texts with their remedies.\n\n";
    let codes = source::read(CODES)?;
    page += "## Kinds\n\n| kind | exit code | meaning and remedy |\n| --- | ---: | --- |\n";
    for kind in variants(&source::read(KINDS)?, "Kind")? {
        let code = exit_code(&codes, &kind)?;
        page += &format!("| `{}` | {code} | {} |\n", kind.name.replace('_', "-"), prose(&kind.doc));
    }
    for (title, file, about) in LIBRARIES {
        page += &format!("\n## {title}\n\n{about}\n\n| name | text | meaning |\n| --- | --- | --- |\n");
        for error in variants(&source::read(file)?, "Error")? {
            page +=
                &format!("| `{}` | {} | {} |\n", camel_case(&error.name), text(&error), prose(&error.doc));
        }
    }
    Ok(page)
}

/// `Kind::NotFound => NOT_FOUND` and `NOT_FOUND: u8 = 65`.
fn exit_code<'a>(codes: &'a str, kind: &Item) -> Result<&'a str> {
    let after = |text: &str| codes.split_once(text).map(|(_, rest)| rest);
    let arm = after(&format!("Kind::{} => ", camel_case(&kind.name)));
    let name = arm.and_then(|rest| rest.split(',').next());
    let code = name.and_then(|name| after(&format!("const {name}: u8 = "))?.split(';').next());
    code.ok_or_else(|| format!("{CODES} has no code for {}", kind.name).into())
}

/// The text of an error, with `...` for its variable parts.
fn text(error: &Item) -> String {
    let mut shown = String::new();
    for (index, part) in error.message.split(['{', '}']).enumerate() {
        shown += if index % 2 == 0 { part } else { "..." };
    }
    let shown = shown.replace("......", "...");
    if shown.contains(char::is_alphabetic) { format!("`{shown}`") } else { "its own text".to_owned() }
}

/// `not_found` as `NotFound`.
fn camel_case(name: &str) -> String {
    let parts = name.split('_').map(|part| part[..1].to_uppercase() + &part[1..]);
    parts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_has_the_code_of_its_constant() {
        let codes = "const NOT_FOUND: u8 = 65;\nKind::NotFound => NOT_FOUND,\n";
        let kind = |name: &str| Item { name: name.to_owned(), ..Item::default() };
        assert_eq!(exit_code(codes, &kind("not_found")).unwrap(), "65");
        assert!(exit_code(codes, &kind("gone")).is_err());
    }

    #[test]
    fn what_differs_in_a_text_is_left_out() {
        let error = |message: &str| Item { message: message.to_owned(), ..Item::default() };
        assert_eq!(text(&error("{name} was not found{}")), "`... was not found...`");
        assert_eq!(text(&error("{0}")), "its own text");
    }
}
