//! Checks the structure of the workspace: which crates import each other, where a WLM may be named, and file lengths.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package};
use syn::visit::{self, Visit};
use syn::{Expr, PatGuard};

/// The exact workspace imports of each crate. A crate may import only crates above it.
const ARROWS: [(&str, &[&str]); 24] = [
    ("gantry-types", &[]),
    ("gantry-shared", &["gantry-types"]),
    ("gantry-stack", &["gantry-types"]),
    ("gantry-gdb", &["gantry-types"]),
    ("gantry-link", &["gantry-shared", "gantry-types"]),
    ("gantry-shared-capi", &["gantry-shared", "gantry-types"]),
    ("gantry-shared-python", &["gantry-types"]),
    ("gantry-wlm", &["gantry-link", "gantry-shared", "gantry-types"]),
    ("gantry-wlm-capi", &["gantry-wlm"]),
    ("gantry-backend", &["gantry-shared", "gantry-types"]),
    ("gantry-stackd", &["gantry-backend", "gantry-shared", "gantry-stack", "gantry-types"]),
    ("gantry-gdbd", &["gantry-backend", "gantry-gdb", "gantry-shared", "gantry-types"]),
    ("gantry-backend-capi", &["gantry-backend", "gantry-shared", "gantry-shared-capi", "gantry-types"]),
    ("gantry-backend-python", &["gantry-backend", "gantry-shared-python", "gantry-types"]),
    ("gantry-agent", &["gantry-backend", "gantry-link", "gantry-shared", "gantry-types", "gantry-wlm"]),
    ("gantry-guard", &["gantry-link", "gantry-shared", "gantry-types", "gantry-wlm"]),
    ("gantry-frontend", &["gantry-guard", "gantry-link", "gantry-shared", "gantry-types", "gantry-wlm"]),
    ("gantry-debug", &["gantry-gdb", "gantry-types"]),
    ("gantry-dap", &["gantry-debug", "gantry-gdb", "gantry-types"]),
    (
        "gantry",
        &[
            "gantry-dap",
            "gantry-debug",
            "gantry-frontend",
            "gantry-gdb",
            "gantry-guard",
            "gantry-link",
            "gantry-shared",
            "gantry-stack",
            "gantry-types",
            "gantry-wlm",
        ],
    ),
    ("gantry-mpir", &["gantry-shared"]),
    (
        "gantry-frontend-capi",
        &[
            "gantry-frontend",
            "gantry-link",
            "gantry-shared",
            "gantry-shared-capi",
            "gantry-types",
            "gantry-wlm",
        ],
    ),
    ("gantry-frontend-python", &["gantry-frontend", "gantry-shared", "gantry-shared-python", "gantry-types"]),
    ("gantry-xtask", &[]),
];

/// Crates at the top of the workspace. They may import every other crate.
const ON_TOP: [&str; 2] = ["tests", "examples"];

/// Words that name a WLM or one of its commands. `localhost` is not in the list because it is also the name of a
/// host.
const WLM_WORDS: [&str; 30] = [
    "slurm",
    "slurmctld",
    "slurmd",
    "slurmstepd",
    "srun",
    "sbatch",
    "salloc",
    "sattach",
    "scancel",
    "squeue",
    "sacct",
    "sinfo",
    "sbcast",
    "scontrol",
    "pbs",
    "openpbs",
    "torque",
    "qsub",
    "qstat",
    "qdel",
    "qsig",
    "pbsdsh",
    "ssh",
    "sshd",
    "openssh",
    "alps",
    "aprun",
    "flux",
    "lsf",
    "bsub",
];

/// Exceptions: places outside a WLM's folder that may name it. Each has a path, the word and the reason.
const EXCEPTIONS: [(&str, &str, &str); 5] = [
    ("shared/link/src/handshake/tests.rs", "ssh", "the greeting of a foreign server that must be refused"),
    ("wlm/src/launcher/proxies.rs", "ssh", "the remote shell in the command lines of a launcher's proxies"),
    ("frontend/xtask/src/args.rs", "ssh", "the option that adds the program of that name"),
    ("frontend/xtask/src/layout.rs", "srun", "the file name of a link that is installed"),
    ("frontend/xtask/src/layout.rs", "ssh", "the file name of a program that is installed"),
];

/// Files of the C interface. The reference names a WLM in every table and number of this interface, and C programs
/// compile against those names.
const C_INTERFACE: [&str; 6] = [
    "wlm/capi/",
    "shared/include/",
    "shared/src/cti.rs",
    "backend/capi/src/node.rs",
    "frontend/capi/include/",
    "frontend/capi/src/ops/",
];

/// Folders of code outside the test suites and the examples. [`may_name_wlms`] distinguishes the parts of `wlm`.
const CODE: [&str; 4] = ["shared", "wlm", "frontend", "backend"];

const MOST_LINES: usize = 600;

/// What stands at the top of the repository, beside files whose names begin with a dot.
#[rustfmt::skip]
const TOP_LEVEL: [&str; 23] = [
    "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "Cargo.lock", "Cargo.toml", "LICENSE-APACHE", "LICENSE-MIT",
    "MANIFEST.in", "README.md", "SECURITY.md", "THIRD-PARTY.txt", "backend", "clippy.toml", "deny.toml", "docs", "examples",
    "frontend", "pyproject.toml", "rust-toolchain.toml", "rustfmt.toml", "shared", "tests", "wlm",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_path_buf()
}

fn metadata() -> Metadata {
    let mut command = MetadataCommand::new();
    command.manifest_path(root().join("Cargo.toml")).no_deps().other_options(vec!["--offline".to_owned()]);
    command.exec().expect("cargo metadata")
}

/// The first component of a package's path in this repository.
fn side(package: &Package) -> String {
    let path = package.manifest_path.as_std_path().strip_prefix(root()).expect("a path in the workspace");
    path.components().next().expect("a folder").as_os_str().to_string_lossy().into_owned()
}

/// The workspace crates that a package imports to build, run or test.
fn imports(package: &Package) -> BTreeSet<&str> {
    let ours = package.dependencies.iter().filter(|dependency| dependency.path.is_some());
    ours.map(|dependency| dependency.name.as_str()).collect()
}

#[test]
fn the_crates_import_each_other_in_one_direction() {
    let metadata = metadata();
    let packages = metadata.workspace_packages();
    for package in packages.iter().filter(|package| !ON_TOP.contains(&side(package).as_str())) {
        let name = package.name.as_str();
        let place = ARROWS.iter().position(|(known, _)| *known == name);
        let place = place.unwrap_or_else(|| panic!("{name} is new: add it to ARROWS"));
        assert_eq!(imports(package), ARROWS[place].1.iter().copied().collect(), "what {name} imports");
        let above: Vec<&str> = ARROWS[..place].iter().map(|(known, _)| *known).collect();
        assert!(ARROWS[place].1.iter().all(|it| above.contains(it)), "{name} imports what stands below it");
    }
    for (known, _) in ARROWS {
        assert!(packages.iter().any(|package| package.name.as_str() == known), "{known} is gone");
    }
}

/// The most required methods of the trait `Wlm`.
const MOST_METHODS_OF_THE_SEAM: usize = 8;

/// The most crates that the daemon library pulls in, and the most public modules of each library. Lower these limits
/// where you can.
const MOST_CRATES_OF_A_DAEMON: usize = 32;
const MOST_MODULES: [(&str, usize); 3] =
    [("gantry-types", 22), ("gantry-frontend", 23), ("gantry-backend", 4)];

#[test]
fn the_seam_stays_narrow() {
    let text = fs::read_to_string(root().join("wlm/src/seam.rs")).expect("the seam");
    let file = syn::parse_file(&text).expect("Rust");
    let seam = file.items.iter().find_map(|item| match item {
        syn::Item::Trait(it) if it.ident == "Wlm" => Some(it),
        _ => None,
    });
    let methods = seam.expect("the trait Wlm").items.len();
    assert!(
        methods <= MOST_METHODS_OF_THE_SEAM,
        "Wlm has {methods} methods: make a capability of what few have"
    );
}

#[test]
fn a_daemon_brings_few_crates() {
    let mut command = MetadataCommand::new();
    // Dependencies of other platforms are not downloaded.
    let here = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let options = ["--offline", "--filter-platform", &here].map(str::to_owned);
    command.manifest_path(root().join("Cargo.toml")).other_options(options);
    let metadata = command.exec().expect("cargo metadata");
    let resolve = metadata.resolve.as_ref().expect("the dependencies");
    let backend = metadata.packages.iter().find(|package| package.name.as_str() == "gantry-backend");
    let mut left = vec![&backend.expect("the library").id];
    let mut found = BTreeSet::new();
    while let Some(id) = left.pop() {
        let node = resolve.nodes.iter().find(|node| node.id == *id).expect("a node");
        let is_used =
            |dep: &&cargo_metadata::NodeDep| dep.dep_kinds.iter().any(|it| it.kind == DependencyKind::Normal);
        for dependency in node.deps.iter().filter(is_used) {
            if found.insert(&dependency.pkg) {
                left.push(&dependency.pkg);
            }
        }
    }
    assert!(found.len() > 5, "{found:?}: the search does not find them");
    assert!(
        found.len() <= MOST_CRATES_OF_A_DAEMON,
        "gantry-backend brings {} crates: {found:#?}",
        found.len()
    );
}

#[test]
fn the_libraries_have_no_more_public_modules() {
    for (library, most) in MOST_MODULES {
        let path = root().join("docs/api").join(format!("{library}.txt"));
        let text = fs::read_to_string(&path).expect("the API as `cargo xtask api` writes it");
        let modules = text.lines().filter(|line| line.starts_with("pub mod ")).count();
        assert!((1..=most).contains(&modules), "{library} has {modules} public modules, {most} are allowed");
    }
}

#[test]
fn every_dependency_takes_its_version_from_the_workspace() {
    for package in metadata().workspace_packages() {
        let text = fs::read_to_string(&package.manifest_path).expect("a manifest");
        assert_eq!(own_versions(&text), Vec::<String>::new(), "{}", package.manifest_path);
    }
}

#[test]
fn every_member_has_the_lints_of_the_workspace() {
    for package in metadata().workspace_packages() {
        let text = fs::read_to_string(&package.manifest_path).expect("a manifest");
        let section = text.split("\n[lints]\n").nth(1).unwrap_or_default();
        assert!(
            section.trim_start().starts_with("workspace = true"),
            "{} has no [lints] workspace = true",
            package.manifest_path
        );
    }
}

#[test]
fn a_wlm_is_named_in_its_own_folder_only() {
    let mut found = Vec::new();
    for file in CODE.iter().flat_map(|folder| sources(&root().join(folder))) {
        let path = file.strip_prefix(root()).expect("a path in the workspace").to_string_lossy().into_owned();
        if may_name_wlms(&path) {
            continue;
        }
        let text = fs::read_to_string(&file).expect("a source");
        let lists = ["wlm/src/lib.rs", "wlm/src/registry.rs", "wlm/src/launcher/table.rs"];
        let lists = lists.contains(&path.as_str());
        let text = if lists { without_the_list(&text) } else { text };
        for (number, word) in wlm_words(&text) {
            let excepted = EXCEPTIONS.iter().any(|(where_, what, _)| *where_ == path && *what == word);
            if !excepted {
                found.push(format!("{path}:{number}: {word}"));
            }
        }
    }
    assert!(found.is_empty(), "a WLM is named outside its folder:\n{}", found.join("\n"));
}

/// One call of a [`Wlm`](gantry_wlm::Wlm) method links all WLMs into the program that calls it.
#[test]
fn the_agent_does_not_carry_the_workload_managers() {
    let mut found = Vec::new();
    for file in sources(&root().join("backend/agent")) {
        let text = fs::read_to_string(&file).expect("a source");
        let all = |line: &str| line.replace("WLMS_JOB_VARIABLES", "").contains("WLMS");
        let of_registry = |line: &str| {
            line.split("registry::").skip(1).any(|named| !named.starts_with("WLMS_JOB_VARIABLES"))
        };
        let lines = text.lines().filter(|line| all(line) || of_registry(line) || line.contains("dyn Wlm"));
        found.extend(lines.map(|line| format!("{}: {}", file.display(), line.trim())));
    }
    assert!(found.is_empty(), "agents would have every WLM's code:\n{}", found.join("\n"));
}

/// `Instant::now() + Duration::MAX` panics, and a caller may give any timeout. `gantry_shared::deadline::bounded` cuts it,
/// and `saturating_add` adds to it.
#[test]
fn no_timeout_is_added_as_it_is() {
    let mut found = Vec::new();
    for file in CODE.iter().flat_map(|folder| sources(&root().join(folder))) {
        if file.components().all(|part| part.as_os_str() != "tests") && !file.ends_with("tests.rs") {
            let sums = raw_sums(&fs::read_to_string(&file).expect("a source"));
            found.extend(sums.iter().map(|sum| format!("{}: {sum}", file.display())));
        }
    }
    assert!(found.is_empty(), "these panic for Duration::MAX:\n{}", found.join("\n"));
}

/// The language of a newer Rust than `rust-version`: newer compilers take it without a word, and clippy looks at the
/// standard library alone. Rust 1.95 was the first with `let` in the guard of an arm. Arms inside of macros, such as
/// `tokio::select!`, are not seen.
#[test]
fn no_guard_of_an_arm_has_let() {
    let folders = CODE.iter().chain(&ON_TOP).flat_map(|folder| sources(&root().join(folder)));
    let rust = folders.filter(|file| file.extension().is_some_and(|extension| extension == "rs"));
    let newer = rust.filter(|file| guards_with_let(&fs::read_to_string(file).expect("a source")) > 0);
    let newer: Vec<PathBuf> = newer.collect();
    assert!(newer.is_empty(), "arms of these files have `if let` as guard: {newer:?}");
}

#[test]
fn no_file_is_longer_than_the_house_allows() {
    let folders = CODE.iter().chain(&ON_TOP).flat_map(|folder| sources(&root().join(folder)));
    let long = folders.filter_map(|file| {
        let lines = fs::read_to_string(&file).expect("a source").lines().count();
        (lines > MOST_LINES).then(|| format!("{}: {lines} lines", file.display()))
    });
    let long: Vec<String> = long.collect();
    assert!(long.is_empty(), "longer than {MOST_LINES} lines:\n{}", long.join("\n"));
}

/// A file that a test or a script writes where it is called is easily committed with the rest.
#[test]
fn nothing_else_stands_at_the_top_level() {
    #[expect(clippy::disallowed_methods, reason = "git only lists files")]
    let listed = Command::new("git").arg("-C").arg(root()).args(["ls-files", "-z"]).output();
    let paths: Vec<String> = match listed {
        Ok(listed) if listed.status.success() => {
            String::from_utf8_lossy(&listed.stdout).split_terminator('\0').map(str::to_owned).collect()
        }
        // These sources are no checkout.
        _ => {
            let entries = fs::read_dir(root()).expect("the top level").map(|entry| entry.expect("an entry"));
            let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
            names.filter(|name| name != "target").collect()
        }
    };
    let top: BTreeSet<&str> = paths.iter().filter_map(|path| path.split('/').next()).collect();
    let is_unknown = |name: &&&str| !name.starts_with('.') && !TOP_LEVEL.contains(name);
    let unknown: Vec<&&str> = top.iter().filter(is_unknown).collect();
    assert!(top.contains("README.md") && unknown.is_empty(), "what is this at the top level? {unknown:?}");
}

/// All Rust, C and shell sources below a folder.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let Ok(entries) = fs::read_dir(folder) else { return found };
    for entry in entries.flatten() {
        let path = entry.path();
        // Recordings contain foreign output. Cargo's folder contains foreign sources.
        if path.is_dir() && path.file_name().is_none_or(|name| name != "fixtures" && name != "target") {
            found.extend(sources(&path));
        } else if path.is_dir() {
            continue;
        } else if path.extension().is_none_or(|kind| matches!(kind.to_str(), Some("rs" | "c" | "h" | "sh"))) {
            found.push(path);
        }
    }
    found
}

/// True for the folders of the WLMs and for the C interface.
fn may_name_wlms(path: &str) -> bool {
    // Help texts name workload managers because users know them by name.
    if C_INTERFACE.iter().any(|place| path.starts_with(place)) || path == "frontend/cli/src/args.rs" {
        return true;
    }
    let inside = path.strip_prefix("wlm/src/").and_then(|rest| rest.split_once('/'));
    inside.is_some_and(|(folder, _)| ["flux", "slurm", "pbs", "ssh", "localhost"].contains(&folder))
}

/// The lists that contain all WLMs and their launchers.
const LISTS: [&str; 3] = ["WLMS", "LAUNCHERS", "RANK_SIDES"];

/// Removes the lines that must name every WLM: the lists and the declarations of modules.
fn without_the_list(text: &str) -> String {
    let mut in_list = false;
    let mut kept = String::new();
    for line in text.lines() {
        in_list |= LISTS.iter().any(|list| line.contains(&format!("static {list}")));
        let declares = line.trim_start().trim_start_matches("pub ").starts_with("mod ")
            && line.trim_end().ends_with(';');
        if !in_list && !declares {
            kept.push_str(line);
        }
        // Blank lines keep the line numbers correct.
        kept.push('\n');
        in_list &= !line.trim_end().ends_with("];");
    }
    kept
}

/// The line number and word of each place that names a WLM, in code or comments. Names are split at `_` and at
/// capitals, so `SLURM_JOB_ID` and `SlurmJob` both match. The reference's own variables (`CTI_...`) do not match.
/// Neither does the library `ssh2`.
fn wlm_words(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let names = line
            .split(|letter: char| !letter.is_alphanumeric() && letter != '_')
            .filter(|name| !name.starts_with("CTI_"));
        for part in names.flat_map(|name| name.split('_')).flat_map(humps) {
            let word = part.to_lowercase();
            if WLM_WORDS.contains(&word.as_str()) {
                found.push((number + 1, word));
            }
        }
    }
    found
}

/// Splits `SlurmJob` into `Slurm` and `Job`. `SLURM` stays one part.
fn humps(name: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut start = 0;
    let mut before_is_small = false;
    for (at, letter) in name.char_indices() {
        if letter.is_uppercase() && before_is_small {
            parts.push(&name[start..at]);
            start = at;
        }
        before_is_small = !letter.is_uppercase();
    }
    parts.push(&name[start..]);
    parts
}

/// Dependencies in a manifest without `workspace = true`. The manifest must have one dependency a line.
fn own_versions(manifest: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut inside = false;
    for line in manifest.lines().map(|line| line.split('#').next().unwrap_or_default().trim()) {
        if let Some(section) = line.strip_prefix('[') {
            let section = section.trim_end_matches(']');
            inside = section.ends_with("dependencies");
            if section.contains("dependencies.") {
                found.push(line.to_owned());
            }
        } else if inside && line.contains('=') && !line.replace(' ', "").contains("workspace=true") {
            found.push(line.to_owned());
        }
    }
    found
}

/// Names of times to which only constants and what is cut may be added.
const TIMES: [&str; 5] = ["now()", "now", "started", "arrived", "since"];

/// The sums before a source's tests that are too large for `Duration::MAX`: of a timeout, or of a time and anything but a
/// constant.
fn raw_sums(source: &str) -> Vec<String> {
    let code = source.split("\nmod tests {").next().unwrap_or_default();
    let code = code.lines().map(|line| line.split("//").next().unwrap_or_default());
    let words: Vec<&str> = code.flat_map(str::split_whitespace).collect();
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    let is_time = |word: &str| {
        let before = TIMES.iter().filter_map(|name| word.strip_suffix(name));
        before.into_iter().any(|before| !before.ends_with(is_part))
    };
    let is_constant = |word: &str| {
        let name = word.split(|c: char| !is_part(c) && c != ':').next().unwrap_or_default();
        let name = name.rsplit("::").next().unwrap_or_default();
        !name.is_empty() && name.chars().all(|c| !c.is_lowercase())
    };
    let is_cut =
        |word: &str| is_constant(word) || word.starts_with("bounded(") || word.starts_with("Duration::");
    let ends_in_timeout = |word: &str| word.rsplit(|c| !is_part(c)).next() == Some("timeout");
    let is_timeout = |word: &str| {
        let path = word.trim_start_matches(['(', '*', '&']).split(|c| !is_part(c) && c != '.').next();
        path.is_some_and(ends_in_timeout)
    };
    let raw = words.windows(3).filter(|it| {
        let (left, sign, right) = (it[0], it[1], it[2]);
        let is_sum = sign == "+" || sign == "+=";
        is_sum && (is_time(left) && !is_cut(right) || ends_in_timeout(left) || is_timeout(right))
    });
    raw.map(|it| it.join(" ")).collect()
}

/// The number of arms outside of macros whose guard has a `let`.
fn guards_with_let(source: &str) -> usize {
    fn has_let(guard: &Expr) -> bool {
        match guard {
            Expr::Let(_) => true,
            Expr::Binary(both) => has_let(&both.left) || has_let(&both.right),
            _ => false,
        }
    }
    struct Guards(usize);
    impl<'ast> Visit<'ast> for Guards {
        fn visit_pat_guard(&mut self, it: &'ast PatGuard) {
            self.0 += usize::from(has_let(&it.guard));
            visit::visit_pat_guard(self, it);
        }
    }
    let mut guards = Guards(0);
    guards.visit_file(&syn::parse_file(source).expect("Rust"));
    guards.0
}

/// Proves that each check can fail: each gets bad input once.
mod seen_to_fail {
    use super::*;

    fn check_words(text: &str, expected: &[&str]) {
        let found = wlm_words(text);
        assert_eq!(found.iter().map(|(_, word)| word.as_str()).collect::<Vec<_>>(), expected, "{text}");
    }

    #[test]
    fn a_wlm_is_recognised_in_names_and_comments() {
        check_words("// as srun does", &["srun"]);
        check_words("env(\"SLURM_JOB_ID\")", &["slurm"]);
        check_words("struct SlurmJob; fn pbs_job()", &["slurm", "pbs"]);
        check_words("use ssh2::Session; CTI_SSH_DIR; GANTRY_WLM; pushshift; localhost", &[]);
        check_words("over SSH.", &["ssh"]);
    }

    #[test]
    fn only_the_wlms_folders_may_name_them() {
        for path in ["wlm/src/slurm/parse.rs", "wlm/src/pbs/tm/dis.rs", "frontend/capi/src/ops/slurm.rs"] {
            assert!(may_name_wlms(path), "{path}");
        }
        for path in [
            "wlm/src/registry.rs",
            "wlm/src/seam.rs",
            "wlm/src/lib.rs",
            "wlm/src/launcher/table.rs",
            "frontend/src/slurm/a.rs",
            "frontend/capi/src/app.rs",
            "wlm/src/mpir/sys.rs",
            "wlm/src/slurm",
        ] {
            assert!(!may_name_wlms(path), "{path}");
        }
    }

    #[test]
    fn the_list_and_the_modules_may_name_them() {
        let text = "pub mod slurm;\nmod pbs;\npub static WLMS: &[&dyn Wlm] = &[\n &ssh::Ssh,\n];\n// srun\n";
        assert_eq!(wlm_words(&without_the_list(text)), [(6, "srun".to_owned())]);
        let text = "static LAUNCHERS: &[&Dialect] = &[\n &crate::slurm::SRUN,\n];\n// srun\n";
        assert_eq!(wlm_words(&without_the_list(text)), [(4, "srun".to_owned())]);
        let one_line = "pub static WLMS: &[&dyn Wlm] = &[&slurm::Slurm];\nuse pbs::Pbs;\n";
        assert_eq!(wlm_words(&without_the_list(one_line)).len(), 2);
    }

    #[test]
    fn a_version_in_a_member_is_found() {
        let good = "[dependencies]\nserde.workspace = true\nnix = { workspace = true, features = [\"a\"] } # why\n\n[features]\nx = []\n";
        assert_eq!(own_versions(good), Vec::<String>::new());
        assert_eq!(own_versions("[dev-dependencies]\nserde = \"1\"\n"), ["serde = \"1\""]);
        assert_eq!(own_versions("[target.'cfg(unix)'.dependencies]\na = { version = \"1\" }\n").len(), 1);
        assert_eq!(own_versions("[dependencies.serde]\nversion = \"1\"\n"), ["[dependencies.serde]"]);
    }

    #[test]
    fn a_sum_that_is_too_large_for_some_timeout_is_found() {
        let check = |source: &str, expected: &[&str]| assert_eq!(raw_sums(source), expected, "{source}");
        for sum in [
            "Instant::now() + timeout",
            "Instant::now() + *within",
            "now + self.grace",
            "(self.arrived + self.limits.stall",
            "started + orders.every",
            "SLACK + self.timeout",
            "self.timeout + SLACK",
            "deadline += timeout",
        ] {
            check(sum, &[sum]);
        }
        check("Instant::now()\n    + patience", &["Instant::now() + patience"]);
        check("// now + x\nInstant::now() + bounded(timeout); now + policy::PATIENCE / 2; known + x", &[]);
        check("now + Duration::from_secs(x); now += 1; mod tests {}\nmod tests {\n now + x", &[]);
    }

    #[test]
    fn a_guard_with_let_is_found() {
        let arms = |arms: &str| guards_with_let(&format!("fn a() {{ match x {{ {arms} }} }}"));
        assert_eq!(arms("[] if let Some(y) = z => y, b if c && let Some(_) = d => (),"), 2);
        assert_eq!(arms("a if b && c => if let Some(y) = z && d {}, b if c(|| if let X = d {}) => (),"), 0);
    }
}
