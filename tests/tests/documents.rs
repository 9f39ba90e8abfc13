//! Documents name tests that exist.

use std::fs;
use std::path::{Path, PathBuf};

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace is above its tests").to_owned()
}

/// The words of a Markdown text that stand between single backticks.
fn code_words(text: &str) -> impl Iterator<Item = &str> {
    text.lines().flat_map(|line| line.split('`').skip(1).step_by(2))
}

/// Why that promise has no test; `None` if it has.
fn missing(word: &str) -> Option<String> {
    if let Some((suite, test)) = word.split_once("::") {
        let file = workspace().join(format!("tests/tests/{suite}.rs"));
        let text = fs::read_to_string(&file).unwrap_or_default();
        return (!text.contains(&format!("fn {test}("))).then(|| format!("{word}: there is no such test"));
    }
    let is_path = word.contains('/');
    let path =
        if is_path { workspace().join(word) } else { workspace().join(format!("tests/tests/{word}.rs")) };
    (!path.exists()).then(|| format!("{word}: there is no {}", path.display()))
}

#[test]
fn every_promise_of_the_security_page_names_tests_that_exist() {
    let text = fs::read_to_string(workspace().join("SECURITY.md")).expect("SECURITY.md is there");
    let promises: Vec<&str> = text
        .lines()
        .skip_while(|line| *line != "| promise | held by |")
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .collect();
    assert!(promises.len() > 5, "the table of promises is not where it was");
    let wrong: Vec<String> = promises
        .iter()
        .flat_map(|promise| {
            let held_by = promise.rsplit('|').nth(1).unwrap_or_default();
            let untested =
                (code_words(held_by).next().is_none()).then(|| format!("{promise}: no test is named"));
            code_words(held_by).filter_map(missing).chain(untested).collect::<Vec<_>>()
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_test_or_file_that_does_not_exist_is_found() {
    assert_eq!(missing("documents"), None);
    assert_eq!(missing("documents::every_promise_of_the_security_page_names_tests_that_exist"), None);
    assert_eq!(missing("tests/tests/documents.rs"), None);
    for word in ["no_such_suite", "documents::no_such_test", "no_such_suite::a", "shared/no/such.rs"] {
        assert!(missing(word).is_some(), "{word}");
    }
}
