//! Merges the classes into one tree, which shows common callers once. A chain of functions, each with a single
//! callee, is one stretch.

use std::collections::BTreeMap;

use gantry_types::id::Rank;
use gantry_types::rank_set::RankSet;

use super::classes::{Class, Key, Step};
use super::sets::unite;

/// Consecutive functions with the same ranks, and the callees of the last one, fewest ranks first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stretch {
    pub(crate) steps: Vec<Step>,
    pub(crate) ranks: RankSet,
    /// How many samples were seen here.
    pub(crate) samples: u64,
    pub(crate) calls: Vec<Stretch>,
}

/// A function while the tree is built.
#[derive(Default)]
struct Node {
    step: Step,
    /// The indexes of the classes that pass here.
    classes: Vec<usize>,
    /// Its callees, in order of their first class.
    calls: Vec<usize>,
    by_key: BTreeMap<Key, usize>,
    /// A class ends here.
    is_end: bool,
}

/// The tree of all classes.
pub(crate) fn build_tree(classes: &[Class]) -> Vec<Stretch> {
    let mut nodes = vec![Node::default()];
    for (which, class) in classes.iter().enumerate() {
        let last = class.steps.len().saturating_sub(1);
        let mut at = 0;
        for (depth, step) in class.steps.iter().enumerate() {
            let key = step.key(depth == last);
            let known = nodes[at].by_key.get(&key).copied();
            let next = known.unwrap_or(nodes.len());
            if known.is_none() {
                nodes.push(Node { step: step.clone(), ..Node::default() });
                nodes[at].by_key.insert(key, next);
                nodes[at].calls.push(next);
            }
            nodes[next].classes.push(which);
            at = next;
        }
        nodes[at].is_end = true;
    }
    stretches_of(classes, &nodes, 0)
}

/// The callees of a node as stretches. Paths have a bounded length, so the recursion does not exhaust the stack.
fn stretches_of(classes: &[Class], nodes: &[Node], at: usize) -> Vec<Stretch> {
    let calls = nodes[at].calls.iter();
    let mut stretches: Vec<Stretch> = calls.map(|call| stretch_of(classes, nodes, *call)).collect();
    stretches.sort_by_key(|stretch| (stretch.ranks.len(), stretch.ranks.first()));
    stretches
}

fn stretch_of(classes: &[Class], nodes: &[Node], mut at: usize) -> Stretch {
    let mut steps = vec![nodes[at].step.clone()];
    let here = || nodes[at].classes.iter().map(|which| &classes[*which]);
    let ranks = unite(here().map(|class| &class.ranks));
    let samples = unite(here().map(|class| &class.numbers)).len();
    while let [only] = nodes[at].calls.as_slice()
        && !nodes[at].is_end
    {
        at = *only;
        steps.push(nodes[at].step.clone());
    }
    Stretch { steps, ranks, samples, calls: stretches_of(classes, nodes, at) }
}

/// How many ranks, in words.
pub(crate) fn count(ranks: &RankSet) -> String {
    match ranks.len() {
        1 => "1 rank".to_owned(),
        many => format!("{many} ranks"),
    }
}

/// Ranks for people, with steps such as `0-62:2`. A long set is cut after whole ranges.
pub(crate) fn ranks_text(ranks: &RankSet, most: usize) -> String {
    let text = with_steps(ranks);
    if text.len() <= most {
        return text;
    }
    let end = text[..most].rfind(',').unwrap_or(most);
    format!("{},...", &text[..end])
}

/// The ranges of a set. Three or more ranks at equal distance are written as first, last and distance.
fn with_steps(ranks: &RankSet) -> String {
    let all: Vec<(u32, u32)> = ranks.ranges().map(|range| (range.start().0, range.end().0)).collect();
    let mut parts = Vec::new();
    let mut rest = all.as_slice();
    while let [(first, last), more @ ..] = rest {
        let step = match more.first() {
            Some((next, end)) if first == last && next == end => next - first,
            _ => 0,
        };
        let follows = |pair: &[(u32, u32)]| pair[1].0 == pair[1].1 && pair[1].0 - pair[0].0 == step;
        let many = 1 + rest.windows(2).take_while(|pair| step > 0 && follows(pair)).count();
        match rest[many - 1].1 {
            end if many > 2 => parts.push(format!("{first}-{end}:{step}")),
            _ if first == last => parts.push(first.to_string()),
            _ => parts.push(format!("{first}-{last}")),
        }
        rest = if many > 2 { &rest[many..] } else { more };
    }
    parts.join(",")
}

/// The host of a class whose ranks are all on one host.
pub(crate) fn only_host<'h>(ranks: &RankSet, hosts: &'h BTreeMap<Rank, String>) -> Option<&'h str> {
    const MOST: u64 = 64;
    if ranks.len() > MOST {
        return None;
    }
    let mut all = ranks.iter().map(|rank| hosts.get(&rank).map(String::as_str));
    let first = all.next()??;
    all.all(|host| host == Some(first)).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::super::classes::tests::class;
    use super::*;

    fn shown(stretches: &[Stretch]) -> Vec<String> {
        let names = |stretch: &Stretch| {
            stretch.steps.iter().map(|step| step.name.as_str()).collect::<Vec<_>>().join(">")
        };
        let each = stretches
            .iter()
            .map(|it| format!("{} {} ({})", names(it), it.ranks, shown(&it.calls).join("; ")));
        each.collect()
    }

    #[test]
    fn common_callers_of_classes_appear_once() {
        let classes = [
            class(&[("main", 9), ("solve", 40)], "3"),
            class(&[("main", 9), ("exchange", 12), ("MPI_Wait", 0)], "0-2,4-7"),
            class(&[("main", 5), ("start", 0)], "8-20"),
        ];
        let tree = build_tree(&classes);
        assert_eq!(
            shown(&tree),
            ["main 0-7 (solve 3 (); exchange>MPI_Wait 0-2,4-7 ())", "main>start 8-20 ()"]
        );
        assert_eq!(tree[0].samples, 8);
        // One rank waits in `main` itself, the other one below it.
        let classes = [class(&[("main", 0), ("f", 0)], "1"), class(&[("main", 0)], "0")];
        assert_eq!(shown(&build_tree(&classes)), ["main 0-1 (f 1 ())"]);
    }

    #[test]
    fn long_sets_and_hosts() {
        let check = |ranks: &str, expected| assert_eq!(ranks_text(&ranks.parse().unwrap(), 40), expected);
        check("0,2,4,6", "0-6:2");
        check("1-3,5,7,9-10,12,14", "1-3,5,7,9-10,12,14");
        check("0,3,6,10,12,14,20", "0-6:3,10-14:2,20");
        check("", "");
        assert_eq!(ranks_text(&"1,5,11".parse().unwrap(), 4), "1,5,...");
        let hosts: BTreeMap<Rank, String> =
            [(Rank(0), "a".to_owned()), (Rank(1), "a".to_owned()), (Rank(2), "b".to_owned())].into();
        assert_eq!(only_host(&"0-1".parse().unwrap(), &hosts), Some("a"));
        assert_eq!(only_host(&"1-2".parse().unwrap(), &hosts), None);
        assert_eq!(only_host(&"1,7".parse().unwrap(), &hosts), None);
        assert_eq!(count(&"7".parse().unwrap()), "1 rank");
    }
}
