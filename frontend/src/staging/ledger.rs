//! What a session's manifests have put where, so that a later one asks only for what is new.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::sync::Arc;

use gantry_shared::wire::staging::{Content, LibcNeeds, Place};

use super::content::Source;
use super::want::{Target, Want};

/// What stands at a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) source: Arc<Source>,
    /// Every node has it. Otherwise a manifest failed, and some may.
    pub(crate) everywhere: bool,
}

/// What a session has, as far as its manifests know.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ledger {
    pub(super) taken: BTreeMap<Target, Taken>,
    /// Folders below `lib` for libraries whose names were taken, with what is in them.
    pub(super) folders: BTreeMap<OsString, BTreeMap<OsString, Content>>,
    /// How many folders were made, or tried to be.
    pub(super) folders_made: u32,
    /// What nodes have been told of the C library that is needed, by loader. They have that version now, one way or another.
    pub(super) libc: BTreeMap<OsString, LibcNeeds>,
}

impl Ledger {
    /// What stands there.
    pub(crate) fn at(&self, place: Place, name: &OsStr) -> Option<&Taken> {
        // A tuple of borrowed parts is no borrowed tuple.
        self.taken.get(&(place, name.into()))
    }

    /// What is in it.
    pub(crate) fn content_at(&self, place: Place, name: &OsStr) -> Option<&Content> {
        self.at(place, name).map(|taken| &taken.source.facts.content)
    }

    /// As [`Ledger::at`], of what every node has.
    pub(crate) fn everywhere(&self, place: Place, name: &OsStr) -> Option<&Taken> {
        self.at(place, name).filter(|taken| taken.everywhere)
    }

    /// Says of what is wanted under new names where the session has its content. The C library's own family does not count: a node may have no use for it.
    pub(super) fn find_known(&self, wants: &mut [Want]) {
        let contents: HashSet<&Content> = wants.iter().map(|want| &want.source.facts.content).collect();
        let there = self.taken.iter().filter(|((place, _), it)| it.everywhere && *place != Place::Loader);
        let there = there.map(|(target, taken)| (&taken.source.facts.content, target));
        let there: HashMap<&Content, &Target> =
            there.filter(|(content, _)| contents.contains(content)).collect();
        let known: Vec<Option<Target>> =
            wants.iter().map(|want| there.get(&want.source.facts.content).copied().cloned()).collect();
        for (want, known) in wants.iter_mut().zip(known) {
            want.known = known;
        }
    }

    /// Takes note that a manifest which came to `planned` has failed: its names may be in use on some nodes.
    pub(crate) fn failed(&mut self, planned: &Self) {
        for (target, taken) in &planned.taken {
            self.taken.entry(target.clone()).or_insert_with(|| Taken { everywhere: false, ..taken.clone() });
        }
        self.folders_made = planned.folders_made;
    }
}
