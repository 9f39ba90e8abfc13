//! What a tree of call paths looks like to people: stretches of calls that the same ranks have gone through, and where they part.

use gantry_frontend::types::filter::PrefixTree;
use gantry_frontend::types::filter::prefix_tree::Frame;
use gantry_frontend::types::rank_set::RankSet;

/// The most characters of ranks in a printed line. All of them are in the pictures' hints.
pub(crate) const MOST_CHARS: usize = 60;

/// Functions that call each other and in which the same ranks are, with what comes after them.
pub(crate) struct Stretch {
    /// Outermost first. Empty for ranks that stay behind where others have gone on.
    pub(crate) functions: Vec<String>,
    /// Who is in there, or further in.
    pub(crate) ranks: RankSet,
    /// Where they have gone on to: two or more, none at the end of a path.
    pub(crate) calls: Vec<Stretch>,
}

/// The outermost stretches of a tree.
pub(crate) fn stretches(tree: &PrefixTree) -> Vec<Stretch> {
    build(tree.outermost(), &tree.ranks())
}

/// Frames that were called by one in which these ranks are.
fn build<'a>(frames: impl Iterator<Item = Frame<'a>>, ranks: &RankSet) -> Vec<Stretch> {
    let mut left = ranks.clone();
    let mut calls: Vec<Stretch> = Vec::new();
    for mut frame in frames {
        left = left.difference(frame.ranks());
        let mut functions = vec![frame.name().to_owned()];
        while let Some(call) = only_call(&frame) {
            frame = call;
            functions.push(frame.name().to_owned());
        }
        let below = if frame.calls().len() == 0 { Vec::new() } else { build(frame.calls(), frame.ranks()) };
        calls.push(Stretch { functions, ranks: frame.ranks().clone(), calls: below });
    }
    if !left.is_empty() {
        calls.push(Stretch { functions: Vec::new(), ranks: left, calls: Vec::new() });
    }
    // Most ranks first: who looks for the odd ones finds them at the end.
    calls.sort_by_key(|call| std::cmp::Reverse(call.ranks.len()));
    calls
}

/// The only function that a frame has called, when all its ranks have gone there.
fn only_call<'a>(frame: &Frame<'a>) -> Option<Frame<'a>> {
    let mut calls = frame.calls();
    let call = calls.next()?;
    (calls.len() == 0 && call.ranks() == frame.ranks()).then_some(call)
}

impl Stretch {
    /// What stands for it in pictures: its functions, or a word for ranks that stay behind.
    pub(crate) fn lines(&self) -> Vec<&str> {
        if self.functions.is_empty() {
            vec!["(no further)"]
        } else {
            self.functions.iter().map(String::as_str).collect()
        }
    }

    /// `3 ranks: 0-2`, with as much of the ranks as has room in so many characters.
    pub(crate) fn ranks_line(&self, most: usize) -> String {
        format!("{}: {}", count(&self.ranks), shortened(&self.ranks, most))
    }
}

/// `1 rank`, `5 ranks`.
pub(crate) fn count(ranks: &RankSet) -> String {
    if ranks.len() == 1 { "1 rank".to_owned() } else { format!("{} ranks", ranks.len()) }
}

/// The tree as lines, `main > solve > wait [0,4-63]`, each path's branches below it.
pub(crate) fn text(stretches: &[Stretch]) -> String {
    let mut text = String::new();
    for stretch in stretches {
        write_line(stretch, &mut text);
        write_calls(stretch, "", &mut text);
    }
    text
}

fn write_calls(stretch: &Stretch, indent: &str, text: &mut String) {
    for (number, call) in stretch.calls.iter().enumerate() {
        let last = number + 1 == stretch.calls.len();
        text.push_str(indent);
        text.push_str(if last { "└─ " } else { "├─ " });
        write_line(call, text);
        write_calls(call, &format!("{indent}{}", if last { "   " } else { "│  " }), text);
    }
}

fn write_line(stretch: &Stretch, text: &mut String) {
    text.push_str(&stretch.lines().join(" > "));
    text.push_str(&format!(" [{}]\n", shortened(&stretch.ranks, MOST_CHARS)));
}

/// The ranks, cut between two of them where they need more characters.
fn shortened(ranks: &RankSet, most: usize) -> String {
    let all = ranks_text(ranks);
    if all.len() <= most {
        return all;
    }
    let whole = all[..most].rfind(',').unwrap_or(most);
    format!("{},...", &all[..whole])
}

/// The ranks as ranges: `0-3,7`, and `0-62:2` for every second one.
pub(crate) fn ranks_text(ranks: &RankSet) -> String {
    let mut items: Vec<String> = Vec::new();
    let ranges: Vec<(u32, u32)> = ranks.ranges().map(|range| (range.start().0, range.end().0)).collect();
    let mut at = 0;
    while let Some(&(first, last)) = ranges.get(at) {
        let step = ranges.get(at + 1).map_or(0, |next| next.0 - first);
        let in_step = |number: &usize| {
            let expected = u64::from(first) + u64::from(step) * *number as u64;
            ranges.get(at + number).is_some_and(|range| range.0 == range.1 && u64::from(range.0) == expected)
        };
        // Two with a step between them are no pattern.
        let count = (0..ranges.len() - at).take_while(in_step).count();
        if first == last && count > 2 {
            items.push(format!("{first}-{}:{step}", ranges[at + count - 1].0));
            at += count;
        } else {
            items.push(if first == last { first.to_string() } else { format!("{first}-{last}") });
            at += 1;
        }
    }
    items.join(",")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn tree(paths: &[(&str, &str)]) -> Vec<Stretch> {
        let mut tree = PrefixTree::new();
        for (path, ranks) in paths {
            tree.add(path.split_whitespace(), &ranks.parse().unwrap()).unwrap();
        }
        stretches(&tree)
    }

    #[test]
    fn one_line_a_stretch_and_branches_below() {
        let tree = tree(&[
            ("main solve exchange MPI_Waitall", "0-3,5-60"),
            ("main solve exchange", "61"),
            ("main solve exchange MPI_Isend poll", "62-63"),
            ("main io write", "4"),
        ]);
        let expected = "\
            main [0-63]\n\
            ├─ solve > exchange [0-3,5-63]\n\
            │  ├─ MPI_Waitall [0-3,5-60]\n\
            │  ├─ MPI_Isend > poll [62-63]\n\
            │  └─ (no further) [61]\n\
            └─ io > write [4]\n";
        assert_eq!(text(&tree), expected);
    }

    #[test]
    fn ranks_that_were_in_both_branches_are_shown_in_both() {
        assert_eq!(text(&tree(&[("a b", "0-1"), ("a c", "1")])), "a [0-1]\n├─ b [0-1]\n└─ c [1]\n");
        assert_eq!(text(&tree(&[])), "");
        assert_eq!(text(&tree(&[("", "0-3")])), "(no further) [0-3]\n");
    }

    #[test]
    fn steps_are_recognised() {
        let check = |ranks: &str, expected: &str| {
            assert_eq!(ranks_text(&ranks.parse().unwrap()), expected, "{ranks}");
        };
        check("", "");
        check("0-3,7", "0-3,7");
        check("0,2,4,6", "0-6:2");
        check("0,2", "0,2");
        check("0,2,4-5,8,10,12,17,27,37", "0,2,4-5,8-12:2,17-37:10");
        check("0,3,4294967295", "0,3,4294967295");
        check("1,4294967294", "1,4294967294");
    }

    #[test]
    fn long_sets_are_cut_between_ranks() {
        let ranks: RankSet = (0..100).map(|n| gantry_frontend::types::id::Rank(n * n)).collect();
        let cut = shortened(&ranks, MOST_CHARS);
        assert!(
            cut.starts_with("0-1,4,9,16,") && cut.ends_with(",...") && cut.len() < MOST_CHARS + 5,
            "{cut}"
        );
    }
}
