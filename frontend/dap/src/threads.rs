//! Groups ranks at the same place into one thread of the editor. A thread keeps its number while most of its ranks stay
//! together.

use std::collections::BTreeMap;

use gantry_types::id::Rank;
use gantry_types::rank_set::RankSet;

/// The maximum number of remembered threads that have ended.
const MAX_GONE: usize = 10_000;

/// The maximum length of a list of ranks in a name.
const MAX_NAME_BYTES: usize = 60;

/// Ranks that form a group, and their state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) ranks: RankSet,
    /// The place where they are stopped, or that they run.
    pub(crate) label: String,
    pub(crate) stands: bool,
}

/// A thread of the editor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Thread {
    pub(crate) id: i64,
    pub(crate) part: Part,
}

/// The differences after a regrouping.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    pub(crate) started: Vec<i64>,
    pub(crate) exited: Vec<i64>,
    /// Some thread has a new name.
    pub(crate) is_renamed: bool,
}

/// All threads of an editor.
#[derive(Debug, Default)]
pub(crate) struct Threads {
    all: Vec<Thread>,
    last: i64,
    /// For each former thread one of its ranks: an editor may still use the thread's number.
    gone: BTreeMap<i64, Rank>,
}

impl Thread {
    /// The name: `ranks 0-3,5: solve`.
    pub(crate) fn name(&self) -> String {
        format!("{}: {}", ranks_text(&self.part.ranks), self.part.label)
    }
}

/// Ranks in the notation that people read. A long list is cut, and the total count is added.
pub(crate) fn ranks_text(ranks: &RankSet) -> String {
    let text = ranks.to_string();
    let word = if ranks.len() == 1 { "rank" } else { "ranks" };
    match text.len() <= MAX_NAME_BYTES {
        true => format!("{word} {text}"),
        false => {
            let end = text[..MAX_NAME_BYTES].rfind(',').unwrap_or(MAX_NAME_BYTES);
            format!("{word} {},... ({})", &text[..end], ranks.len())
        }
    }
}

impl Threads {
    pub(crate) fn all(&self) -> &[Thread] {
        &self.all
    }

    pub(crate) fn get(&self, id: i64) -> Option<&Thread> {
        self.all.iter().find(|thread| thread.id == id)
    }

    /// The thread with that number, or the thread that its ranks are in now.
    pub(crate) fn find(&self, id: i64) -> Option<&Thread> {
        self.get(id).or_else(|| {
            let rank = self.gone.get(&id)?;
            self.all.iter().find(|thread| thread.part.ranks.contains(*rank))
        })
    }

    /// Takes the new groups of ranks. A group gets the number of the thread with which it shares the most ranks.
    pub(crate) fn regroup(&mut self, parts: Vec<Part>) -> Changes {
        let mut pairs = Vec::new();
        for (old, thread) in self.all.iter().enumerate() {
            for (new, part) in parts.iter().enumerate() {
                let common = thread.part.ranks.intersection(&part.ranks).len();
                if common > 0 {
                    pairs.push((common, old, new));
                }
            }
        }
        pairs.sort_by_key(|(common, old, new)| (std::cmp::Reverse(*common), *old, *new));
        let mut ids: Vec<Option<i64>> = vec![None; parts.len()];
        let mut is_taken = vec![false; self.all.len()];
        for (_, old, new) in pairs {
            if !is_taken[old] && ids[new].is_none() {
                (is_taken[old], ids[new]) = (true, Some(self.all[old].id));
            }
        }
        let mut changes = Changes::default();
        for (thread, _) in self.all.iter().zip(&is_taken).filter(|(_, is_taken)| !**is_taken) {
            changes.exited.push(thread.id);
            self.gone.extend(thread.part.ranks.first().map(|rank| (thread.id, rank)));
        }
        while self.gone.len() > MAX_GONE {
            self.gone.pop_first();
        }
        let mut all = Vec::with_capacity(parts.len());
        for (part, id) in parts.into_iter().zip(ids) {
            let id = id.unwrap_or_else(|| {
                self.last += 1;
                changes.started.push(self.last);
                self.last
            });
            let thread = Thread { id, part };
            changes.is_renamed |= self.get(id).is_some_and(|old| old.name() != thread.name());
            all.push(thread);
        }
        all.sort_by_key(|thread| thread.id);
        self.all = all;
        changes
    }

    /// Running ranks stay in their thread. Running ranks without a thread form one group.
    pub(crate) fn running_parts(&self, running: &RankSet) -> Vec<RankSet> {
        let mut left = running.clone();
        let mut parts = Vec::new();
        for thread in &self.all {
            let part = thread.part.ranks.intersection(&left);
            left = left.difference(&part);
            parts.push(part);
        }
        parts.push(left);
        parts.retain(|part| !part.is_empty());
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(text: &str) -> RankSet {
        text.parse().unwrap()
    }

    fn parts(of: &[(&str, &str)]) -> Vec<Part> {
        let part = |(ranks, label): &(&str, &str)| Part {
            ranks: set(ranks),
            label: (*label).to_owned(),
            stands: *label != "running",
        };
        of.iter().map(part).collect()
    }

    fn names(threads: &Threads) -> Vec<String> {
        threads.all().iter().map(|thread| format!("{} {}", thread.id, thread.name())).collect()
    }

    #[test]
    fn numbers_stay_with_the_most_ranks() {
        let mut threads = Threads::default();
        let changes = threads.regroup(parts(&[("0-7", "running")]));
        assert_eq!((changes.started, changes.exited), (vec![1], vec![]));
        let changes = threads.regroup(parts(&[("3", "solve"), ("0-2,4-7", "running")]));
        assert_eq!((changes.started, changes.exited, changes.is_renamed), (vec![2], vec![], true));
        assert_eq!(names(&threads), ["1 ranks 0-2,4-7: running", "2 rank 3: solve"]);
        // The same ranks at another place are the same thread.
        let changes = threads.regroup(parts(&[("3", "main"), ("0-2,4-7", "solve")]));
        assert_eq!((changes.started.len(), changes.exited.len()), (0, 0));
        // The groups are together again.
        let changes = threads.regroup(parts(&[("0-7", "main")]));
        assert_eq!((changes.started, changes.exited), (vec![], vec![2]));
        assert_eq!((threads.find(2).unwrap().id, threads.get(2)), (1, None));
        let changes = threads.regroup(parts(&[("0-3", "a"), ("4-7", "b")]));
        assert_eq!((changes.started, changes.exited), (vec![3], vec![]));
        assert!(threads.regroup(Vec::new()).exited.len() == 2 && threads.all().is_empty());
    }

    #[test]
    fn ranks_that_run_stay_in_their_thread() {
        let mut threads = Threads::default();
        threads.regroup(parts(&[("0-3", "a"), ("4", "b")]));
        let running = threads.running_parts(&set("1-5"));
        assert_eq!(running, [set("1-3"), set("4"), set("5")]);
    }

    #[test]
    fn names_are_short() {
        let odd: RankSet = (0..512).step_by(2).map(Rank).collect();
        let name = ranks_text(&odd);
        assert!(
            name.starts_with("ranks 0,2,4,") && name.ends_with(",... (256)") && name.len() < 90,
            "{name}"
        );
    }
}
