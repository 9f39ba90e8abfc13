//! The tree for people.

use std::collections::BTreeSet;

use gantry_types::rank_set::RankSet;

use super::classes::Step;
use super::report::Findings;
use super::tree::{Stretch, build_tree, count, only_host, ranks_text};
use crate::view::Page;

/// The most letters of a set of ranks.
const MOST_RANKS: usize = 60;

/// The most lines of an innermost function that are named one by one.
const MOST_LINES: usize = 3;

/// The page with the findings.
pub(crate) fn build_page(found: &Findings, bold: bool) -> Page {
    let mut page = Page::default();
    page.add_heading(title(found), bold);
    tree_lines(found).iter().for_each(|line| page.add(&line.text));
    let unseen = found.unseen();
    if !unseen.is_empty() {
        page.add(format_args!("not seen: {} [{}]", count(&unseen), ranks_text(&unseen, MOST_RANKS)));
    }
    page
}

/// The numbers of ranks and classes.
pub(crate) fn title(found: &Findings) -> String {
    let classes = match found.classes.len() {
        1 => "1 class".to_owned(),
        many => format!("{many} classes"),
    };
    let samples = if found.samples > 1 { format!(", {} samples", found.samples) } else { String::new() };
    format!("{} in {classes}{samples}", count(&found.seen()))
}

/// A line of the tree, and its ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TreeLine {
    /// It contains names that ranks chose, so it must be escaped for a terminal.
    pub(crate) text: String,
    pub(crate) ranks: RankSet,
}

/// The tree, a line for each stretch.
pub(crate) fn tree_lines(found: &Findings) -> Vec<TreeLine> {
    let mut lines = Vec::new();
    add_stretches(&mut lines, found, &build_tree(&found.classes), "", true);
    lines
}

fn add_stretches(
    lines: &mut Vec<TreeLine>,
    found: &Findings,
    stretches: &[Stretch],
    indent: &str,
    is_outside: bool,
) {
    for (at, stretch) in stretches.iter().enumerate() {
        let is_last = at + 1 == stretches.len();
        let (here, below) = match (is_outside, is_last) {
            (true, _) => ("", ""),
            (false, true) => ("└─ ", "   "),
            (false, false) => ("├─ ", "│  "),
        };
        let text = format!("{indent}{here}{}", describe(stretch, found));
        lines.push(TreeLine { text, ranks: stretch.ranks.clone() });
        add_stretches(lines, found, &stretch.calls, &format!("{indent}{below}"), false);
    }
}

fn describe(stretch: &Stretch, found: &Findings) -> String {
    let steps: Vec<String> = stretch.steps.iter().map(|step| describe_step(step, &found.programs)).collect();
    let ranks = ranks_text(&stretch.ranks, MOST_RANKS);
    let host =
        only_host(&stretch.ranks, &found.hosts).filter(|_| stretch.calls.is_empty() && found.is_spread());
    let host = host.map(|host| format!(" on {host}")).unwrap_or_default();
    let share = match found.samples {
        1 => String::new(),
        samples => {
            let all = stretch.ranks.len().saturating_mul(u64::from(samples)).max(1);
            format!(" {}%", (stretch.samples * 100 + all / 2) / all)
        }
    };
    format!("{} [{ranks}]{host}{share}", steps.join(" > "))
}

/// A function with its line, or with its library if the line is unknown.
pub(crate) fn describe_step(step: &Step, programs: &BTreeSet<String>) -> String {
    if !step.is_function() {
        return format!("({})", step.name);
    }
    let file = step.file.as_deref().map(|file| file.rsplit('/').next().unwrap_or(file));
    let library =
        step.module.as_deref().filter(|module| !programs.contains(*module) && step.offset.is_none());
    match (file, describe_lines(step)) {
        (Some(file), Some(lines)) => format!("{} ({file}:{lines})", step.name),
        (Some(file), None) => format!("{} ({file})", step.name),
        (None, _) => match library {
            Some(path) => format!("{} ({})", step.name, path.rsplit('/').next().unwrap_or(path)),
            None => step.name.clone(),
        },
    }
}

fn describe_lines(step: &Step) -> Option<String> {
    let (first, last) = (step.lines.first()?, step.lines.last()?);
    match step.lines.len() {
        1..=MOST_LINES => Some(step.lines.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")),
        _ => Some(format!("{first}-{last}")),
    }
}

#[cfg(test)]
mod tests {
    use gantry_types::filter::PrefixTree;
    use gantry_types::id::Rank;

    use super::super::classes::tests::{class, step};
    use super::super::classes::{Class, build_classes};
    use super::super::resolve::Resolver;
    use super::*;

    #[test]
    fn the_odd_rank_comes_first_with_its_line_and_host() {
        let hosts = (0..4_u32).map(|rank| (gantry_types::id::Rank(rank), format!("n{rank}")));
        let found = Findings {
            samples: 1,
            threads: false,
            hosts: hosts.collect(),
            programs: ["/bin/heat".to_owned()].into(),
            classes: vec![
                class(&[("main", 9), ("solve", 40)], "3"),
                class(&[("main", 9), ("exchange", 12), ("MPI_Wait", 0)], "0,2"),
            ],
            missing: Vec::new(),
            nameless: Vec::new(),
        };
        let mut expected = Page::default();
        for line in [
            "3 ranks in 2 classes",
            "main (heat.c:9) [0,2-3]",
            "├─ solve (heat.c:40) [3] on n3",
            "└─ exchange (heat.c:12) > MPI_Wait [0,2]",
            "not seen: 1 rank [1]",
        ] {
            expected.add(line);
        }
        assert_eq!(build_page(&found, false), expected);
    }

    #[test]
    fn a_class_of_several_samples_has_its_share_of_them() {
        // Four samples of each of four ranks. Rank 3 moves: it was in `solve` three times, and in `save` once.
        let sampled = |steps, numbers: &str| {
            let numbers: RankSet = numbers.parse().unwrap();
            let ranks = gantry_stack::orders::ranks_of(&numbers, 4);
            Class { numbers, ranks, ..class(steps, "0") }
        };
        let found = Findings {
            samples: 4,
            classes: vec![
                sampled(&[("main", 9), ("solve", 40)], "12-14"),
                sampled(&[("main", 9), ("save", 50)], "15"),
                sampled(&[("main", 9), ("MPI_Wait", 0)], "0-11"),
            ],
            ..Findings::default()
        };
        let lines: Vec<String> = tree_lines(&found).into_iter().map(|line| line.text).collect();
        let expected = [
            "main (heat.c:9) [0-3] 100%",
            "├─ solve (heat.c:40) [3] 75%",
            "├─ save (heat.c:50) [3] 25%",
            "└─ MPI_Wait (heat) [0-2] 100%",
        ];
        assert_eq!(lines, expected);
        assert_eq!(title(&found), "4 ranks in 3 classes, 4 samples");
    }

    #[test]
    fn a_step_shows_its_known_parts() {
        let programs = ["/bin/heat".to_owned()].into();
        let check = |step: &Step, expected| assert_eq!(describe_step(step, &programs), expected);
        check(&step("f", 0), "f");
        check(&Step { module: Some("/usr/lib/libm.so.6".to_owned()), ..step("sin", 0) }, "sin (libm.so.6)");
        check(&Step { lines: [1, 2, 9].into(), ..step("f", 1) }, "f (heat.c:1,2,9)");
        check(&Step { lines: [1, 2, 3, 9].into(), ..step("f", 1) }, "f (heat.c:1-9)");
        let nameless = Step { offset: Some(16), module: Some("/l/x.so".to_owned()), ..step("x.so+0x10", 0) };
        check(&nameless, "x.so+0x10");
        check(&Step { is_mark: true, ..step("held", 0) }, "(held)");
    }

    #[test]
    fn a_million_ranks_in_a_thousand_classes_are_shown() {
        const RANKS: u32 = 1_000_000;
        const CLASSES: u32 = 1000;
        // Adjacent ranks are in different classes, so no set is short.
        let mut tree = PrefixTree::new();
        let names: Vec<String> = (0..CLASSES).map(|class| format!("@{class}\theat.c\tf{class}")).collect();
        for (class, name) in (0..).zip(&names) {
            let ranks: RankSet = (class..RANKS).step_by(CLASSES as usize).map(Rank).collect();
            tree.add(["@7\theat.c\tmain", &names[class as usize / 100], name], &ranks).unwrap();
        }
        let bytes = tree.encode().unwrap();
        let hosts = (0..RANKS).map(|rank| (Rank(rank), format!("n{}", rank / 100))).collect();
        let started = std::time::Instant::now();
        let tree = PrefixTree::decode(&bytes).unwrap();
        let classes = build_classes(&tree, &Resolver::default(), 1, false);
        assert_eq!(classes.len(), CLASSES as usize);
        let found = Findings { samples: 1, hosts, classes, ..Findings::default() };
        let page = build_page(&found, false);
        println!("{} bytes of call paths are a page after {:?}", bytes.len(), started.elapsed());
        assert!(page.as_str().starts_with("1000000 ranks in 1000 classes\nmain (heat.c:7) [0-999999]\n"));
    }
}
