//! Every program and library of this machine: our dependencies must be those of the machine's own loader.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use gantry_frontend::staging::elf::{Elf, parse_elf};
use gantry_frontend::staging::{Arch, Closure, Resolver, ResolverConfig, Why};
use gantry_tests::loader::{self, Listed};

const FOLDERS: [&str; 4] = ["/usr/bin", "/usr/sbin", "/usr/lib", "/usr/libexec"];
/// With a lower number, the machine was not really examined.
const ENOUGH: usize = 1500;

#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    same: usize,
    both_fail: usize,
    no_loader: usize,
    is_static: usize,
}

#[test]
#[expect(clippy::disallowed_methods, reason = "CI is known by a variable")]
fn dependencies_of_all_files_of_this_machine_agree_with_the_loader() {
    let files = Mutex::new(find_elf_files().into_iter());
    let resolver = Resolver::new(ResolverConfig::default());
    let counts = Mutex::new(Counts::default());
    let differences = Mutex::new(Vec::new());
    let compared = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    // A lock guard in the head of the loop would be held during its body.
                    let next = files.lock().unwrap().next();
                    let Some(file) = next else { return };
                    match compare(&resolver, &file) {
                        Ok(count) => count(&mut counts.lock().unwrap()),
                        Err(difference) => differences.lock().unwrap().push(difference),
                    }
                    compared.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let (counts, differences) = (counts.into_inner().unwrap(), differences.into_inner().unwrap());
    let judged = counts.same + counts.both_fail + differences.len();
    println!(
        "{judged} dynamic files compared with their loader, {} differences; {counts:?}",
        differences.len()
    );
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), differences.join("\n"));
    if std::env::var_os("CI").is_some_and(|it| it == "true") {
        assert!(judged >= ENOUGH, "only {judged} files were compared");
    }
}

fn find_elf_files() -> Vec<PathBuf> {
    let entries = FOLDERS.iter().flat_map(walkdir::WalkDir::new).flatten();
    let files = entries.filter(|entry| entry.file_type().is_file()).map(walkdir::DirEntry::into_path);
    files.filter(|path| is_elf(path)).collect()
}

fn is_elf(path: &Path) -> bool {
    let mut magic = [0; 4];
    File::open(path).and_then(|mut file| file.read_exact(&mut magic)).is_ok() && magic == *b"\x7fELF"
}

/// Returns the counter to increase if both agree, or a description of the difference.
fn compare(resolver: &Resolver, file: &Path) -> Result<fn(&mut Counts), String> {
    let elf = File::open(file).ok().and_then(|file| parse_elf(&file).ok());
    let is_dynamic = elf.as_ref().is_none_or(|elf| elf.dynamic.is_some() || elf.interpreter.is_some());
    if !is_dynamic {
        return Ok(|counts| counts.is_static += 1);
    }
    let Some(loader) = loader_of(elf.as_ref()) else { return Ok(|counts| counts.no_loader += 1) };
    let listed = loader::list(&loader, file);
    let Ok(closure) = resolver.closure(file) else {
        return match listed.is_whole {
            false => Ok(|counts| counts.both_fail += 1),
            true => Err(format!("{}: only we fail", file.display())),
        };
    };
    let ours = as_listed(&closure);
    if listed.is_whole {
        return if is_same(&ours, &listed) {
            Ok(|counts| counts.same += 1)
        } else {
            Err(describe(file, &ours, &listed))
        };
    }
    // If the list fails, the loader still reports all files that it finds, unless that fails as well.
    let all = loader::list_all(&loader, file);
    let agreed = !closure.missing.is_empty() && (is_same(&ours, &all) || !ours.is_whole && !all.is_whole);
    if agreed { Ok(|counts| counts.both_fail += 1) } else { Err(describe(file, &ours, &all)) }
}

fn as_listed(closure: &Closure) -> Listed {
    let paths = closure.needed.iter().map(|it| it.path.clone()).collect();
    let mut said = Listed { is_whole: true, paths, ..Listed::default() };
    for missing in &closure.missing {
        match &missing.why {
            Why::Version { version, .. } => {
                said.versions.insert((version.to_string_lossy().into_owned(), missing.needed_by.clone()));
            }
            Why::Unfit { .. } => said.is_whole = false,
            _ => drop(said.missing.insert(missing.name.to_string_lossy().into_owned())),
        }
    }
    said
}

fn is_same(ours: &Listed, theirs: &Listed) -> bool {
    let set = |listed: &Listed| listed.paths.iter().cloned().collect::<BTreeSet<_>>();
    ours.is_whole == theirs.is_whole
        && set(ours) == set(theirs)
        && ours.missing == theirs.missing
        && ours.versions == theirs.versions
}

/// The loader that a program asks for. For a library, the loader of its machine. None: it is not installed.
fn loader_of(elf: Option<&Elf>) -> Option<PathBuf> {
    let usual = |arch: Arch| (arch == Arch::NATIVE).then(native_loader).flatten();
    let loader = match elf {
        None => native_loader(),
        Some(elf) => elf.interpreter.as_ref().map(PathBuf::from).or_else(|| usual(elf.arch)),
    };
    loader.filter(|path| path.is_file())
}

/// The loader of this test program.
fn native_loader() -> Option<PathBuf> {
    let own = File::open("/proc/self/exe").ok()?;
    parse_elf(&own).ok()?.interpreter.map(PathBuf::from)
}

fn describe(file: &Path, ours: &Listed, theirs: &Listed) -> String {
    let only = |a: &Listed, b: &Listed| -> Vec<_> {
        a.paths.iter().filter(|path| !b.paths.contains(path)).cloned().collect()
    };
    format!(
        "{}:\n  only ours {:?}, only the loader's {:?}\n  missing {:?} / {:?}\n  versions {:?} / {:?}\n  {}",
        file.display(),
        only(ours, theirs),
        only(theirs, ours),
        ours.missing,
        theirs.missing,
        ours.versions,
        theirs.versions,
        if theirs.is_whole { "" } else { &theirs.said },
    )
}
