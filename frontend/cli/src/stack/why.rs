//! Names in sentences the ranks that are at another place than the others.
//!
//! The place of a rank is the common part of all its samples; a rank that computes moves below it. Ranks at one place
//! form a group. The largest group is the reference for the others.
//!
//! The place of a rank is that of its first thread. Other threads are compared among those of the same name.

use std::collections::BTreeMap;

use gantry_types::id::Rank;
use gantry_types::rank_set::RankSet;
use serde::Serialize;

use super::classes::{Class, ENDED, Key, Step, marks};
use super::report::{Findings, Gaps};
use super::tree::{only_host, ranks_text};
use super::waiting::{is_foreign, is_system};

/// The most letters of a set of ranks.
const MOST_RANKS: usize = 60;

/// Ranks at one place.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Group {
    /// The functions that all of them are in, outermost first.
    steps: Vec<Step>,
    ranks: RankSet,
}

/// The groups of one look.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Groups {
    /// By the first thread, the smallest first.
    ranks: Vec<Group>,
    /// By the other threads, under their names.
    threads: BTreeMap<String, Vec<Group>>,
}

/// The object of `--json`.
#[derive(Debug, Serialize)]
pub(crate) struct Explanation<'f> {
    /// Whether the last two looks were the same.
    pub(crate) stable: bool,
    pub(crate) sentences: Vec<String>,
    groups: Vec<GroupReport<'f>>,
    /// The threads beside the first one that are not at the same place in all ranks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    threads: Vec<ThreadReport<'f>>,
    #[serde(flatten)]
    pub(crate) gaps: Gaps<'f>,
}

#[derive(Debug, Serialize)]
struct ThreadReport<'f> {
    thread: &'f str,
    groups: Vec<GroupReport<'f>>,
}

#[derive(Debug, Serialize)]
struct GroupReport<'f> {
    ranks: String,
    rank_count: u64,
    #[serde(skip)]
    is_unread: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<&'f str>,
    /// Marks of the ranks themselves, such as `held`.
    states: Vec<&'f str>,
    /// The library function in which they wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    waits_in: Option<&'f str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    function: Option<&'f str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'f str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
}

impl Groups {
    pub(crate) fn new(classes: &[Class]) -> Self {
        let mut first = Vec::new();
        let mut others: BTreeMap<&str, Vec<(&[Step], &RankSet)>> = BTreeMap::new();
        for class in classes {
            match class.thread() {
                None => first.push((class.steps.as_slice(), &class.ranks)),
                Some(name) => others.entry(name).or_default().push((&class.steps[1..], &class.ranks)),
            }
        }
        let threads = others.into_iter().map(|(name, paths)| (name.to_owned(), build_groups(&paths)));
        Self { ranks: build_groups(&first), threads: threads.collect() }
    }

    /// Takes the next look. Returns whether the same ranks are at the same places, at any line of these. Threads
    /// beside the first one may move: those that have are left out.
    pub(crate) fn replace(&mut self, mut next: Self) -> bool {
        next.threads.retain(|name, groups| {
            self.threads.get(name).is_some_and(|before| Group::are_alike(before, groups))
        });
        let alike = Group::are_alike(&self.ranks, &next.ranks);
        *self = next;
        alike
    }
}

/// The groups of paths, the smallest first.
fn build_groups(paths: &[(&[Step], &RankSet)]) -> Vec<Group> {
    // The paths of each rank's samples. Ranks with the same paths are in one group.
    let mut paths_of: BTreeMap<Rank, Vec<usize>> = BTreeMap::new();
    for (at, (_, ranks)) in paths.iter().enumerate() {
        ranks.iter().for_each(|rank| paths_of.entry(rank).or_default().push(at));
    }
    let mut alike: BTreeMap<Vec<usize>, RankSet> = BTreeMap::new();
    for (rank, of) in paths_of {
        alike.entry(of).or_default().insert(rank);
    }
    let mut groups: BTreeMap<Vec<Key>, Group> = BTreeMap::new();
    for (of, ranks) in alike {
        let steps = in_common(of.iter().map(|at| paths[*at].0));
        let last = steps.len().saturating_sub(1);
        let key = steps.iter().enumerate().map(|(at, step)| step.key(at == last)).collect();
        let group =
            groups.entry(key).or_insert_with(|| Group { steps: steps.clone(), ranks: RankSet::new() });
        group.ranks = group.ranks.union(&ranks);
        if let (Some(known), Some(step)) = (group.steps.last_mut(), steps.last()) {
            known.lines.extend(&step.lines);
        }
    }
    let mut groups: Vec<Group> = groups.into_values().collect();
    groups.sort_by_key(|group| (group.ranks.len(), group.ranks.first()));
    groups
}

/// The common beginning of all paths. The line of its last function may differ.
fn in_common<'a>(mut paths: impl Iterator<Item = &'a [Step]>) -> Vec<Step> {
    let mut common: Vec<Step> = paths.next().map(<[Step]>::to_vec).unwrap_or_default();
    for path in paths {
        let same = |at: usize| common[at].key(true) == path[at].key(true);
        let mut length = 0;
        while length < common.len().min(path.len()) && same(length) {
            length += 1;
            // Calls from different lines lead to different paths.
            if common[length - 1].lines != path[length - 1].lines {
                break;
            }
        }
        common.truncate(length);
        if let Some(last) = length.checked_sub(1) {
            common[last].lines.extend(&path[last].lines);
        }
    }
    common
}

/// Builds the sentences.
pub(crate) fn explain<'f>(found: &'f Findings, groups: &'f Groups, stable: bool) -> Explanation<'f> {
    let mut sentences = Vec::new();
    let unseen = found.unseen();
    let (unread, read): (Vec<&Group>, Vec<&Group>) = groups.ranks.iter().partition(|it| it.is_unread());
    match read.split_last() {
        None if !unread.is_empty() => {}
        None => sentences.push("no rank was seen".to_owned()),
        Some((all, [])) => {
            let count = all.ranks.len();
            let who = match (count, unseen.is_empty() && unread.is_empty()) {
                (1, true) => "the only rank".to_owned(),
                (1, false) => "the only rank that was seen".to_owned(),
                (_, true) => format!("all {count} ranks"),
                (_, false) => format!("all {count} ranks that were seen"),
            };
            sentences.push(format!("{who} {}: no rank is at another place", all.does(count > 1)));
        }
        Some((most, odd)) => sentences.extend(tell_odd(found, most, odd, "", "rank")),
    }
    let differ = groups.threads.iter().filter(|(_, groups)| groups.len() > 1);
    for (name, groups) in differ.clone() {
        if let Some((most, odd)) = groups.iter().collect::<Vec<_>>().split_last() {
            sentences.extend(tell_odd(found, most, odd, &format!("thread `{name}` of "), "that of rank"));
        }
    }
    let is = |group: &Group| group.does(group.ranks.len() > 1);
    sentences.extend(unread.iter().map(|group| format!("{} {}", group.who(found), is(group))));
    if !unseen.is_empty() {
        sentences.push(format!("not seen: {}", ranks_text(&unseen, MOST_RANKS)));
    }
    let report = |groups: &'f [Group]| groups.iter().map(|group| group.report(found)).collect();
    let threads = differ.map(|(thread, groups)| ThreadReport { thread, groups: report(groups) }).collect();
    Explanation { stable, sentences, groups: report(&groups.ranks), threads, gaps: Gaps::of(found) }
}

/// A sentence for each odd group. The first one also tells where most ranks are. `whose` stands before the odd ranks,
/// `noun` before the number of the other rank, if it is one.
fn tell_odd(found: &Findings, most: &Group, odd: &[&Group], whose: &str, noun: &str) -> Vec<String> {
    let count = most.ranks.len();
    let others = match count {
        1 => format!(" while {noun} {} {}", most.ranks, most.does(false)),
        _ => format!(" while {count} others {}", most.does(true)),
    };
    let sentences = odd.iter().enumerate().map(|(at, group)| {
        let others = if at == 0 { others.as_str() } else { "" };
        // A thread of each of these ranks: the sentence is about one thread by name.
        let is_many = whose.is_empty() && group.ranks.len() > 1;
        format!("{whose}{} {}{others}", group.who(found), group.does(is_many))
    });
    sentences.collect()
}

impl Explanation<'_> {
    /// The ranks of the smallest group, where there is more than one.
    pub(crate) fn odd_ranks(&self) -> Option<&str> {
        let mut read = self.groups.iter().filter(|group| !group.is_unread);
        let smallest = read.next()?;
        read.next().map(|_larger| smallest.ranks.as_str())
    }
}

impl Group {
    /// Whether the same ranks are at the same places, at any line of these.
    fn are_alike(these: &[Self], those: &[Self]) -> bool {
        let key = |group: &Self| group.steps.iter().map(|step| step.key(true)).collect::<Vec<_>>();
        let alike = |(one, other): (&Self, &Self)| one.ranks == other.ranks && key(one) == key(other);
        these.len() == those.len() && these.iter().zip(those).all(alike)
    }

    /// Whether nothing is known of their stacks.
    fn is_unread(&self) -> bool {
        matches!(&self.steps[..], [step] if step.is_unread())
    }

    /// The ranks and their host.
    fn who(&self, found: &Findings) -> String {
        let noun = if self.ranks.len() == 1 { "rank" } else { "ranks" };
        let host = only_host(&self.ranks, &found.hosts).filter(|_| found.is_spread());
        let host = host.map(|host| format!(" on {host}")).unwrap_or_default();
        format!("{noun} {}{host}", ranks_text(&self.ranks, MOST_RANKS))
    }

    /// The verb phrase for one or many of them.
    fn does(&self, many: bool) -> String {
        let is = if many { "are" } else { "is" };
        let states: Vec<&str> = marks(&self.steps).collect();
        let place = self.place(many);
        match (states.is_empty(), place) {
            (true, Some(place)) => place,
            (true, None) => format!("{is} at no common place"),
            (false, None) if states == [ENDED] => format!("{} ended", if many { "have" } else { "has" }),
            (false, None) => format!("{is} {}", states.join(", ")),
            (false, Some(_)) => {
                let inner = self.own().or(self.steps.last()).map(called).unwrap_or_default();
                format!("{is} {}, in {inner}", states.join(", "))
            }
        }
    }

    fn place(&self, many: bool) -> Option<String> {
        let last = self.steps.last().filter(|step| step.is_function())?;
        if last.waits {
            let by = self.own().map(|step| match (&step.file, step.lines.first()) {
                (Some(_), Some(_)) => format!(" called at {}", source(step)),
                _ => format!(" called by `{}`", step.name),
            });
            let waits = if many { "wait" } else { "waits" };
            return Some(format!("{waits} in {}{}", last.name, by.unwrap_or_default()));
        }
        let is = if many { "are" } else { "is" };
        Some(format!("{is} in {}", called(self.own().unwrap_or(last))))
    }

    /// The innermost function with a source of the program. Without one: the innermost function outside system
    /// libraries that does not wait.
    fn own(&self) -> Option<&Step> {
        let functions = || self.steps.iter().rev().filter(|step| step.is_function() && !step.waits);
        let is_own = |step: &&Step| !step.module.as_deref().is_some_and(is_system);
        let has_source = |step: &&Step| step.file.as_deref().is_some_and(|file| !is_foreign(file));
        let known = functions().filter(is_own).find(has_source);
        known.or_else(|| functions().find(is_own)).or_else(|| functions().next())
    }

    fn report<'f>(&'f self, found: &'f Findings) -> GroupReport<'f> {
        let own = self.own();
        GroupReport {
            ranks: self.ranks.to_string(),
            rank_count: self.ranks.len(),
            is_unread: self.is_unread(),
            host: only_host(&self.ranks, &found.hosts),
            states: marks(&self.steps).collect(),
            waits_in: self.steps.last().filter(|step| step.waits).map(|step| step.name.as_str()),
            function: own.map(|step| step.name.as_str()),
            file: own.and_then(|step| step.file.as_deref()),
            line: own.and_then(|step| step.lines.first().copied()),
        }
    }
}

/// A function with its place in the source.
fn called(step: &Step) -> String {
    match step.file {
        Some(_) => format!("`{}` ({})", step.name, source(step)),
        None => format!("`{}`", step.name),
    }
}

fn source(step: &Step) -> String {
    let file = step.file.as_deref().unwrap_or_default();
    let file = file.rsplit('/').next().unwrap_or(file);
    match (step.lines.first(), step.lines.last()) {
        (Some(first), Some(last)) if first != last => format!("{file}:{first}-{last}"),
        (Some(line), _) => format!("{file}:{line}"),
        _ => file.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::classes::tests::{class, step};
    use super::*;

    fn said(classes: Vec<Class>, hosts: &[(u32, &str)]) -> Vec<String> {
        let hosts = hosts.iter().map(|(rank, host)| (Rank(*rank), (*host).to_owned())).collect();
        let found = Findings { samples: 1, hosts, classes, ..Findings::default() };
        explain(&found, &Groups::new(&found.classes), true).sentences
    }

    #[test]
    fn the_odd_rank_has_a_sentence_with_its_place() {
        let classes = vec![
            class(&[("main", 120), ("solve", 141), ("sin", 0)], "3"),
            class(&[("main", 121), ("exchange", 98), ("MPI_Allreduce", 0)], "0-2,4"),
        ];
        let hosts = [(0, "n1"), (1, "n1"), (2, "n1"), (3, "n2"), (4, "n2")];
        let expected = "rank 3 on n2 is in `solve` (heat.c:141) while 4 others wait in MPI_Allreduce called at heat.c:98";
        assert_eq!(said(classes, &hosts), [expected]);
    }

    #[test]
    fn ranks_that_are_alike_are_told_so() {
        let all = || vec![class(&[("main", 9), ("MPI_Barrier", 0)], "0-3")];
        let expected = "all 4 ranks wait in MPI_Barrier called at heat.c:9: no rank is at another place";
        assert_eq!(said(all(), &[]), [expected]);
        let expected = [
            "all 4 ranks that were seen wait in MPI_Barrier called at heat.c:9: no rank is at another place",
            "not seen: 7",
        ];
        assert_eq!(said(all(), &[(0, "a"), (7, "a")]), expected);
        let expected = "the only rank that was seen waits in MPI_Barrier called at heat.c:9: no rank is at another place";
        assert_eq!(
            said(vec![class(&[("main", 9), ("MPI_Barrier", 0)], "0")], &[(0, "a"), (7, "a")])[0],
            expected
        );
        assert_eq!(said(Vec::new(), &[]), ["no rank was seen"]);
    }

    #[test]
    fn a_rank_that_is_not_read_does_not_hide_the_odd_one() {
        let mut unread = class(&[("", 0)], "0");
        unread.steps = vec![Step::unread("process 7 traces it already")];
        let classes = || {
            let odd = class(&[("main", 9), ("pthread_mutex_lock", 0)], "1");
            vec![unread.clone(), odd, class(&[("main", 8), ("MPI_Barrier", 0)], "2-3")]
        };
        let expected = [
            "rank 1 waits in pthread_mutex_lock called at heat.c:9 while 2 others wait in MPI_Barrier called at heat.c:8",
            "rank 0 is not read: process 7 traces it already",
        ];
        assert_eq!(said(classes(), &[]), expected);
        let found = Findings { samples: 1, classes: classes(), ..Findings::default() };
        assert_eq!(explain(&found, &Groups::new(&found.classes), true).odd_ranks(), Some("1"));
        let seen = classes().split_off(2);
        let all = said([vec![unread.clone()], seen].concat(), &[]);
        assert_eq!(
            all,
            [
                "all 2 ranks that were seen wait in MPI_Barrier called at heat.c:8: no rank is at another place",
                expected[1]
            ]
        );
        assert_eq!(said(vec![unread.clone()], &[]), [expected[1]]);
    }

    #[test]
    fn programs_get_what_the_findings_lack() {
        let found = Findings {
            hosts: [(Rank(0), "n1".to_owned()), (Rank(7), "n2".to_owned())].into(),
            classes: vec![class(&[("main", 9)], "0")],
            missing: vec![("n2".to_owned(), "it is lost".to_owned())],
            nameless: vec![("/opt/app".to_owned(), "has changed".to_owned())],
            ..Findings::default()
        };
        let json = serde_json::to_value(explain(&found, &Groups::new(&found.classes), true)).unwrap();
        assert_eq!((&json["not_seen"], &json["missing"][0]["host"]), (&"7".into(), &"n2".into()));
        assert_eq!(json["nameless"][0]["file"], "/opt/app");
    }

    #[test]
    fn a_rank_that_moves_is_where_all_its_samples_are() {
        let classes = vec![
            class(&[("main", 9), ("solve", 40), ("sin", 0)], "0"),
            class(&[("main", 9), ("solve", 42), ("cos", 0)], "0"),
            class(&[("main", 9), ("MPI_Wait", 0)], "1"),
        ];
        let expected =
            "rank 0 is in `solve` (heat.c:40-42) while rank 1 waits in MPI_Wait called at heat.c:9";
        assert_eq!(said(classes, &[]), [expected]);
    }

    #[test]
    fn stopped_ranks_are_named_as_such() {
        let mut stopped = class(&[("main", 9), ("solve", 40)], "2");
        stopped.steps.insert(0, Step { is_mark: true, ..step("stopped by a signal", 0) });
        let mut ended = class(&[], "5-6");
        ended.steps.push(Step { is_mark: true, ..step(ENDED, 0) });
        let classes = vec![stopped, ended, class(&[("main", 9), ("MPI_Wait", 0)], "0-1,3-4")];
        let expected = [
            "rank 2 is stopped by a signal, in `solve` (heat.c:40) while 4 others wait in MPI_Wait called at heat.c:9",
            "ranks 5-6 have ended",
        ];
        assert_eq!(said(classes, &[]), expected);
    }

    /// A path of a thread beside the first one.
    fn of_thread(name: &str, steps: &[(&str, u32)], ranks: &str) -> Class {
        let mut class = class(steps, ranks);
        class.steps.insert(0, Step::thread(name));
        class
    }

    #[test]
    fn threads_beside_the_first_one_do_not_hide_the_odd_rank() {
        let classes = || {
            vec![
                class(&[("main", 120), ("solve", 141)], "3"),
                of_thread("helper", &[("help", 20), ("poll", 0)], "0-4"),
                class(&[("main", 121), ("MPI_Allreduce", 0)], "0-2,4"),
            ]
        };
        let expected =
            "rank 3 is in `solve` (heat.c:141) while 4 others wait in MPI_Allreduce called at heat.c:121";
        assert_eq!(said(classes(), &[]), [expected]);
        let found = Findings { samples: 1, classes: classes(), ..Findings::default() };
        let groups = Groups::new(&found.classes);
        let explanation = explain(&found, &groups, true);
        assert_eq!((explanation.odd_ranks(), explanation.threads.len()), (Some("3"), 0));
    }

    #[test]
    fn a_thread_at_another_place_than_those_of_its_name_is_told() {
        let classes = || {
            vec![
                class(&[("main", 9), ("MPI_Barrier", 0)], "0-3"),
                of_thread("writer", &[("write_parts", 30), ("pthread_mutex_lock", 0)], "1"),
                of_thread("writer", &[("write_parts", 31), ("fsync", 0)], "0,2-3"),
                of_thread("reader", &[("read_parts", 40), ("read", 0)], "0-3"),
                // Two of this name in rank 2.
                of_thread("mate", &[("work", 50)], "2"),
                of_thread("mate", &[("help", 51), ("poll", 0)], "2,3"),
            ]
        };
        let expected = [
            "all 4 ranks wait in MPI_Barrier called at heat.c:9: no rank is at another place",
            "thread `mate` of rank 2 is at no common place while that of rank 3 waits in poll called at heat.c:51",
            "thread `writer` of rank 1 waits in pthread_mutex_lock called at heat.c:30 while 3 others wait in fsync called at heat.c:31",
        ];
        assert_eq!(said(classes(), &[]), expected);
        let found = Findings { samples: 1, classes: classes(), ..Findings::default() };
        let json = serde_json::to_value(explain(&found, &Groups::new(&found.classes), true)).unwrap();
        assert_eq!(json["threads"][1]["thread"], "writer");
        assert_eq!(json["threads"][1]["groups"][0]["waits_in"], "pthread_mutex_lock");
    }

    #[test]
    fn a_thread_that_moves_from_look_to_look_is_not_told() {
        let look = |line, place| {
            Groups::new(&[
                class(&[("main", 9), ("MPI_Barrier", 0)], "0-1"),
                of_thread("worker", &[("work", line), (place, 0)], "1"),
                of_thread("worker", &[("rest", 7), ("poll", 0)], "0"),
            ])
        };
        let mut groups = look(30, "sin");
        assert!(groups.replace(look(30, "sin")) && groups.threads.len() == 1);
        assert!(groups.replace(look(31, "cos")) && groups.threads.is_empty());
    }
}
