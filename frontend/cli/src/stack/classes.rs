//! Ranks with one call path are one class. The smallest class comes first: the odd rank is in it.

use std::collections::BTreeMap;

use gantry_stack::frame::{Frame, Mark};
use gantry_stack::orders::ranks_of;
use gantry_types::filter::{PrefixTree, prefix_tree};
use gantry_types::rank_set::RankSet;

use super::essential::essential;
use super::resolve::Resolver;
use super::sets::unite;
pub(super) use super::step::marks;
pub(crate) use super::step::{Key, Step};
use super::waiting::waiting_name;

/// The most steps of a path that are kept. A longer path keeps its two ends.
const MOST_STEPS: usize = 256;

/// The mark of a rank that has ended.
pub(crate) const ENDED: &str = "ended";

/// Ranks at one place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Class {
    /// Outermost first.
    pub(crate) steps: Vec<Step>,
    /// The samples of ranks.
    pub(crate) numbers: RankSet,
    pub(crate) ranks: RankSet,
}

impl Class {
    /// The name of the thread, if it is not the first one of its rank.
    pub(crate) fn thread(&self) -> Option<&str> {
        self.steps.first().and_then(Step::thread_name)
    }
}

/// The classes of a tree of call paths. Without `full`, a path begins at `main` and ends at the first function that waits for others.
pub(crate) fn build_classes(tree: &PrefixTree, resolver: &Resolver, samples: u32, full: bool) -> Vec<Class> {
    let mut classes: BTreeMap<Vec<Key>, (Vec<Step>, RankSet)> = BTreeMap::new();
    for (path, numbers) in ends(tree) {
        let mut steps: Vec<Step> = path.iter().flat_map(|frame| steps_of(frame, resolver)).collect();
        if !full {
            steps = essential(steps);
        }
        shorten(&mut steps);
        let last = steps.len().saturating_sub(1);
        let key = steps.iter().enumerate().map(|(at, step)| step.key(at == last)).collect();
        let (known, there) = classes.entry(key).or_insert_with(|| (steps.clone(), RankSet::new()));
        *there = there.union(&numbers);
        if let (Some(known), Some(step)) = (known.last_mut(), steps.last()) {
            known.lines.extend(&step.lines);
        }
    }
    let mut classes: Vec<Class> = classes
        .into_values()
        .map(|(steps, numbers)| Class { steps, ranks: ranks_of(&numbers, samples), numbers })
        .collect();
    classes.sort_by_key(|class| (class.ranks.len(), class.ranks.first()));
    classes
}

/// Each path that ends at ranks, with these ranks.
pub(super) fn ends(tree: &PrefixTree) -> Vec<(Vec<Frame>, RankSet)> {
    let mut found = Vec::new();
    let mut path: Vec<Frame> = Vec::new();
    let mut ahead: Vec<(usize, prefix_tree::Frame<'_>)> = tree.outermost().map(|frame| (0, frame)).collect();
    while let Some((depth, frame)) = ahead.pop() {
        path.truncate(depth);
        path.push(Frame::parse(frame.name()));
        let on = unite(frame.calls().map(|call| call.ranks()));
        let here = frame.ranks().difference(&on);
        if !here.is_empty() {
            found.push((path.clone(), here));
        }
        ahead.extend(frame.calls().map(|call| (depth + 1, call)));
    }
    found
}

pub(super) fn steps_of(frame: &Frame, resolver: &Resolver) -> Vec<Step> {
    match frame {
        Frame::Mark(Mark::Held) => vec![Step::mark("held")],
        Frame::Mark(Mark::Stopped) => vec![Step::mark("stopped by a signal")],
        Frame::Mark(Mark::Ended) => vec![Step::mark(ENDED)],
        Frame::Mark(Mark::Thread(name)) => vec![Step::thread(name)],
        Frame::Mark(Mark::Kernel(None)) => vec![Step::mark("stuck in the kernel")],
        Frame::Mark(Mark::Kernel(Some(function))) => {
            vec![Step::mark(format!("stuck in {function} of the kernel"))]
        }
        Frame::Mark(Mark::Unreadable(why)) => vec![Step::unread(why)],
        Frame::LeftOut { all, .. } => vec![Step::left_out(*all)],
        Frame::Unknown => vec![Step { name: "??".to_owned(), ..Step::default() }],
        Frame::Script(call) => {
            let name = call.function.clone().unwrap_or_else(|| "??".to_owned());
            let lines = call.line.into_iter().collect();
            vec![Step { name, file: call.file.clone(), lines, is_script: true, ..Step::default() }]
        }
        Frame::Code { module, address } => {
            let path = resolver.path(module).unwrap_or("??").to_owned();
            let nameless = || {
                let file = path.rsplit('/').next().unwrap_or(&path);
                format!("{file}+{address:#x}")
            };
            let found = resolver.found(module, *address);
            if found.is_empty() {
                let name = nameless();
                return vec![Step { name, module: Some(path), offset: Some(*address), ..Step::default() }];
            }
            let step = |call: &gantry_stack::frame::Call| Step {
                name: call.function.clone().unwrap_or_else(nameless),
                module: Some(path.clone()),
                file: call.file.clone(),
                lines: call.line.into_iter().collect(),
                waits: call.function.as_deref().is_some_and(|name| waiting_name(name).is_some()),
                ..Step::default()
            };
            found.iter().map(|found| step(&found.call)).collect()
        }
    }
}

fn shorten(steps: &mut Vec<Step>) {
    if steps.len() > MOST_STEPS {
        let (above, below) = (MOST_STEPS / 2, MOST_STEPS / 2 - 1);
        let left_out = steps.len() - above - below;
        let middle = above..above + left_out;
        let count = steps[middle.clone()].iter().map(|step| step.left_out.unwrap_or(1));
        let note = Step::left_out(count.fold(0, u32::saturating_add));
        steps.splice(middle, [note]);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    pub(crate) use super::super::step::tests::step;
    use super::*;

    /// A class of such steps.
    pub(crate) fn class(steps: &[(&str, u32)], ranks: &str) -> Class {
        let ranks: RankSet = ranks.parse().unwrap();
        let steps = steps.iter().map(|(name, line)| step(name, *line)).collect();
        Class { steps, numbers: ranks.clone(), ranks }
    }

    #[test]
    fn an_endless_path_is_shortened_in_its_middle() {
        let mut steps: Vec<Step> = (0..1000).map(|line| step("f", line)).collect();
        // A daemon has left out some already.
        steps[500] = Step::left_out(7000);
        shorten(&mut steps);
        assert_eq!(steps.len(), MOST_STEPS);
        assert_eq!(steps[MOST_STEPS / 2].name, "7744 more");
        assert_eq!(steps.last().map(|step| step.lines.clone()), Some([999].into()));
    }

    #[test]
    fn ranks_at_one_place_are_one_class_and_the_smallest_comes_first() {
        let mut tree = PrefixTree::new();
        for (path, ranks) in [("?", "0-2"), ("? ?", "5"), ("!held ?", "3-4")] {
            tree.add(path.split(' '), &ranks.parse().unwrap()).unwrap();
        }
        let classes = build_classes(&tree, &Resolver::default(), 1, false);
        let shown: Vec<(usize, String)> =
            classes.iter().map(|class| (class.steps.len(), class.ranks.to_string())).collect();
        assert_eq!(shown, [(2, "5".to_owned()), (2, "3-4".to_owned()), (1, "0-2".to_owned())]);
        assert!(classes[1].steps[0].is_mark);
    }
}
