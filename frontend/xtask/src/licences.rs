//! `cargo xtask licences`: writes THIRD-PARTY.txt, the notices of what is linked into gantry's programs and libraries.
//!
//! Their licences ask for these notices beside every copy in binary form. A crate's own files count, and those of the C
//! code that it brings. Where a crate may be had under MIT or another licence, the notice of MIT is enough.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::build::{ON_NODES, PACKAGES, cargo, root, run};
use crate::layout::{ITS_FEATURE, THIRD_PARTY};
use crate::{Licences, Result};

/// The native parts of the Python packages.
const FOR_PYTHON: [&str; 2] = ["gantry-frontend-python", "gantry-backend-python"];

/// The machines for which gantry is built, as deny.toml has them.
const TARGETS: [&str; 2] = ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"];

/// How the names of files with licences and notices begin.
const NAMES: [&str; 6] = ["license", "licence", "copying", "copyright", "notice", "unlicense"];

/// A licence that is not taken: what has it can be had under another one, which is beside it.
const NOT_TAKEN: &str = "GNU GENERAL PUBLIC LICENSE";

const HEAD: &str = "\
gantry's programs and libraries contain the crates that this file lists, and C code that some of them bring. Here are
the notices of their authors. `cargo xtask licences` has written this file.

gantry itself is under MIT or Apache-2.0: see LICENSE-MIT and LICENSE-APACHE.
";

/// The standard library is part of every program in Rust, and of no list of cargo's.
const STANDARD_LIBRARY: &str = "The standard library of Rust, (c) The Rust Project Contributors: MIT OR Apache-2.0. \
                                The text of MIT is among those below.\n";

/// What is read of cargo's metadata.
#[derive(Debug, Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Debug, Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    /// None: a crate of this repository.
    source: Option<String>,
    manifest_path: PathBuf,
    targets: Vec<Target>,
}

#[derive(Debug, Deserialize)]
struct Target {
    kind: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Debug, Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dep>,
}

#[derive(Debug, Deserialize)]
struct Dep {
    pkg: String,
    dep_kinds: Vec<DepKind>,
}

#[derive(Debug, Deserialize)]
struct DepKind {
    /// None: it is linked.
    kind: Option<String>,
}

impl Package {
    /// It runs while a crate is compiled.
    fn is_macro(&self) -> bool {
        self.targets.iter().any(|target| target.kind.iter().any(|kind| kind == "proc-macro"))
    }

    fn title(&self) -> String {
        format!("{} {}", self.name, self.version)
    }
}

/// Writes the file, or reports that it is old.
///
/// # Errors
/// The file is not up to date, a crate has no licence, or the error of cargo.
pub(crate) fn write(asked: &Licences) -> Result<String> {
    let text = build_text(&read_metadata()?)?;
    let path = root().join(THIRD_PARTY);
    if fs::read_to_string(&path).is_ok_and(|there| there == text) {
        return Ok(format!("{THIRD_PARTY} is up to date"));
    }
    if asked.check {
        return Err(format!("{THIRD_PARTY} is not as Cargo.lock has it; run: cargo xtask licences").into());
    }
    fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(format!("written: {THIRD_PARTY}"))
}

fn read_metadata() -> Result<Metadata> {
    let feature = format!("{}/{}", ITS_FEATURE.0, ITS_FEATURE.1);
    let mut args = vec!["metadata", "--locked", "--format-version", "1", "--features", &feature];
    TARGETS.iter().for_each(|target| args.extend(["--filter-platform", target]));
    Ok(serde_json::from_slice(&run(&cargo(), &args)?.stdout)?)
}

/// The foreign crates that are linked into something that is installed.
fn find_linked(metadata: &Metadata) -> Vec<&Package> {
    let packages: BTreeMap<&str, &Package> = metadata.packages.iter().map(|it| (&*it.id, it)).collect();
    let nodes: BTreeMap<&str, &Node> = metadata.resolve.nodes.iter().map(|it| (&*it.id, it)).collect();
    let is_installed = |package: &&Package| {
        let mut names = PACKAGES.iter().chain(&ON_NODES).chain(&FOR_PYTHON);
        package.source.is_none() && names.any(|name| *name == package.name)
    };
    let mut left: Vec<&str> = metadata.packages.iter().filter(is_installed).map(|it| &*it.id).collect();
    let mut seen = BTreeSet::new();
    while let Some(id) = left.pop() {
        let Some(package) = packages.get(id).filter(|it| !it.is_macro()) else { continue };
        if seen.insert((&package.name, &package.version, id)) {
            let linked = |dep: &&Dep| dep.dep_kinds.iter().any(|it| it.kind.is_none());
            let deps = nodes.get(id).into_iter().flat_map(|node| &node.deps);
            left.extend(deps.filter(linked).map(|dep| &*dep.pkg));
        }
    }
    let linked = seen.into_iter().filter_map(|(_, _, id)| packages.get(id).copied());
    linked.filter(|package| package.source.is_some()).collect()
}

fn build_text(metadata: &Metadata) -> Result<String> {
    let linked = find_linked(metadata);
    // A text that several crates share is there once.
    let mut texts: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut list = String::new();
    for package in &linked {
        let folder = package.manifest_path.parent().unwrap_or(Path::new("/"));
        let licence = package.license.as_deref().unwrap_or_default();
        let notices = read_notices(folder, licence.contains("MIT") && !licence.contains(" AND "))?;
        if licence.is_empty() || notices.is_empty() {
            return Err(format!("{} has no licence in {}", package.title(), folder.display()).into());
        }
        list.push_str(&format!("{}: {licence}\n", package.title()));
        for notice in notices {
            texts.entry(notice).or_default().insert(package.title());
        }
    }
    let mut texts: Vec<(Vec<String>, String)> =
        texts.into_iter().map(|(text, of)| (of.into_iter().collect(), text)).collect();
    texts.sort();
    let rule = "-".repeat(80);
    let mut whole = format!("{HEAD}\n{list}\n{STANDARD_LIBRARY}");
    for (of, text) in texts {
        whole.push_str(&format!("\n{rule}\n{}\n{rule}\n\n{text}\n", of.join(", ")));
    }
    Ok(whole)
}

/// The texts of licences and notices in a crate's folder and below. `mit_alone`: that of MIT is enough.
fn read_notices(folder: &Path, mit_alone: bool) -> Result<Vec<String>> {
    let (mut texts, mut mit, mut folders) = (Vec::new(), Vec::new(), Vec::new());
    let mut entries: Vec<PathBuf> =
        fs::read_dir(folder)?.map(|entry| entry.map(|it| it.path())).collect::<std::io::Result<_>>()?;
    entries.sort();
    for path in entries {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        if path.is_dir() {
            folders.push(path);
        } else if NAMES.iter().any(|begin| name.starts_with(begin)) && !is_code(&name) {
            let text = String::from_utf8_lossy(&fs::read(&path)?).replace("\r\n", "\n");
            let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
            let text = lines.join("\n").trim_matches('\n').to_owned();
            let stem = name.strip_suffix(".md").or(name.strip_suffix(".txt")).unwrap_or(&name);
            match stem {
                _ if text.contains(NOT_TAKEN) => {}
                "license-mit" | "license_mit" => mit.push(text),
                _ => texts.push(text),
            }
        }
    }
    if mit.is_empty() || !mit_alone {
        mit.append(&mut texts);
    }
    for folder in folders {
        mit.extend(read_notices(&folder, mit_alone)?);
    }
    Ok(mit)
}

/// A source file such as `license.rs`.
fn is_code(name: &str) -> bool {
    [".rs", ".c", ".h", ".py", ".sh"].iter().any(|end| name.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notices(files: &[(&str, &str)], mit_alone: bool) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        read_notices(folder.path(), mit_alone).unwrap()
    }

    #[test]
    fn the_notice_of_mit_is_enough_where_it_is_a_choice() {
        let files =
            [("LICENSE-APACHE", "a"), ("LICENSE-MIT.md", "m\r\n"), ("COPYING", "c"), ("src/lib.rs", "")];
        assert_eq!(notices(&files, true), ["m"]);
        assert_eq!(notices(&files, false), ["m", "c", "a"]);
        assert_eq!(notices(&files[..1], true), ["a"]);
        assert_eq!(notices(&[("LICENCE", "l"), ("license.rs", "")], true), ["l"]);
    }

    #[test]
    fn c_code_that_a_crate_brings_has_its_own() {
        let files = [("LICENSE-MIT", "m"), ("zlib/LICENSE", "z"), ("zlib/COPYING", NOT_TAKEN)];
        assert_eq!(notices(&files, true), ["m", "z"]);
    }

    #[test]
    fn only_what_is_linked_is_named() {
        let package = |name: &str, kind: &str, is_ours: bool| {
            let source = (!is_ours).then_some("registry");
            serde_json::json!({"id": name, "name": name, "version": "1", "license": "MIT", "source": source,
                "manifest_path": "/x/Cargo.toml", "targets": [{"kind": [kind]}]})
        };
        let dep =
            |name: &str, kind: Option<&str>| serde_json::json!({"pkg": name, "dep_kinds": [{"kind": kind}]});
        let node = |name: &str, deps: Vec<serde_json::Value>| serde_json::json!({"id": name, "deps": deps});
        let ours =
            vec![dep("used", None), dep("macro", None), dep("cc", Some("build")), dep("test", Some("dev"))];
        let metadata = serde_json::json!({
            "packages": [package("gantry", "bin", true), package("used", "lib", false), package("below", "lib", false),
                package("macro", "proc-macro", false), package("syn", "lib", false), package("cc", "lib", false),
                package("test", "lib", false), package("gantry-tests", "lib", true), package("far", "lib", false)],
            "resolve": {"nodes": [node("gantry", ours), node("used", vec![dep("below", None)]),
                node("macro", vec![dep("syn", None)]), node("gantry-tests", vec![dep("far", None)])]},
        });
        let metadata = serde_json::from_value(metadata).unwrap();
        let names: Vec<&str> = find_linked(&metadata).into_iter().map(|it| &*it.name).collect();
        assert_eq!(names, ["below", "used"]);
    }
}
