//! Formats answers for people and for programs.

use gantry_debug::compare::Comparison;
use gantry_debug::input::OWN;
use gantry_debug::round::{Outcome, Said};
use gantry_debug::session::Standing;
use gantry_debug::sets::{Sets, WORDS};
use gantry_types::rank_set::RankSet;
use serde::Serialize;
use serde_json::json;

use crate::view::Page;

/// The JSON output.
#[derive(Serialize)]
struct Object<'a, T> {
    command: &'a str,
    #[serde(flatten)]
    answer: &'a T,
}

fn object(command: &str, answer: &impl Serialize) -> Page {
    Page::json(&Object { command: command.trim(), answer })
}

/// The help page.
pub(super) fn help() -> Page {
    let mut page = Page::default();
    page.add("Commands of gdb go to each rank of the current set. gantry adds:");
    let rows = OWN.iter().map(|(usage, meaning)| (usage.len(), format!("  {usage:28}{meaning}")));
    rows.for_each(|(_, row)| page.add(row));
    page.add("A SET is ranks such as 0,8-15, or names with commas between:");
    WORDS.iter().for_each(|(word, meaning)| page.add(format_args!("  {word:28}{meaning}")));
    page.add("  at FUNCTION                 ranks that stand in that function");
    page.add("  class NUMBER                ranks of the last answer's class of that number, from above");
    page.add("Ctrl-C stops the ranks that a command has let go. 'help all' is gdb's own list.");
    page
}

/// The merged answers of the ranks.
pub(super) fn outcome(command: &str, outcome: &Outcome, json: bool) -> Page {
    if json {
        return object(command, outcome);
    }
    let mut page = Page::default();
    outcome.classes.iter().for_each(|said| add_said(&mut page, said));
    if !outcome.running.is_empty() {
        page.add(format_args!("[{}] running", outcome.running));
    }
    if let Some(statistic) = &outcome.statistic {
        page.add(statistic);
    }
    page
}

/// The merged answers after so many stops.
pub(super) fn outcome_after(command: &str, outcome: &Outcome, stops: u64, json: bool) -> Page {
    if json {
        #[derive(Serialize)]
        struct After<'a> {
            #[serde(flatten)]
            outcome: &'a Outcome,
            stops: u64,
        }
        return object(command, &After { outcome, stops });
    }
    let mut page = self::outcome(command, outcome, false);
    page.add(format_args!("after {stops} {}", if stops == 1 { "stop" } else { "stops" }));
    page
}

fn add_said(page: &mut Page, said: &Said) {
    // A page escapes tabs, and source lines contain them.
    let text = said.text.replace('\t', "    ");
    let mut lines = text.lines().filter(|line| !line.is_empty());
    match (lines.next(), lines.next()) {
        (None, _) => {}
        (Some(only), None) => page.add(format_args!("[{}] {only}", said.ranks)),
        (Some(_), Some(_)) => {
            page.add(format_args!("[{}]", said.ranks));
            text.lines().for_each(|line| page.add(line));
        }
    }
    if let Some(hint) = &said.hint {
        page.add(format_args!("hint: {hint}"));
    }
}

/// The state of the ranks.
pub(super) fn standings(command: &str, standings: &[Standing], json: bool) -> Page {
    if json {
        return object(command, &json!({ "standings": standings }));
    }
    let mut page = Page::default();
    standings.iter().for_each(|it| page.add(format_args!("[{}] {}", it.ranks, it.state)));
    page
}

/// A single set.
pub(super) fn set(command: &str, ranks: &RankSet, json: bool) -> Page {
    match json {
        true => object(command, &json!({ "ranks": ranks.to_string() })),
        false => Page::line(ranks),
    }
}

/// Names of sets.
pub(super) fn names(command: &str, sets: &Sets, json: bool) -> Page {
    if json {
        let names: serde_json::Map<String, serde_json::Value> =
            sets.names().map(|(name, ranks)| (name.to_owned(), ranks.to_string().into())).collect();
        return object(command, &json!({ "names": names }));
    }
    let mut page = Page::default();
    sets.names().for_each(|(name, ranks)| page.add(format_args!("{name}: {ranks}")));
    page
}

/// All input and output of a gdb.
pub(super) fn words(command: &str, words: &[u8], forgotten: u64, json: bool) -> Page {
    let text = String::from_utf8_lossy(words);
    if json {
        return object(command, &json!({ "words": text, "forgotten_bytes": forgotten }));
    }
    let mut page = Page::default();
    if forgotten > 0 {
        page.add(format_args!("({forgotten} bytes before this are forgotten)"));
    }
    text.lines().for_each(|line| page.add(line));
    page
}

/// The comparison of two sets.
pub(super) fn comparison(command: &str, found: &Comparison, outcome: &Outcome, json: bool) -> Page {
    if json {
        return object(command, found);
    }
    let mut page = Page::default();
    outcome.classes.iter().filter(|said| said.is_error).for_each(|said| add_said(&mut page, said));
    found.differing.iter().for_each(|it| page.add(it));
    if !found.without.is_empty() {
        page.add(format_args!("[{}] no value", found.without));
    }
    let pairs = if found.same == 1 { "pair is" } else { "pairs are" };
    page.add(format_args!("{} {pairs} the same", found.same));
    page
}
