//! The files of a session's earlier manifests, so that a later one sends only new files.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::sync::Arc;

use gantry_shared::wire::staging::{Content, LibcNeeds, Place};

use super::content::Source;
use super::want::{Target, Want};

/// The entry for a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) source: Arc<Source>,
    /// All nodes have it. Otherwise a manifest failed, and only some nodes may have it.
    pub(crate) everywhere: bool,
}

/// The content of a session, according to its manifests.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ledger {
    pub(super) taken: BTreeMap<Target, Taken>,
    /// Folders below `lib` for libraries with conflicting names, and their content.
    pub(super) folders: BTreeMap<OsString, BTreeMap<OsString, Content>>,
    /// How many folders were created or attempted.
    pub(super) folders_made: u32,
    /// The C library requirements that nodes know, by loader. The nodes have a sufficient version now.
    pub(super) libc: BTreeMap<OsString, LibcNeeds>,
}

impl Ledger {
    /// The entry of a target.
    pub(crate) fn at(&self, place: Place, name: &OsStr) -> Option<&Taken> {
        // A tuple of borrowed parts cannot be looked up.
        self.taken.get(&(place, name.into()))
    }

    /// The content of a target.
    pub(crate) fn content_at(&self, place: Place, name: &OsStr) -> Option<&Content> {
        self.at(place, name).map(|taken| &taken.source.facts.content)
    }

    /// As [`Ledger::at`], but only if all nodes have it.
    pub(crate) fn everywhere(&self, place: Place, name: &OsStr) -> Option<&Taken> {
        self.at(place, name).filter(|taken| taken.everywhere)
    }

    /// Finds the existing copies of wanted content in the session. The C library's family does not count: a node may
    /// not have linked it.
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

    /// Records that the manifest of `planned` has failed: its names may exist on some nodes.
    pub(crate) fn failed(&mut self, planned: &Self) {
        for (target, taken) in &planned.taken {
            self.taken.entry(target.clone()).or_insert_with(|| Taken { everywhere: false, ..taken.clone() });
        }
        self.folders_made = planned.folders_made;
    }
}
