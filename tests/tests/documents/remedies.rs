//! Every error text must have a hint, or a row on the troubleshooting page.

use std::collections::BTreeSet;
use std::fs;
use std::sync::OnceLock;

use super::error_texts::{ErrorText, error_texts};
use super::{code_words, workspace};

/// Files whose texts are part of another message. Each has a part of that message that has a row.
const PARTS: [(&str, &str); 13] = [
    ("frontend/src/procgroup/xml/tree.rs", "text outside of the message"),
    ("frontend/src/staging/elf/unfit.rs", "invalid ELF header"),
    ("shared/types/src/host_set.rs", "at character"),
    ("shared/types/src/rank_set/text.rs", "at character"),
    ("shared/link/src/bulk.rs", "protocol error"),
    ("shared/link/src/error.rs", "protocol error"),
    ("shared/src/wire/frame.rs", "protocol error"),
    ("shared/src/wire/window.rs", "protocol error"),
    ("wlm/src/launcher/files.rs", "of the file with programs"),
    ("wlm/src/pbs/tm/dis.rs", "the mom violates the protocol"),
    ("wlm/src/pbs/tm/error.rs", "the mom violates the protocol"),
    ("wlm/src/pbs/tm/packet.rs", "the mom violates the protocol"),
    ("wlm/src/slurm/multi_prog.rs", "of the file with programs"),
];

/// Texts with neither a hint nor a row. Their variable part is the message, or they are too short to be found on a
/// page. Do not add more.
const WITHOUT_REMEDY: [&str; 7] = [
    "no command",
    "{name} is '{value}', which is {wanted}",
    "start {program:?}",
    "register {member}",
    "register {member}: it has ended",
    "read {what} '{text}'",
    "more than {MAX_HOSTS} hosts",
];

/// The error texts of the product, read once for all tests.
fn texts() -> &'static [ErrorText] {
    static TEXTS: OnceLock<Vec<ErrorText>> = OnceLock::new();
    TEXTS.get_or_init(|| error_texts(&workspace()))
}

fn page() -> String {
    fs::read_to_string(workspace().join("docs/src/operations/troubleshooting.md")).expect("a page")
}

/// The messages in the first column of the tables.
fn messages(page: &str) -> BTreeSet<&str> {
    let rows = page.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next());
    rows.flat_map(code_words).collect()
}

fn has_row(page: &str, text: &str) -> bool {
    messages(page).iter().any(|message| text.contains(message))
}

/// Texts without a remedy.
fn without_remedy<'a>(texts: &'a [ErrorText], page: &str) -> Vec<&'a ErrorText> {
    let is_part = |file: &str| PARTS.iter().any(|(of, _)| *of == file);
    let is_usage = |text: &str| text.contains("\n\nusage: ");
    let bare = texts.iter().filter(|it| !it.has_hint && !is_part(&it.file) && !is_usage(&it.text));
    bare.filter(|it| !has_row(page, &it.text)).collect()
}

#[test]
fn every_text_of_an_error_has_a_hint_or_a_row() {
    assert!(texts().len() > 700, "{} texts: the search does not find them", texts().len());
    let found = without_remedy(texts(), &page());
    let known = |it: &&&ErrorText| WITHOUT_REMEDY.contains(&it.text.as_str());
    let new: Vec<_> = found.iter().filter(|it| !known(it)).collect();
    assert!(new.is_empty(), "give these a hint, or a row on the page for troubles: {new:#?}");
    let gone: Vec<_> =
        WITHOUT_REMEDY.iter().filter(|text| found.iter().all(|it| it.text != **text)).collect();
    assert!(gone.is_empty(), "take these off the list: {gone:?}");
}

#[test]
fn a_text_that_stands_within_another_one_has_its_row() {
    let page = page();
    let rows = messages(&page);
    for (file, message) in PARTS {
        assert!(rows.contains(message), "{message} has no row");
        let is_needed = |it: &ErrorText| it.file == file && !it.has_hint && !has_row(&page, &it.text);
        assert!(texts().iter().any(is_needed), "{file} needs no entry");
    }
}

#[test]
fn a_row_that_is_removed_is_missed() {
    let page = page();
    let row = page.lines().find(|line| line.starts_with("| `the job has no subjob`")).expect("the row");
    let left = page.replace(row, "");
    let found = without_remedy(texts(), &left).len();
    assert_eq!(found, without_remedy(texts(), &page).len() + 1);
}
