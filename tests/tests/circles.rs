//! Limits the structure of the crates: circles of imports between files, and methods of the trait that every workload
//! manager implements.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use cargo_metadata::{MetadataCommand, TargetKind};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemMod, ItemUse, Macro, UseTree, Visibility};

/// A module's path from the root of its crate.
type Module = Vec<String>;

/// Names that a module imports by `use`, and their origins. None: another crate.
type Names = BTreeMap<String, Option<Module>>;

/// A module that has its own file.
struct File {
    /// The paths that the file names, from the root of the crate.
    uses: Vec<Module>,
    names: Names,
}

/// All files of a program or a library, by module.
#[derive(Default)]
struct Crate {
    files: BTreeMap<Module, File>,
}

/// Collects the paths of one file. Skips code that is only for tests.
struct Reader<'a> {
    module: &'a Module,
    /// The inline modules around the current item.
    inside: Vec<String>,
    children: BTreeSet<String>,
    uses: Vec<Module>,
    names: Names,
}

fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let list = attribute.meta.require_list().ok().filter(|list| list.path.is_ident("cfg"));
        list.is_some_and(|list| list.tokens.to_string() == "test")
    })
}

fn words<'a>(path: impl IntoIterator<Item = &'a syn::PathSegment>) -> Vec<String> {
    path.into_iter().map(|segment| segment.ident.to_string()).collect()
}

impl Reader<'_> {
    /// Resolves a path to one from the root of the crate. None: it leads out of the crate or names an item of this
    /// file.
    fn resolve(&self, path: &[String]) -> Option<Module> {
        let here = [&self.module[..], &self.inside[..]].concat();
        let (mut from, mut rest) = match path.first()?.as_str() {
            "crate" => (Vec::new(), &path[1..]),
            "self" => (here, &path[1..]),
            "super" => (here, path),
            first if self.inside.is_empty() && self.children.contains(first) => (here, path),
            _ => return None,
        };
        while let [first, more @ ..] = rest
            && first == "super"
        {
            from.pop()?;
            rest = more;
        }
        from.extend_from_slice(rest);
        Some(from)
    }

    fn tree(&mut self, prefix: &[String], tree: &UseTree, is_public: bool) {
        let (name, path) = match tree {
            UseTree::Path(path) => {
                return self.tree(&[prefix, &[path.ident.to_string()]].concat(), &path.tree, is_public);
            }
            UseTree::Group(group) => {
                return group.items.iter().for_each(|item| self.tree(prefix, item, is_public));
            }
            UseTree::Name(name) if name.ident == "self" => (prefix.last().cloned(), prefix.to_vec()),
            UseTree::Name(name) => {
                let name = name.ident.to_string();
                (Some(name.clone()), [prefix, &[name]].concat())
            }
            UseTree::Rename(rename) => {
                (Some(rename.rename.to_string()), [prefix, &[rename.ident.to_string()]].concat())
            }
            UseTree::Glob(_) => (None, prefix.to_vec()),
        };
        let path = self.resolve(&path);
        // A facade re-exports items of its own modules. That is not a use.
        let hands_on = is_public && path.as_ref().is_some_and(|path| path.starts_with(self.module));
        if !hands_on {
            self.uses.extend(path.clone());
        }
        if let Some(name) = name.filter(|_| self.inside.is_empty()) {
            self.names.insert(name, path);
        }
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        let attributes = match item {
            Item::Fn(it) => &it.attrs,
            Item::Impl(it) => &it.attrs,
            Item::Mod(it) => &it.attrs,
            Item::Use(it) => &it.attrs,
            _ => &Vec::new(),
        };
        if !is_for_tests(attributes) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        self.inside.push(item.ident.to_string());
        visit::visit_item_mod(self, item);
        self.inside.pop();
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        self.tree(&[], &item.tree, !matches!(item.vis, Visibility::Inherited));
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.segments.len() > 1 {
            self.uses.extend(self.resolve(&words(&path.segments)));
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, item: &'ast Macro) {
        visit::visit_macro(self, item);
        // Macro arguments have no syntax tree. The text search still finds paths from the root.
        let text = item.tokens.to_string().replace(' ', "");
        for (at, _) in text.match_indices("crate::") {
            let word = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
            let path = text[at..].split(|c| !word(c)).next().unwrap_or_default();
            let path: Vec<String> = path.split("::").map(str::to_owned).collect();
            self.uses.extend(self.resolve(&path));
        }
    }
}

impl Crate {
    fn read(root: &Path) -> Self {
        let mut all = Self::default();
        all.read_file(root, Vec::new(), root.parent().expect("a folder"));
        all
    }

    /// Reads a file and the files of its modules, which are in `folder`.
    fn read_file(&mut self, path: &Path, module: Module, folder: &Path) {
        let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let syntax = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let outside = syntax.items.iter().filter_map(|item| match item {
            Item::Mod(it) if it.content.is_none() && !is_for_tests(&it.attrs) => Some(it.ident.to_string()),
            _ => None,
        });
        let children: BTreeSet<String> = outside.collect();
        let mut reader = Reader {
            module: &module,
            inside: Vec::new(),
            children: children.clone(),
            uses: Vec::new(),
            names: Names::new(),
        };
        reader.visit_file(&syntax);
        let (uses, names) = (reader.uses, reader.names);
        for child in children {
            let (plain, nested) = (folder.join(format!("{child}.rs")), folder.join(&child).join("mod.rs"));
            let path = if plain.exists() { plain } else { nested };
            let below = [&module[..], std::slice::from_ref(&child)].concat();
            self.read_file(&path, below, &folder.join(child));
        }
        self.files.insert(module, File { uses, names });
    }

    /// The file that defines a path. Follows imported names to their origin.
    fn find(&self, path: &[String]) -> Option<&Module> {
        let mut path = path.to_vec();
        for _ in 0..8 {
            let length = (0..=path.len()).rev().find(|length| self.files.contains_key(&path[..*length]))?;
            let (module, file) = self.files.get_key_value(&path[..length])?;
            match path.get(length).and_then(|name| file.names.get(name)) {
                Some(Some(from)) => path = [&from[..], &path[length + 1..]].concat(),
                Some(None) => return None,
                None => return Some(module),
            }
        }
        None
    }

    /// The files that each file needs.
    fn arrows(&self) -> BTreeMap<&Module, BTreeSet<&Module>> {
        let needs = |(module, file): (&'_ Module, &File)| {
            let found: BTreeSet<&Module> = file.uses.iter().filter_map(|path| self.find(path)).collect();
            (self.files.get_key_value(module).expect("a file").0, found)
        };
        let mut arrows: BTreeMap<_, _> = self.files.iter().map(needs).collect();
        for (module, needed) in &mut arrows {
            needed.remove(module);
        }
        arrows
    }

    /// The largest sets of files that all need each other.
    fn circles(&self) -> Vec<BTreeSet<&Module>> {
        let arrows = self.arrows();
        let reach = |from: &Module| {
            let (mut seen, mut open) = (BTreeSet::new(), vec![arrows.get_key_value(from).expect("a file").0]);
            while let Some(next) = open.pop() {
                open.extend(arrows[next].iter().filter(|it| seen.insert(**it)));
            }
            seen
        };
        let reached: BTreeMap<&Module, BTreeSet<&Module>> =
            arrows.keys().map(|module| (*module, reach(module))).collect();
        let mut all = BTreeSet::new();
        for (module, seen) in reached.iter().filter(|(module, seen)| seen.contains(*module)) {
            all.insert(seen.iter().filter(|other| reached[**other].contains(module)).copied().collect());
        }
        all.into_iter().collect()
    }

    fn describe(&self, circle: &BTreeSet<&Module>) -> String {
        let arrows = self.arrows();
        let name = |module: &Module| match module.is_empty() {
            true => "the crate's root".to_owned(),
            false => module.join("::"),
        };
        let lines = circle.iter().flat_map(|module| {
            let needed = arrows[*module].iter().filter(|other| circle.contains(**other));
            needed.map(move |other| format!("    {} needs {}\n", name(module), name(other)))
        });
        lines.collect()
    }
}

/// The roots of all programs and libraries, by package and target name.
fn roots() -> Vec<(String, PathBuf)> {
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml");
    let metadata = MetadataCommand::new().manifest_path(manifest).no_deps().exec().expect("cargo metadata");
    let members = metadata.workspace_packages();
    let targets = members.iter().flat_map(|package| {
        let kinds = [TargetKind::Lib, TargetKind::Bin, TargetKind::CDyLib, TargetKind::StaticLib];
        let built = package.targets.iter().filter(move |it| it.kind.iter().any(|kind| kinds.contains(kind)));
        built.map(|it| (format!("{}: {}", package.name, it.name), it.src_path.clone().into_std_path_buf()))
    });
    targets.collect()
}

#[test]
fn files_of_a_crate_need_each_other_in_one_direction() {
    let mut wrong = String::new();
    let roots = roots();
    assert!(roots.len() > 10, "{roots:?}");
    for (name, root) in &roots {
        let all = Crate::read(root);
        for circle in all.circles() {
            wrong += &format!("{name}: a circle of {} files\n{}\n", circle.len(), all.describe(&circle));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// The most methods of the trait that every workload manager implements. Optional abilities are capabilities.
const MOST_METHODS: usize = 8;

#[test]
fn the_trait_of_every_workload_manager_stays_small() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../wlm/src/seam.rs");
    let syntax = syn::parse_file(&fs::read_to_string(path).expect("the seam")).expect("Rust");
    let found = syntax.items.iter().find_map(|item| match item {
        Item::Trait(it) if it.ident == "Wlm" => Some(it),
        _ => None,
    });
    let methods: Vec<String> = found
        .expect("the trait")
        .items
        .iter()
        .filter_map(|item| match item {
            syn::TraitItem::Fn(it) => Some(it.sig.ident.to_string()),
            _ => None,
        })
        .collect();
    assert!(!methods.is_empty() && methods.len() <= MOST_METHODS, "{methods:?}");
}
