//! Functions and lines of addresses in files. Each file is read once and each address looked up once: here if the
//! file is here, else on a node that has it.
//!
//! Threads of their own read the files: where a file system hangs, the command goes on.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::time::Duration;

use gantry_stack::frame::Frame;
use gantry_stack::module::{Module, ModuleId};
use gantry_stack::symbols::{Found, Symbols, identify_file};
use gantry_types::filter::PrefixTree;
use gantry_types::filter::prefix_tree;
use tokio::sync::oneshot;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::timeout;

use super::aside::{Aside, FIRST_ANSWER};

/// An address in a file.
type Place = (ModuleId, u64);

/// The known files and addresses.
#[derive(Debug, Default)]
pub(crate) struct Resolver {
    paths: HashMap<ModuleId, BTreeSet<String>>,
    /// The symbols of each file; none for one that is not on this machine.
    files: HashMap<ModuleId, Aside<Option<Symbols>>>,
    places: HashMap<Place, Vec<Found>>,
    /// Files that neither this machine nor a node can read, and why.
    unreadable: BTreeMap<Module, String>,
    /// The paths of files whose frames in the last call paths are unknown, and why.
    unknown: BTreeMap<String, String>,
}

impl Resolver {
    /// Records the files that daemons have seen, and those that they could not read for the last call paths.
    pub(crate) fn take_modules(&mut self, tree: &PrefixTree) {
        self.unknown.clear();
        for file in tree.outermost() {
            if let Some(why) = file.calls().next() {
                self.unknown.insert(file.name().to_owned(), why.name().to_owned());
            } else if let Some(module) = Module::parse(file.name()) {
                self.paths.entry(module.id).or_default().insert(module.path);
            }
        }
    }

    /// Looks up all addresses of the call paths. Returns those whose files are not here, one per line. `reading` limits
    /// the time for the symbols of a file.
    pub(crate) async fn look_up(&mut self, tree: &PrefixTree, reading: Duration) -> Vec<String> {
        let mut wanted: BTreeMap<ModuleId, BTreeSet<u64>> = BTreeMap::new();
        for frame in all_frames(tree) {
            let Frame::Code { module, address } = Frame::parse(frame.name()) else { continue };
            wanted.entry(module).or_default().insert(address);
        }
        self.open(wanted.keys(), reading).await;
        let mut elsewhere = Vec::new();
        for (module, addresses) in wanted {
            for address in addresses {
                let place = (module.clone(), address);
                if self.places.contains_key(&place) {
                    continue;
                }
                if let Some(Aside::Done(Some(symbols))) = self.files.get(&module) {
                    self.places.insert(place, symbols.find(address));
                } else {
                    elsewhere.push(Frame::Code { module: module.clone(), address }.to_string());
                }
            }
        }
        elsewhere
    }

    /// Records the results of a node.
    pub(crate) fn take_found(&mut self, tree: &PrefixTree) {
        for place in tree.outermost() {
            if let (Some(module), Some(why)) = (Module::parse(place.name()), place.calls().next()) {
                self.unreadable.insert(module, why.name().to_owned());
            }
            let Frame::Code { module, address } = Frame::parse(place.name()) else { continue };
            let mut calls = Vec::new();
            let mut next = place.calls().next();
            // Record one chain of inlined calls per address. Another node's chain differs only in its debug information.
            while let Some(frame) = next {
                calls.extend(Found::parse(frame.name()));
                next = frame.calls().next();
            }
            self.places.entry((module, address)).or_insert(calls);
        }
    }

    /// Files without the names of all functions, and why.
    pub(crate) fn nameless(&self) -> Vec<(String, String)> {
        let unreadable = self.unreadable.iter().map(|(module, why)| (&module.path, why));
        let files: BTreeMap<&String, &String> = self.unknown.iter().chain(unreadable).collect();
        files.into_iter().map(|(path, why)| (path.clone(), why.clone())).collect()
    }

    /// The functions at an address, outermost first.
    pub(crate) fn found(&self, module: &ModuleId, address: u64) -> &[Found] {
        self.places.get(&(module.clone(), address)).map(Vec::as_slice).unwrap_or_default()
    }

    /// The path of a file, as the ranks see it.
    pub(crate) fn path(&self, module: &ModuleId) -> Option<&str> {
        self.paths.get(module)?.first().map(String::as_str)
    }

    /// Opens these files, all at once.
    async fn open(&mut self, modules: impl Iterator<Item = &ModuleId>, reading: Duration) {
        let mut opening = JoinSet::new();
        for module in modules {
            if let Some(known) = self.files.get_mut(module) {
                known.take_result().await;
                continue;
            }
            let paths = self.paths.get(module).into_iter().flatten().map(PathBuf::from).collect();
            let module = module.clone();
            opening.spawn(async move { (module.clone(), open(paths, module, reading).await) });
        }
        self.files.extend(opening.join_all().await);
    }
}

/// Opens the first of these paths that leads to this file, if one does.
async fn open(paths: Vec<PathBuf>, module: ModuleId, reading: Duration) -> Aside<Option<Symbols>> {
    let (found, is_found) = oneshot::channel();
    let symbols = spawn_blocking(move || {
        let mut paths = paths.into_iter();
        let path = paths.find(|path| identify_file(path).is_ok_and(|id| id == module))?;
        // The receiver may have given up.
        let _told = found.send(());
        Symbols::open(&path, &module).ok()
    });
    match timeout(FIRST_ANSWER, is_found).await {
        Ok(_) => Aside::wait(symbols, reading).await,
        Err(_) => Aside::Late(symbols),
    }
}

/// All frames of a tree, callers first.
fn all_frames(tree: &PrefixTree) -> impl Iterator<Item = prefix_tree::Frame<'_>> {
    let mut ahead: Vec<_> = tree.outermost().collect();
    std::iter::from_fn(move || {
        let frame = ahead.pop()?;
        ahead.extend(frame.calls());
        Some(frame)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATE: &str = "is not read in time";

    /// A tree of paths, each with the nodes that have it.
    fn tree(paths: &[(&[&str], &str)]) -> PrefixTree {
        let mut tree = PrefixTree::new();
        for (path, nodes) in paths {
            tree.add(path.iter().copied(), &nodes.parse().unwrap()).unwrap();
        }
        tree
    }

    #[test]
    fn a_file_whose_frames_are_unknown_is_named_until_the_next_call_paths() {
        let mut resolver = Resolver::default();
        resolver.take_modules(&tree(&[(&["/nowhere/x", LATE], "0"), (&["ab /nowhere/x"], "1")]));
        assert_eq!(resolver.nameless(), [("/nowhere/x".to_owned(), LATE.to_owned())]);
        assert_eq!(resolver.path(&ModuleId::parse("ab").unwrap()), Some("/nowhere/x"));
        resolver.take_modules(&tree(&[(&["ab /nowhere/x"], "0-1")]));
        assert!(resolver.nameless().is_empty());
    }
}
