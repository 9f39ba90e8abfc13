//! Functions and lines of addresses in files. Each file is read once and each address looked up once: here if the
//! file is here, else on a node that has it.
//!
//! Threads of their own read the files: where a file system hangs, the command goes on.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::time::Duration;

use gantry_stack::frame::Frame;
use gantry_stack::module::{HAS_CHANGED, Module, ModuleId};
use gantry_stack::symbols::{Found, Symbols, identify_file};
use gantry_types::filter::PrefixTree;
use gantry_types::filter::prefix_tree;
use gantry_types::rank_set::RankSet;
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
    /// What is known of other places, until their files can be read.
    meanwhile: HashMap<Place, Vec<Found>>,
    /// Files that neither this machine nor a node can read, and why.
    unreadable: BTreeMap<Module, String>,
    /// The paths of files whose frames in the last call paths are unknown, and why.
    unknown: BTreeMap<String, String>,
}

/// What nodes say of a file that they cannot read.
#[derive(Debug, Default)]
struct Gap {
    nodes: RankSet,
    /// A node may be able to read it later.
    may_end: bool,
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
        self.unreadable.retain(|_, why| why == HAS_CHANGED);
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
        let mut gaps: BTreeMap<ModuleId, Gap> = BTreeMap::new();
        let mut reasons: Vec<(Module, &str)> = Vec::new();
        for file in tree.outermost() {
            let (Some(module), Some(why)) = (Module::parse(file.name()), file.calls().next()) else {
                continue;
            };
            let gap = gaps.entry(module.id.clone()).or_default();
            gap.nodes = gap.nodes.union(file.ranks());
            gap.may_end |= why.name() != HAS_CHANGED;
            reasons.push((module, why.name()));
        }
        // Whether a node that can read the file has found all places in it.
        let mut is_read: BTreeMap<ModuleId, bool> = BTreeMap::new();
        for place in tree.outermost() {
            let Frame::Code { module, address } = Frame::parse(place.name()) else { continue };
            let gap = gaps.get(&module);
            let can_read = |frame: &prefix_tree::Frame<'_>| {
                gap.is_none_or(|gap| !frame.ranks().difference(&gap.nodes).is_empty())
            };
            let is_whole = can_read(&place);
            *is_read.entry(module.clone()).or_insert(true) &= is_whole;
            // Record one chain of inlined calls per address, of a node that can read the file if there is one. Another
            // node's chain differs only in its debug information.
            let mut next = place.calls().find(can_read).or_else(|| place.calls().next());
            let mut calls = Vec::new();
            while let Some(frame) = next {
                calls.extend(Found::parse(frame.name()));
                next = frame.calls().next();
            }
            let is_late_here = matches!(self.files.get(&module), Some(Aside::Late(_)));
            let stays = is_whole || !(is_late_here || gap.is_some_and(|gap| gap.may_end));
            let places = if stays { &mut self.places } else { &mut self.meanwhile };
            places.insert((module, address), calls);
        }
        let missing = reasons.into_iter().filter(|(module, _)| is_read.get(&module.id) != Some(&true));
        self.unreadable.extend(missing.map(|(module, why)| (module, why.to_owned())));
    }

    /// Files without the names of all functions, and why.
    pub(crate) fn nameless(&self) -> Vec<(String, String)> {
        let unreadable = self.unreadable.iter().map(|(module, why)| (&module.path, why));
        let files: BTreeMap<&String, &String> = self.unknown.iter().chain(unreadable).collect();
        files.into_iter().map(|(path, why)| (path.clone(), why.clone())).collect()
    }

    /// The functions at an address, outermost first.
    pub(crate) fn found(&self, module: &ModuleId, address: u64) -> &[Found] {
        let place = (module.clone(), address);
        let found = self.places.get(&place).or_else(|| self.meanwhile.get(&place));
        found.map(Vec::as_slice).unwrap_or_default()
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
    use std::sync::mpsc::channel;

    use tokio::task::yield_now;

    use super::*;

    const LATE: &str = "is not read in time";
    const FILE: &str = "ab /nowhere/x";

    /// A tree of paths, each with the nodes that have it.
    fn tree(paths: &[(&[&str], &str)]) -> PrefixTree {
        let mut tree = PrefixTree::new();
        for (path, nodes) in paths {
            tree.add(path.iter().copied(), &nodes.parse().unwrap()).unwrap();
        }
        tree
    }

    async fn look_up(resolver: &mut Resolver) -> Vec<String> {
        let stacks = tree(&[(&["ab+1"], "0-7")]);
        timeout(Duration::from_secs(60), resolver.look_up(&stacks, Duration::from_secs(60))).await.unwrap()
    }

    fn check(resolver: &Resolver, name: Option<&str>, note: Option<&str>) {
        let found = resolver.found(&ModuleId::parse("ab").unwrap(), 1);
        assert_eq!(found.first().and_then(|found| found.call.function.as_deref()), name);
        let note = note.map(|why| ("/nowhere/x".to_owned(), why.to_owned()));
        assert_eq!(resolver.nameless(), Vec::from_iter(note));
    }

    #[tokio::test]
    async fn names_and_notes_of_a_late_file_last_until_a_node_has_read_it() {
        let mut resolver = Resolver::default();
        resolver.take_modules(&tree(&[(&[FILE], "0")]));
        assert_eq!(look_up(&mut resolver).await, ["ab+1"]);
        resolver.take_found(&tree(&[(&[FILE, LATE], "0"), (&["ab+1", "c\t\texport"], "0")]));
        check(&resolver, Some("export"), Some(LATE));
        assert_eq!(look_up(&mut resolver).await, ["ab+1"]);
        check(&resolver, Some("export"), None);
        // Another node has none of its exports either.
        resolver.take_found(&tree(&[(&[FILE, LATE], "0-1"), (&["ab+1", "c\t\texport"], "0")]));
        check(&resolver, Some("export"), Some(LATE));
        assert_eq!(look_up(&mut resolver).await, ["ab+1"]);
        resolver.take_found(&tree(&[(&["ab+1", "c7\t/x.c\tname"], "0")]));
        check(&resolver, Some("name"), None);
        assert!(look_up(&mut resolver).await.is_empty());
    }

    #[tokio::test]
    async fn a_node_that_can_read_a_file_gives_the_names() {
        let mut resolver = Resolver::default();
        let chains: [&[&str]; 2] = [&["ab+1", "c\t\texport"], &["ab+1", "c7\t/x.c\tname"]];
        resolver.take_found(&tree(&[(&[FILE, LATE], "0-1"), (chains[0], "0-1"), (chains[1], "2")]));
        check(&resolver, Some("name"), None);
        assert!(look_up(&mut resolver).await.is_empty());
    }

    #[tokio::test]
    async fn a_file_that_has_changed_is_not_asked_for_again() {
        let mut resolver = Resolver::default();
        resolver.take_found(&tree(&[(&[FILE, HAS_CHANGED], "0"), (&["ab+1", "c\t\texport"], "0")]));
        assert!(look_up(&mut resolver).await.is_empty());
        check(&resolver, Some("export"), Some(HAS_CHANGED));
    }

    #[tokio::test]
    async fn a_file_that_is_late_here_gives_the_names_when_it_comes() {
        let (go_on, waits) = channel::<()>();
        let symbols = spawn_blocking(move || {
            waits.recv().unwrap_or_default();
            Some(Symbols::of_functions([("name".to_owned(), 1, 4)]))
        });
        let mut resolver = Resolver::default();
        resolver.files.insert(ModuleId::parse("ab").unwrap(), Aside::Late(symbols));
        resolver.take_found(&tree(&[(&[FILE, HAS_CHANGED], "0"), (&["ab+1", "c\t\texport"], "0")]));
        check(&resolver, Some("export"), Some(HAS_CHANGED));
        go_on.send(()).unwrap();
        let found = async {
            while !look_up(&mut resolver).await.is_empty() {
                yield_now().await;
            }
        };
        timeout(Duration::from_secs(60), found).await.unwrap();
        assert_eq!(
            resolver.found(&ModuleId::parse("ab").unwrap(), 1)[0].call.function.as_deref(),
            Some("name")
        );
    }

    #[test]
    fn a_file_whose_frames_are_unknown_is_named_until_the_next_call_paths() {
        let mut resolver = Resolver::default();
        resolver.take_modules(&tree(&[(&["/nowhere/x", LATE], "0"), (&["ab /nowhere/x"], "1")]));
        check(&resolver, None, Some(LATE));
        assert_eq!(resolver.path(&ModuleId::parse("ab").unwrap()), Some("/nowhere/x"));
        resolver.take_modules(&tree(&[(&["ab /nowhere/x"], "0-1")]));
        check(&resolver, None, None);
    }
}
