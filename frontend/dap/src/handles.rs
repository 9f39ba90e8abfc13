//! Numbers by which editors name frames and variables. A number is valid while its ranks stay stopped.

use std::collections::BTreeMap;

use gantry_types::id::Rank;
use gantry_types::rank_set::RankSet;

/// The maximum number of handles. The oldest are dropped first.
const MAX_HANDLES: usize = 50_000;

/// The maximum number of addresses with a known rank.
const MAX_ADDRESSES: usize = 10_000;

/// The meaning of a handle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Handle {
    /// A frame.
    Frame,
    /// Variables of a function.
    Locals,
    /// Registers.
    Registers,
    /// An expression for which gdb has no variable object yet.
    Expression(String),
    /// A variable object of gdb: its children, starting at that index.
    Object(String, u32),
}

/// A handle's meaning and its owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Owned {
    pub(crate) ranks: RankSet,
    pub(crate) level: u32,
    pub(crate) handle: Handle,
}

/// All handles.
#[derive(Debug, Default)]
pub(crate) struct Handles {
    all: BTreeMap<i64, Owned>,
    last: i64,
    /// Top-level variable objects, with the ranks whose gdbs have them.
    objects: Vec<(String, RankSet)>,
    last_object: u64,
    /// gdb's names of listed variables, by the list and the name in it.
    children: BTreeMap<(i64, String), String>,
    addresses: BTreeMap<String, Rank>,
}

impl Handles {
    pub(crate) fn add(&mut self, ranks: &RankSet, level: u32, handle: Handle) -> i64 {
        self.last += 1;
        self.all.insert(self.last, Owned { ranks: ranks.clone(), level, handle });
        while self.all.len() > MAX_HANDLES {
            if let Some((first, _)) = self.all.pop_first() {
                self.children = self.children.split_off(&(first + 1, String::new()));
            }
        }
        self.last
    }

    pub(crate) fn get(&self, id: i64) -> Option<&Owned> {
        self.all.get(&id)
    }

    /// Creates a name for a new variable object in these ranks' gdbs.
    pub(crate) fn name_object(&mut self, ranks: &RankSet) -> String {
        self.last_object += 1;
        let name = format!("gantry{}", self.last_object);
        self.objects.push((name.clone(), ranks.clone()));
        name
    }

    pub(crate) fn add_child(&mut self, list: i64, name: &str, object: &str) {
        if self.all.contains_key(&list) {
            self.children.insert((list, name.to_owned()), object.to_owned());
        }
    }

    pub(crate) fn child(&self, list: i64, name: &str) -> Option<&String> {
        self.children.get(&(list, name.to_owned()))
    }

    /// Remembers that an address shown to an editor belongs to this rank.
    pub(crate) fn add_address(&mut self, address: &str, rank: Rank) {
        if self.addresses.len() >= MAX_ADDRESSES {
            self.addresses.clear();
        }
        self.addresses.insert(address.to_owned(), rank);
    }

    pub(crate) fn rank_of(&self, address: &str) -> Option<Rank> {
        self.addresses.get(address).copied()
    }

    /// Forgets the handles of these ranks, because the ranks continue. Returns the variable objects that are no longer
    /// used, with their ranks.
    pub(crate) fn forget(&mut self, ranks: &RankSet) -> Vec<(String, RankSet)> {
        self.all.retain(|_, owned| owned.ranks.is_disjoint(ranks));
        let all = &self.all;
        self.children.retain(|(list, _), _| all.contains_key(list));
        let is_old = |of: &RankSet| !of.is_disjoint(ranks);
        let old = self.objects.iter().filter(|(_, of)| is_old(of)).cloned().collect();
        self.objects.retain(|(_, of)| !is_old(of));
        old
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_of_ranks_that_go_on_is_forgotten() {
        let set = |text: &str| text.parse::<RankSet>().unwrap();
        let mut handles = Handles::default();
        let frame = handles.add(&set("0-3"), 0, Handle::Frame);
        let other = handles.add(&set("4"), 1, Handle::Locals);
        let name = handles.name_object(&set("0-3"));
        let list = handles.add(&set("0-3"), 0, Handle::Object(name.clone(), 0));
        handles.add_child(list, "x", "gantry1.x");
        assert_eq!(handles.child(list, "x").map(String::as_str), Some("gantry1.x"));
        handles.add_address("0x10", Rank(3));
        assert_eq!((handles.rank_of("0x10"), handles.rank_of("0x11")), (Some(Rank(3)), None));
        assert_eq!(handles.forget(&set("1")), [(name, set("0-3"))]);
        assert!(handles.get(frame).is_none() && handles.child(list, "x").is_none());
        assert_eq!(handles.get(other).unwrap().level, 1);
        assert!(handles.forget(&set("0-9")).is_empty());
    }

    #[test]
    fn they_are_bounded() {
        let mut handles = Handles::default();
        for _ in 0..=MAX_HANDLES {
            handles.add(&RankSet::first_n(1), 0, Handle::Frame);
        }
        assert!(handles.get(1).is_none() && handles.get(2).is_some());
    }
}
