//! Checks the documents: the tests and pages that they name must exist, and their sentences must be short.

#[path = "documents/error_texts.rs"]
mod error_texts;
#[path = "documents/remedies.rs"]
mod remedies;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use gantry_tests::{SOON, World, binaries};

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace is above its tests").to_owned()
}

/// The words between single backticks in a Markdown text.
fn code_words(text: &str) -> impl Iterator<Item = &str> {
    text.lines().flat_map(|line| line.split('`').skip(1).step_by(2))
}

/// Why a named test or file does not exist. `None`: it exists.
fn missing(word: &str) -> Option<String> {
    if let Some((suite, test)) = word.split_once("::") {
        let file = if suite.contains('/') { suite.to_owned() } else { format!("tests/tests/{suite}.rs") };
        let file = workspace().join(file);
        let text = fs::read_to_string(&file).unwrap_or_default();
        return (!text.contains(&format!("fn {test}("))).then(|| format!("{word}: there is no such test"));
    }
    let is_path = word.contains('/');
    let path =
        if is_path { workspace().join(word) } else { workspace().join(format!("tests/tests/{word}.rs")) };
    (!path.exists()).then(|| format!("{word}: there is no {}", path.display()))
}

/// The missing tests in the last column of the table that begins with `head`. The table must have more than `least`
/// rows.
fn untested_rows(text: &str, head: &str, least: usize) -> Vec<String> {
    let rows = text.lines().skip_while(|line| *line != head).skip(2);
    let rows: Vec<&str> = rows.take_while(|line| line.starts_with('|')).collect();
    assert!(rows.len() > least, "the table '{head}' is not where it was");
    let wrong = |row: &&str| {
        let held_by = row.rsplit('|').nth(1).unwrap_or_default();
        let untested = (code_words(held_by).next().is_none()).then(|| format!("{row}: no test is named"));
        code_words(held_by).filter_map(missing).chain(untested).collect::<Vec<_>>()
    };
    rows.iter().flat_map(wrong).collect()
}

#[test]
fn every_promise_of_the_security_page_names_tests_that_exist() {
    let text = fs::read_to_string(workspace().join("SECURITY.md")).expect("SECURITY.md is there");
    let wrong = untested_rows(&text, "| promise | held by |", 5);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_row_of_who_dies_with_whom_names_tests_that_exist() {
    let page = workspace().join("docs/src/internals/failure-model.md");
    let text = fs::read_to_string(page).expect("the failure model");
    let wrong = untested_rows(&text, "| dies | then | tests |", 29);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_row_without_a_test_or_with_one_that_does_not_exist_is_found() {
    let table = "| a | tests |\n| --- | --- |\n| b | `documents::sentences_are_counted` |\n| c | none |\n| d | `documents::no` |\n";
    let wrong = untested_rows(table, "| a | tests |", 2);
    assert_eq!(wrong.len(), 2, "{wrong:?}");
    assert!(wrong[0].contains("no test is named") && wrong[1].contains("documents::no"), "{wrong:?}");
}

/// Whether a code word is the path of a file or folder of this repository.
fn is_own_path(word: &str) -> bool {
    let begins = ["shared/", "wlm/", "frontend/", "backend/", "tests/", "examples/", "docs/"];
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    begins.iter().any(|begin| word.starts_with(begin)) && word.chars().all(is_plain) && !word.contains("NAME")
}

#[test]
fn files_that_the_pages_of_internals_name_exist() {
    let folder = workspace().join("docs/src/internals");
    let entries = fs::read_dir(folder).expect("the folder").flatten().map(|entry| entry.path());
    let (mut count, mut wrong) = (0, Vec::new());
    for page in entries.chain([workspace().join("ARCHITECTURE.md"), workspace().join("CONTRIBUTING.md")]) {
        let text = fs::read_to_string(&page).expect("a page");
        let prose: String = prose_lines(&text).map(|line| format!("{line}\n")).collect();
        for word in code_words(&prose).filter(|word| is_own_path(word)) {
            count += 1;
            if !workspace().join(word).exists() {
                wrong.push(format!("{}: there is no {word}", page.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 80, "{count}");
}

#[test]
fn a_test_or_file_that_does_not_exist_is_found() {
    assert_eq!(missing("documents"), None);
    assert_eq!(missing("documents::every_promise_of_the_security_page_names_tests_that_exist"), None);
    assert_eq!(missing("tests/tests/documents.rs"), None);
    assert_eq!(missing("tests/tests/documents.rs::a_test_or_file_that_does_not_exist_is_found"), None);
    for word in [
        "tests/tests/documents.rs::no_such_test",
        "no_such_suite",
        "documents::no_such_test",
        "no_such_suite::a",
        "shared/no/such.rs",
    ] {
        assert!(missing(word).is_some(), "{word}");
    }
}

/// All pages: the book, and the pages beside the README.
fn pages() -> Vec<PathBuf> {
    let outside = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "ARCHITECTURE.md"];
    let mut pages = outside.map(|name| workspace().join(name)).to_vec();
    let mut folders = vec![workspace().join("docs/src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder").flatten().map(|entry| entry.path()) {
            match entry.extension() {
                Some(end) if end == "md" => pages.push(entry),
                _ if entry.is_dir() => folders.push(entry),
                _ => {}
            }
        }
    }
    pages
}

/// The lines of a page outside its code blocks.
fn prose_lines(text: &str) -> impl Iterator<Item = &str> {
    let mut in_code = false;
    text.lines().filter(move |line| {
        let fence = line.starts_with("```");
        in_code ^= fence;
        !in_code && !fence
    })
}

/// The targets of a page's links, except those on the web.
fn links(text: &str) -> Vec<String> {
    let ends = prose_lines(text).flat_map(|line| line.split("](").skip(1));
    let targets = ends.filter_map(|rest| rest.split(')').next());
    targets.filter(|target| !target.contains("://")).map(str::to_owned).collect()
}

/// The fragment that links to a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// Returns the problem of a link on the page `from`, if any.
fn wrong_link(from: &Path, link: &str) -> Option<String> {
    let (file, fragment) = link.split_once('#').unwrap_or((link, ""));
    let path = if file.is_empty() { from.to_owned() } else { from.parent().expect("a folder").join(file) };
    if !path.exists() {
        return Some(format!("{}: there is no {link}", from.display()));
    }
    if fragment.is_empty() {
        return None;
    }
    let text = fs::read_to_string(&path).unwrap_or_default();
    let is_there = prose_lines(&text).any(|line| line.starts_with('#') && anchor(line) == fragment);
    (!is_there).then(|| format!("{}: there is no heading for {link}", from.display()))
}

#[test]
fn links_between_documents_lead_somewhere() {
    let wrong: Vec<String> = pages()
        .into_iter()
        .flat_map(|page| {
            let text = fs::read_to_string(&page).expect("a page");
            links(&text).into_iter().filter_map(move |link| wrong_link(&page, &link)).collect::<Vec<_>>()
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_link_that_leads_nowhere_is_found() {
    let page = workspace().join("README.md");
    assert_eq!(
        links("see [a](b.md) and [c](d/e.md#f), [web](https://x)\n```\n[x](y)\n```"),
        ["b.md", "d/e.md#f"]
    );
    assert_eq!(wrong_link(&page, "SECURITY.md#what-gantry-promises"), None);
    for link in ["no-such.md", "SECURITY.md#no-such-heading", "#no-such-heading"] {
        assert!(wrong_link(&page, link).is_some(), "{link}");
    }
}

#[test]
fn the_summary_lists_every_page_of_the_book() {
    let book = workspace().join("docs/src");
    let summary = fs::read_to_string(book.join("SUMMARY.md")).expect("a summary");
    let listed: BTreeSet<PathBuf> = links(&summary).iter().map(|link| book.join(link)).collect();
    let there: BTreeSet<PathBuf> =
        pages().into_iter().filter(|page| page.starts_with(&book) && !page.ends_with("SUMMARY.md")).collect();
    assert_eq!(listed, there);
}

/// `cargo xtask docs` writes the reference of commands, events, exit codes and the control socket.
#[test]
fn the_written_reference_is_as_the_code_has_it() {
    let world = World::new();
    let gantry = binaries().gantry.display().to_string();
    let check = ["docs", "--check", "--gantry", &gantry];
    let done = world.start(&binaries().dir.join("gantry-xtask"), check).wait(SOON);
    assert_eq!(done.code(), 0, "{}", done.stderr.join("\n"));
    world.finish();
}

/// The code of a crate's folder without unit tests.
fn product_code(folder: &str) -> String {
    let mut text = String::new();
    let mut folders = vec![workspace().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder").flatten().map(|entry| entry.path()) {
            let name = entry.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
            if entry.is_dir() && name != "tests" {
                folders.push(entry);
            } else if name.ends_with(".rs") && !name.ends_with("tests.rs") && name != "skip.rs" {
                let file = fs::read_to_string(&entry).expect("a source");
                text.push_str(file.split("#[cfg(test)]\nmod ").next().unwrap_or_default());
            }
        }
    }
    text
}

/// String literals that consist only of such letters.
fn literals(code: &str, is_letter: impl Fn(char) -> bool) -> BTreeSet<String> {
    let strings =
        code.lines().filter(|line| !line.trim_start().starts_with("//")).flat_map(|line| line.split('"'));
    strings.filter(|text| text.len() > 1 && text.chars().all(&is_letter)).map(str::to_owned).collect()
}

/// The names in the first columns of a page's tables.
fn first_column(page: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(workspace().join("docs/src/reference").join(page)).expect("a page");
    let rows = text.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next());
    rows.flat_map(code_words).map(str::to_owned).collect()
}

/// Variables that are no interface: gantry's own processes use them among themselves, or the tests' fake cluster
/// does.
const OWN_VARIABLES: [&str; 13] = [
    "GANTRY_FLUX_",
    "GANTRY_FLUX_NODE",
    "GANTRY_FLUX_NTASKS",
    "GANTRY_GIVEN",
    "GANTRY_KEPT",
    "GANTRY_MARK",
    "GANTRY_PREFIX",
    "GANTRY_SENT_AGENT",
    "GANTRY_TICKET",
    "GANTRY_END",
    "GANTRY_SKIP_LOG",
    "GANTRY_FAKE_SITE",
    "GANTRY_FAKE_JOB",
];

/// Folders with code whose interfaces users see.
const PRODUCT: [&str; 14] = [
    "shared/types/src",
    "shared/src",
    "shared/link/src",
    "shared/capi/src",
    "shared/stack/src",
    "wlm/src",
    "frontend/guard/src",
    "frontend/src",
    "frontend/cli/src",
    "frontend/capi/src",
    "backend/src",
    "backend/agent/src",
    "backend/stack/src",
    "backend/capi/src",
];

#[test]
fn the_page_of_variables_has_those_of_the_code() {
    let code: String = PRODUCT.into_iter().map(product_code).collect();
    let is_ours = |name: &String| {
        ["GANTRY_", "CTI_", "GLOBUS_GRAM_"]
            .iter()
            .any(|prefix| name.strip_prefix(prefix).is_some_and(|rest| !rest.is_empty()))
    };
    let named = literals(&code, |c| c.is_ascii_uppercase() || c == '_').into_iter().filter(is_ours);
    let named: BTreeSet<String> = named.filter(|name| !OWN_VARIABLES.contains(&name.as_str())).collect();
    let documented = first_column("environment.md").into_iter().filter(is_ours).collect();
    assert_eq!(named, documented);
}

#[test]
fn messages_on_the_page_for_troubles_are_those_of_the_code() {
    let code: String = PRODUCT.into_iter().map(product_code).collect();
    let page =
        fs::read_to_string(workspace().join("docs/src/operations/troubleshooting.md")).expect("a page");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next());
    let messages: Vec<&str> = rows.flat_map(code_words).collect();
    assert!(messages.len() > 10, "the tables are not where they were");
    let unknown: Vec<_> = messages.into_iter().filter(|message| !code.contains(message)).collect();
    assert!(unknown.is_empty(), "no message has {unknown:?}");
}

/// The functions of the Common Tools Interface, including those in its tables.
fn cti_calls() -> BTreeSet<String> {
    let headers = ["frontend/capi/include/common_tools_fe.h", "backend/capi/include/common_tools_be.h"];
    let text: String =
        headers.map(|name| fs::read_to_string(workspace().join(name)).expect("a header")).concat();
    let name_before = |text: &str| {
        let letters = |c: char| c.is_ascii_alphanumeric() || c == '_';
        text.rsplit(|c| !letters(c)).next().unwrap_or_default().to_owned()
    };
    let plain = text
        .lines()
        .filter(|line| !line.starts_with([' ', '/', '#']))
        .filter_map(|line| line.split_once('('));
    let plain = plain.map(|(before, _)| name_before(before)).filter(|name| name.starts_with("cti_"));
    let in_tables = text.lines().filter_map(|line| line.split_once("(*")?.1.split_once(')'));
    plain.chain(in_tables.map(|(name, _)| name.to_owned())).collect()
}

#[test]
fn the_page_for_users_of_cti_names_every_call() {
    let calls = cti_calls();
    assert!(calls.len() > 60, "{calls:?}");
    let page = fs::read_to_string(workspace().join("docs/src/tools/from-cti.md")).expect("a page");
    let on_page: BTreeSet<&str> = code_words(&page).collect();
    let missing: Vec<_> = calls.iter().filter(|call| !on_page.contains(call.as_str())).collect();
    assert!(missing.is_empty(), "not on the page: {missing:?}");
    let unknown: Vec<_> =
        on_page.iter().filter(|name| name.starts_with("cti_") && !calls.contains(**name)).collect();
    assert!(unknown.is_empty(), "in no header: {unknown:?}");
}

#[test]
fn the_page_of_rsl_has_the_attributes_of_the_code() {
    let code = product_code("frontend/src/coallocation");
    let reads = ["text(", "texts(", "number(", "choice(", "pairs(", "is("];
    let named = code.lines().flat_map(|line| reads.map(|read| line.split(read).nth(1)));
    let named =
        named.flatten().filter_map(|rest| rest.strip_prefix('"')?.split('"').next().map(str::to_owned));
    assert_eq!(named.collect::<BTreeSet<_>>(), first_column("rsl.md"));
}

#[test]
fn the_page_of_xml_messages_has_the_names_of_the_code() {
    let root = workspace().join("frontend/src/procgroup");
    let read = |name: &str| fs::read_to_string(root.join(name)).expect("a source");
    let named = literals(&read("xml/read.rs"), |c| c.is_ascii_lowercase() || c == '-');
    let named: BTreeSet<String> = named
        .into_iter()
        .chain(literals(&read("attribute.rs"), |c| c.is_ascii_lowercase() || c == '-'))
        .collect();
    let page = fs::read_to_string(workspace().join("docs/src/reference/process-manager.md")).expect("a page");
    let on_page: BTreeSet<String> = code_words(&page).map(str::to_owned).collect();
    let missing: Vec<_> = named.difference(&on_page).collect();
    assert!(missing.is_empty(), "not on the page: {missing:?}");
    let unknown: Vec<_> =
        first_column("process-manager.md").into_iter().filter(|name| !named.contains(name)).collect();
    assert!(unknown.is_empty(), "not in the code: {unknown:?}");
}

/// The paragraphs and list items of a page, without tables and headings.
fn paragraphs(text: &str) -> Vec<String> {
    let mut found = vec![String::new()];
    for line in prose_lines(text) {
        let begins_item = line.starts_with("- ") || line.starts_with(|c: char| c.is_ascii_digit());
        if line.is_empty() || line.starts_with(['#', '|']) || begins_item {
            found.push(String::new());
        }
        if !line.starts_with(['#', '|'])
            && let Some(last) = found.last_mut()
        {
            last.push_str(line);
            last.push(' ');
        }
    }
    found.retain(|paragraph| !paragraph.trim().is_empty());
    found
}

fn words(text: &str) -> usize {
    text.split_whitespace().filter(|word| word.contains(char::is_alphanumeric)).count()
}

/// The number of words of each sentence, in ascending order.
fn sentence_lengths(paragraphs: &[String]) -> Vec<usize> {
    let ends = |word: &str| word.ends_with(['.', '?', '!']);
    let mut lengths = Vec::new();
    for paragraph in paragraphs {
        let mut count = 0;
        for word in paragraph.split_whitespace() {
            count += words(word);
            if ends(word) {
                lengths.push(std::mem::take(&mut count));
            }
        }
        lengths.push(count);
    }
    lengths.retain(|count| *count > 0);
    lengths.sort_unstable();
    lengths
}

#[test]
fn pages_are_written_in_short_sentences() {
    let mut all = Vec::new();
    for page in pages() {
        let text = fs::read_to_string(&page).expect("a page");
        for paragraph in paragraphs(&text) {
            let count = words(&paragraph);
            assert!(count <= 120, "{}: a paragraph of {count} words: {paragraph}", page.display());
            all.push(paragraph);
        }
    }
    let lengths = sentence_lengths(&all);
    let at = |percent: usize| lengths[lengths.len() * percent / 100];
    let (median, ninth) = (at(50), at(90));
    assert!(median < 16 && ninth < 28, "median {median} words, nine of ten sentences below {ninth}");
}

/// The value of `NAME = "VALUE"` in a manifest.
fn value_in<'a>(manifest: &'a str, name: &str) -> Option<&'a str> {
    let quoted = |line: &'a str| line.strip_prefix(name)?.strip_prefix(" = \"")?.strip_suffix('"');
    manifest.lines().find_map(quoted)
}

/// A beginner builds by the README alone.
#[test]
fn the_readme_names_the_oldest_compiler() {
    let read = |name: &str| fs::read_to_string(workspace().join(name)).expect("a file");
    let manifest = read("Cargo.toml");
    let version = value_in(&manifest, "rust-version").expect("a version");
    assert!(read("README.md").contains(&format!("Rust {version} or later")), "Rust {version}");
}

#[test]
fn the_page_for_tools_in_rust_names_crates_and_examples_that_exist() {
    let page = fs::read_to_string(workspace().join("docs/src/tools/rust.md")).expect("a page");
    let manifest =
        |folder: &str| fs::read_to_string(workspace().join(folder).join("Cargo.toml")).unwrap_or_default();
    let depends = |line: &&str| line.contains("path = \"../gantry/");
    for line in page.lines().filter(depends) {
        let folder = line.split("../gantry/").nth(1).and_then(|rest| rest.split('"').next()).expect("a path");
        assert_eq!(value_in(&manifest(folder), "name"), line.split(' ').next(), "{line}");
    }
    let runs: Vec<&str> = page.lines().filter(|line| line.contains("--example ")).collect();
    for line in &runs {
        let name = line.split("--example ").nth(1).and_then(|rest| rest.split(' ').next()).expect("a name");
        // Cargo looks for examples in the default members alone, unless a package is named.
        assert!(line.contains("-p gantry-examples "), "{line}");
        assert!(manifest("examples").contains(&format!("name = \"{name}\"")), "{line}");
    }
    assert!(!runs.is_empty() && page.lines().filter(depends).count() == 2);
}

/// Scripts that act on the exit code of a watch: code blocks for a shell, and single lines of other ones.
fn watch_scripts(text: &str) -> Vec<String> {
    let is_one =
        |script: &str| script.contains("why") && script.contains("--watch=") && script.contains("--exit");
    let mut found = Vec::new();
    for (at, block) in text.split("\n```").enumerate().filter(|(at, _)| at % 2 == 1) {
        let (language, code) = block.split_once('\n').unwrap_or_else(|| panic!("block {at} has no end"));
        match language.starts_with("sh") {
            true => found.extend(is_one(code).then(|| code.to_owned())),
            false => found.extend(code.lines().filter(|line| is_one(line)).map(str::to_owned)),
        }
    }
    found
}

/// Only code 75 means a hang. Batch scripts often have `set -e`, which must neither hide a hang nor end the job.
#[test]
fn scripts_in_documents_cancel_a_job_that_hangs_and_no_other() {
    let scripts: Vec<String> =
        pages().iter().flat_map(|page| watch_scripts(&fs::read_to_string(page).expect("a page"))).collect();
    assert!(scripts.len() >= 2, "{scripts:?}");
    let world = World::new();
    world.executable("gantry", b"#!/bin/sh\nexit $CODE\n");
    world.executable("srun", b"#!/bin/sh\n");
    for cancel in ["scancel", "cancel-my-job"] {
        world.executable(cancel, b"#!/bin/sh\n: >cancelled\n");
    }
    let cancelled = world.work_dir().join("cancelled");
    for (script, code) in scripts.iter().flat_map(|script| [0, 67, 75].map(|code| (script, code))) {
        for option in ["-e", "+e"] {
            let mut command = world.command("/bin/sh");
            command.args([option, "-c", &format!("{script}\nwait\n")]).env("CODE", code.to_string());
            let path = format!("{}:/usr/bin:/bin", world.work_dir().display());
            command.env("PATH", path).env("SLURM_JOB_ID", "1");
            let done = world.spawn(command).wait(SOON);
            assert_eq!(done.code(), 0, "{option} {code} {script}: {done:?}");
            let is_cancelled = fs::remove_file(&cancelled).is_ok();
            assert_eq!(is_cancelled, code == 75, "{option} {code} {script}: {done:?}");
        }
    }
    world.finish();
}

#[test]
fn sentences_are_counted() {
    let text = "# Not this\n\nOne two. Three four\nfive.\n- six\n\n| not | this |\n```\nnor this\n```\n";
    assert_eq!(paragraphs(text).len(), 2);
    assert_eq!(sentence_lengths(&paragraphs(text)), [1, 2, 3]);
}
