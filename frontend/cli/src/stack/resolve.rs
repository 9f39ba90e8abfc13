//! Functions and lines of addresses in files. Each file is read once and each address looked up once: here if the
//! file is here, else on a node that has it.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;

use gantry_stack::frame::Frame;
use gantry_stack::module::{Module, ModuleId};
use gantry_stack::symbols::{Found, Symbols, identify_file};
use gantry_types::filter::PrefixTree;
use gantry_types::filter::prefix_tree;

/// An address in a file.
type Place = (ModuleId, u64);

/// The known files and addresses.
#[derive(Debug, Default)]
pub(crate) struct Resolver {
    paths: HashMap<ModuleId, BTreeSet<String>>,
    /// None: the file is not on this machine.
    files: HashMap<ModuleId, Option<Symbols>>,
    places: HashMap<Place, Vec<Found>>,
    /// Files whose path has another file by now, on all nodes that were asked.
    changed: BTreeSet<String>,
}

impl Resolver {
    /// Records the files that daemons have seen.
    pub(crate) fn take_modules(&mut self, tree: &PrefixTree) {
        for module in tree.outermost().filter_map(|frame| Module::parse(frame.name())) {
            self.paths.entry(module.id).or_default().insert(module.path);
        }
    }

    /// Looks up all addresses of the call paths. Returns those whose files are not here, one per line.
    pub(crate) fn look_up(&mut self, tree: &PrefixTree) -> Vec<String> {
        let mut elsewhere = BTreeSet::new();
        for frame in all_frames(tree) {
            let Frame::Code { module, address } = Frame::parse(frame.name()) else { continue };
            let place = (module, address);
            if self.places.contains_key(&place) {
                continue;
            }
            match self.file(&place.0) {
                Some(symbols) => {
                    let found = symbols.find(address);
                    self.places.insert(place, found);
                }
                None => {
                    elsewhere.insert(frame.name().to_owned());
                }
            }
        }
        elsewhere.into_iter().collect()
    }

    /// Records the results of a node.
    pub(crate) fn take_found(&mut self, tree: &PrefixTree) {
        for place in tree.outermost() {
            if let Some(module) = Module::parse(place.name()) {
                self.changed.insert(module.path);
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

    /// Files whose functions have no names, and why.
    pub(crate) fn nameless(&self) -> Vec<(String, String)> {
        let changed = self.changed.iter();
        changed.map(|path| (path.clone(), "has changed since the ranks began".to_owned())).collect()
    }

    /// The functions at an address, outermost first.
    pub(crate) fn found(&self, module: &ModuleId, address: u64) -> &[Found] {
        self.places.get(&(module.clone(), address)).map(Vec::as_slice).unwrap_or_default()
    }

    /// The path of a file, as the ranks see it.
    pub(crate) fn path(&self, module: &ModuleId) -> Option<&str> {
        self.paths.get(module)?.first().map(String::as_str)
    }

    fn file(&mut self, module: &ModuleId) -> Option<&Symbols> {
        if !self.files.contains_key(module) {
            let paths = self.paths.get(module).into_iter().flatten().map(Path::new);
            let mut here = paths.filter(|path| identify_file(path).is_ok_and(|id| id == *module));
            let symbols = here.find_map(|path| Symbols::open(path, module).ok());
            self.files.insert(module.clone(), symbols);
        }
        self.files.get(module)?.as_ref()
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
