//! `gantry deps`.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use gantry_frontend::staging::{Closure, Dependency, Missing, Need, Optional, Resolver, ResolverConfig};
use serde::Serialize;

use super::say;
use crate::args::Deps;
use crate::exit::{self, Outcome};
use crate::view::{self, Page, table};

/// One line of `--json`.
#[derive(Debug, Serialize)]
struct Row {
    name: String,
    path: Option<String>,
    needed_by: String,
    how: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    missing: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    optional: bool,
}

pub(super) fn run(args: &Deps, json: bool) -> Outcome {
    let config = ResolverConfig { sysroot: args.sysroot.clone(), ..ResolverConfig::of_process() };
    let resolver = Resolver::new(config);
    let closure = resolver.closure(&find(&resolver, args))?;
    let bold = view::colours(&std::io::stdout());
    let page = match (json, args.tree) {
        (true, _) => Page::json(&build_rows(&closure, args.optional)),
        (false, true) => build_tree(&closure, args.optional),
        (false, false) => build_list(&closure, args.optional, bold),
    };
    say(&page)?;
    for missing in &closure.missing {
        view::note(&missing.to_string());
    }
    Ok(if closure.missing.is_empty() { exit::SUCCESS } else { exit::NOT_FOUND })
}

/// The file to examine: a path, a program in PATH, or a file in this directory.
fn find(resolver: &Resolver, args: &Deps) -> PathBuf {
    let binary = &args.binary;
    match &args.sysroot {
        // The shell may have completed a path from outside the root.
        Some(root) => match binary.strip_prefix(root) {
            Ok(inside) => Path::new("/").join(inside),
            Err(_) => resolver.find_program(binary),
        },
        None => resolver.find_program(binary),
    }
}

fn build_rows(closure: &Closure, with_optional: bool) -> Vec<Row> {
    let found = closure.needed.iter().map(|it| Row {
        name: it.name.to_string_lossy().into_owned(),
        path: Some(it.path.to_string_lossy().into_owned()),
        needed_by: it.needed_by.to_string_lossy().into_owned(),
        how: Some(it.how.to_string()),
        missing: None,
        optional: false,
    });
    let missing = closure.missing.iter().map(|it: &Missing| Row {
        name: it.name.to_string_lossy().into_owned(),
        path: None,
        needed_by: it.needed_by.to_string_lossy().into_owned(),
        how: None,
        missing: Some(it.to_string()),
        optional: false,
    });
    let optional = closure.optional.iter().filter(|_| with_optional).map(|it| Row {
        name: it.names.first().cloned().unwrap_or_default(),
        path: it.found.as_ref().map(|path| path.to_string_lossy().into_owned()),
        needed_by: it.wanted_by.to_string_lossy().into_owned(),
        how: None,
        missing: None,
        optional: true,
    });
    found.chain(missing).chain(optional).collect()
}

fn build_list(closure: &Closure, with_optional: bool, bold: bool) -> Page {
    let row = |it: &Dependency| {
        let text = |path: &Path| path.display().to_string();
        vec![it.name.to_string_lossy().into_owned(), text(&it.path), it.how.to_string(), text(&it.needed_by)]
    };
    let rows: Vec<_> = closure.needed.iter().map(row).collect();
    let mut page = match rows.is_empty() {
        true if closure.missing.is_empty() => Page::line("nothing is needed: linked statically"),
        true => Page::default(),
        false => table::build_table(&["NAME", "PATH", "HOW", "NEEDED BY"], &rows, bold),
    };
    add_end(&mut page, closure, with_optional);
    page
}

fn build_tree(closure: &Closure, with_optional: bool) -> Page {
    let mut page = Page::line(closure.binary.display());
    let mut shown = HashSet::new();
    // Lines still to print, the next one last. No recursion: a chain of libraries may be deeper than the stack.
    let mut ahead: Vec<(usize, &Need)> = closure.needs.iter().rev().map(|need| (1, need)).collect();
    while let Some((depth, need)) = ahead.pop() {
        let name = need.name.display();
        let indent = "  ".repeat(depth);
        let Some((place, it)) = need.found.and_then(|place| Some((place, closure.needed.get(place)?))) else {
            // A circular dependency back to the file itself is not missing.
            let is_missing = closure.missing.iter().any(|it| it.name == need.name);
            let what = if is_missing { " => not found" } else { "" };
            page.add(format_args!("{indent}{name}{what}"));
            continue;
        };
        let is_new = shown.insert(place);
        let above = if is_new || it.needs.is_empty() { "" } else { ", see above" };
        page.add(format_args!("{indent}{name} => {} ({}{above})", it.path.display(), it.how));
        if is_new {
            ahead.extend(it.needs.iter().rev().map(|need| (depth + 1, need)));
        }
    }
    add_end(&mut page, closure, with_optional);
    page
}

/// The part that follows both listings.
fn add_end(page: &mut Page, closure: &Closure, with_optional: bool) {
    if let (Some(newest), Some(by)) = (&closure.libc.newest, &closure.libc.newest_by) {
        let there = closure.libc.provided.map(|it| format!("; the one here is {it}")).unwrap_or_default();
        page.add("");
        page.add(format_args!("glibc {newest} or newer is needed, by {}{there}", by.display()));
    }
    if with_optional && !closure.optional.is_empty() {
        page.add("");
        page.add("may be loaded later:");
        closure.optional.iter().for_each(|it| page.add(describe_optional(it)));
    }
}

fn describe_optional(it: &Optional) -> String {
    let found = it.found.as_ref().map_or("not found".to_owned(), |path| path.display().to_string());
    let what = it.description.as_ref().or(it.feature.as_ref());
    let what = what.map(|what| format!(": {what}")).unwrap_or_default();
    let priority = it.priority.as_deref().unwrap_or("suggested");
    format!("  {} => {found} ({priority}){what}", it.names.join(", "))
}
