//! Words that pages share.

/// The beginning of a page: its title and its source.
pub(super) fn head(title: &str, from: &str) -> String {
    format!("# {title}\n\n<!-- Written by `cargo xtask docs` from {from}: change it there. -->\n\n")
}

/// Documentation without links to items, for a cell of a table.
pub(super) fn prose(doc: &str) -> String {
    without_links(doc)
        .replace('|', "\\|")
        .replace("the WLM's", "the workload manager's")
        .replace("The WLM's", "The workload manager's")
        .replace("WLM", "workload manager")
}

/// ``[`Name`](path)`` and ``[`Name`]`` as `Name`.
pub(super) fn without_links(text: &str) -> String {
    let mut kept = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("[`") {
        kept += before;
        let Some((name, after)) = after.split_once("`]") else {
            kept += "[`";
            rest = after;
            continue;
        };
        kept += &format!("`{name}`");
        rest = match after.strip_prefix('(').and_then(|link| link.split_once(')')) {
            Some((_, after)) => after,
            None => after,
        };
    }
    kept + rest
}
