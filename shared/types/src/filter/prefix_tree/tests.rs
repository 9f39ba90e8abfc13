//! Trees of call paths: merging, size, and the bounded cost of a hostile part.

use super::*;
use crate::error::Kind;
use crate::id::Rank;

fn set(text: &str) -> RankSet {
    text.parse().unwrap()
}

fn tree(paths: &[(&str, &str)]) -> PrefixTree {
    let mut tree = PrefixTree::new();
    for (path, ranks) in paths {
        tree.add(path.split_whitespace(), &set(ranks)).unwrap();
    }
    tree
}

/// A line for each frame: its path and ranks.
fn lines(tree: &PrefixTree) -> Vec<String> {
    let mut lines = Vec::new();
    let mut waiting: Vec<_> = tree.outermost().map(|frame| (frame.name().to_owned(), frame)).collect();
    waiting.reverse();
    while let Some((path, frame)) = waiting.pop() {
        lines.push(format!("{path} {}", frame.ranks()));
        let calls: Vec<_> = frame.calls().map(|call| (format!("{path}>{}", call.name()), call)).collect();
        waiting.extend(calls.into_iter().rev());
    }
    lines
}

#[test]
fn ranks_that_came_the_same_way_share_a_branch() {
    let mut one = tree(&[("main solve wait", "0-3"), ("main solve wait", "5-7"), ("main io", "4")]);
    let two = tree(&[("main solve wait", "8-9"), ("main solve", "10"), ("start", "11"), ("", "12")]);
    one.merge(&two).unwrap();
    let expected = ["main 0-10", "main>io 4", "main>solve 0-3,5-10", "main>solve>wait 0-3,5-9", "start 11"];
    assert_eq!(lines(&one), expected);
    assert_eq!((one.ranks(), one.len()), (set("0-12"), 5));
    assert_eq!(PrefixTree::decode(&one.encode().unwrap()).unwrap(), one);
    assert_ne!(one, two);
    assert_eq!(format!("{one:?}"), "PrefixTree { ranks: {0-12}, frames: 5 }");
}

#[test]
fn a_rank_may_be_in_several_branches() {
    let samples = tree(&[("main a", "0-1"), ("main b", "0")]);
    assert_eq!(lines(&samples), ["main 0-1", "main>a 0-1", "main>b 0"]);
}

#[test]
fn names_and_ranks_are_written_once() {
    let name = "a_function_of_some_length";
    let recursion = vec![name; 100].join(" ");
    let part = tree(&[(&recursion, "0-99999")]).encode().unwrap();
    // Three bytes a frame, and once: the name, the ranks, three counts.
    assert_eq!(part.len(), 3 * 100 + (1 + name.len()) + 4 + 3);
    assert!(tree(&[]).encode().unwrap().is_empty());
    assert_eq!(PrefixTree::decode(&[]).unwrap(), PrefixTree::new());
}

#[test]
fn a_path_that_is_too_long_changes_nothing() {
    let mut some = tree(&[("main", "0")]);
    let ranks = set("1");
    some.add(vec!["f"; MAX_DEPTH], &ranks).unwrap();
    let before = some.clone();
    let long = "x".repeat(MAX_NAME_BYTES + 1);
    for path in [vec!["f"; MAX_DEPTH + 1], vec!["main", &long]] {
        assert_eq!(some.add(path, &ranks).unwrap_err().kind(), Kind::Invalid);
        assert_eq!(some, before);
    }
    assert_eq!(PrefixTree::decode(&some.encode().unwrap()).unwrap(), some);
}

#[test]
fn other_encodings_are_refused() {
    let refused = |part: &[u8], problem: &str| {
        let failure = PrefixTree::decode(part).unwrap_err();
        assert_eq!(failure.kind(), Kind::Protocol);
        assert!(failure.message().contains(problem), "{failure}");
    };
    // One name "f"; the outside calls one frame and has rank 0; the frame has that name, calls nothing, has its caller's ranks.
    let plain = [1, 1, b'f', 1, 1, 0, 0, 0, 0, 0];
    assert_eq!(lines(&PrefixTree::decode(&plain).unwrap()), ["f 0"]);
    refused(&plain[..9], "ends too early");
    refused(&[plain.as_slice(), &[0]].concat(), "more than its frames need");
    refused(&[0, 0, 0], "no ranks");
    refused(&[1, 1, 0xff, 1, 1, 0, 0, 0, 0, 0], "not text");
    refused(&[1, 1, b'f', 1, 1, 0, 0, 0, 0, 1, 0, 0], "repeats the ranks");
    refused(&[1, 1, b'f', 1, 1, 0, 0, 1, 0, 0], "more than 0 names by then");
    refused(&[2, 1, b'f', 1, b'g', 1, 1, 0, 0, 0, 0, 0], "more than its frames need");
    refused(&[2, 1, b'f', 1, b'f', 1, 1, 0, 0, 0, 0, 0], "there twice");
    refused(&[1, 1, b'f', 2, 1, 0, 0, 0, 0, 0, 0, 0, 0], "not ascending");
    refused(&[2, 1, b'g', 1, b'f', 2, 1, 0, 0, 0, 0, 0, 1, 0, 0], "not ascending");
    refused(&[0xff, 0xff, 0xff, 0x7f], "more than");
}

/// A part of a star: the outside has a large set, and `calls` frames have it too, at a few bytes each.
fn star(calls: u32, ranges: u32, own: Option<u32>) -> PrefixTree {
    let large: RankSet = (0..ranges).map(|n| Rank(2 * n)).collect();
    let mut tree = PrefixTree::new();
    tree.add([], &large).unwrap();
    let shared = Arc::clone(&tree.nodes[0].ranks);
    for call in 0..calls {
        let ranks =
            own.map_or_else(|| Arc::clone(&shared), |rank| Arc::new(set(&(rank + 2 * call).to_string())));
        tree.push(OUTSIDE, &format!("f{call}").into(), ranks);
    }
    tree
}

#[test]
fn a_small_part_that_names_a_large_set_often_is_no_large_work() {
    let large = star(100_000, 100_000, None);
    let part = large.encode().unwrap();
    assert!(part.len() < 2_000_000, "{}", part.len());
    let mut read = PrefixTree::decode(&part).unwrap();
    read.merge(&large).unwrap();
    assert_eq!(read, large);
    // Frames that all get another set from the same one: each union would be as large as that.
    let failure = read.merge(&star(100_000, 1, Some(1))).unwrap_err();
    assert!(failure.message().contains("ranges of ranks to go through"), "{failure}");
    assert_eq!(read, large);
    // The same with one more rank of the outside alone: the frames keep their set, which must now be written for each.
    read.merge(&tree(&[("", "1")])).unwrap();
    assert!(read.encode().unwrap_err().message().contains("bytes"));
}
