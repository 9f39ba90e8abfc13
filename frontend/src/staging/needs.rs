//! The dependencies of programs and libraries, as a manifest needs them.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use gantry_shared::wire::staging::LibcNeeds;
use gantry_types::error::{Failure, Kind};

use super::arch::Arch;
use super::closure::{Closure, Dependency};
use super::content::open_regular;
use super::elf::parse_arch;
use super::gather::{Dependencies, Resolve};
use super::libc_needs::GLIBC;
use super::plan::Absent;
use super::resolver::{Resolver, ResolverConfig};
use crate::error::{Error, Result};

/// Searches as the loader of this machine does, with this process's variables. What it finds runs on nodes with other
/// processors, too.
#[derive(Debug)]
pub(crate) struct SystemResolver {
    resolver: Resolver,
}

impl SystemResolver {
    pub(crate) fn new() -> Self {
        Self { resolver: Resolver::new(ResolverConfig::of_process()).for_any_processor() }
    }

    /// The path where the loader would find a library.
    ///
    /// # Errors
    /// It was not found; the error lists the searched places.
    pub(crate) fn find_library(&self, name: &OsStr) -> Result<PathBuf> {
        let found = self.resolver.find_library(name, Arch::NATIVE);
        found.map(|library| library.file).map_err(|missing| Error::Node {
            hosts: Vec::new(),
            failure: Failure::new(Kind::NotFound, missing.to_string())
                .with_hint("give its path, with a slash in it, or add its folder to LD_LIBRARY_PATH"),
        })
    }
}

impl Resolve for SystemResolver {
    fn dependencies(&mut self, path: &Path) -> Result<Dependencies> {
        match self.resolver.closure(path) {
            // A program for another architecture: its dependencies are not on this machine, and the nodes have them.
            Ok(closure) if !closure.missing.is_empty() && is_foreign(path) => Ok(Dependencies::default()),
            Ok(closure) => Ok(build_dependencies(closure)),
            // A file that is not for the loader may be one for the kernel. It has no dependencies to stage.
            Err(error) if error.kind() == Kind::Invalid => Ok(Dependencies::default()),
            Err(error) => Err(error),
        }
    }
}

fn is_foreign(path: &Path) -> bool {
    open_regular(path).is_ok_and(|file| parse_arch(&file).is_ok_and(|arch| arch != Arch::NATIVE))
}

fn build_dependencies(closure: Closure) -> Dependencies {
    let mut found = Dependencies { libc: build_libc_needs(&closure), ..Dependencies::default() };
    let programs: BTreeSet<&PathBuf> = closure.script.iter().collect();
    for dependency in &closure.needed {
        let names = || names(dependency).into_iter().map(|name| (name, dependency.file.clone()));
        if programs.contains(&dependency.path) {
            found.programs.push(dependency.file.clone());
        } else if dependency.is_glibc {
            found.family.extend(names());
        } else if closure.interpreter.as_ref() != Some(&dependency.path) {
            // Another C library's loader is the library itself: a node has it or cannot run the program.
            found.libraries.extend(names());
        }
    }
    let absent = |missing: &super::closure::Missing| Absent {
        name: missing.name.clone(),
        needed_by: missing.needed_by.clone(),
        told: missing.to_string(),
    };
    // A loader or a script's program is requested by path. Nodes search there themselves, and report when it is
    // missing.
    let by_path = |missing: &&super::closure::Missing| missing.name.as_encoded_bytes().contains(&b'/');
    found.missing = closure.missing.iter().filter(|missing| !by_path(missing)).map(absent).collect();
    found
}

/// All names under which a copy must exist. The loader finds a name with a slash only as a path; in a search path the
/// copy has the last part of it.
fn names(dependency: &Dependency) -> BTreeSet<OsString> {
    let names = dependency.other_names.iter().chain([&dependency.name]);
    names.filter_map(|name| Some(Path::new(name).file_name()?.to_owned())).collect()
}

fn build_libc_needs(closure: &Closure) -> Option<LibcNeeds> {
    let version = format!("{GLIBC}{}", closure.libc.newest?);
    let library = closure.libc.path.clone()?;
    // A library names no loader. The C library needs only its own one.
    let loader = || {
        let libc = closure.needed.iter().find(|it| it.path == library)?;
        Some(closure.needed.get(libc.needs.first()?.found?)?.path.clone())
    };
    let interpreter = closure.interpreter.clone().or_else(loader)?.into_os_string();
    Some(LibcNeeds { interpreter, library: library.into_os_string(), version })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dependencies(path: &Path) -> Dependencies {
        SystemResolver::new().dependencies(path).unwrap()
    }

    fn has(list: &[(OsString, PathBuf)], name: &str) -> bool {
        list.iter().any(|(it, path)| it == name && path.is_absolute())
    }

    #[test]
    fn the_c_library_is_kept_apart_from_other_libraries() {
        // The test program depends on libgcc_s and the C library, as every Rust program here.
        let found = dependencies(&std::env::current_exe().unwrap());
        assert!(has(&found.libraries, "libgcc_s.so.1") && !has(&found.libraries, "libc.so.6"), "{found:?}");
        assert!(has(&found.family, "libc.so.6") && !has(&found.family, "libgcc_s.so.1"), "{found:?}");
        assert!(found.missing.is_empty() && found.programs.is_empty());
        let libc = found.libc.unwrap();
        let loader = Path::new(&libc.interpreter).file_name().unwrap().to_str().unwrap();
        assert!(has(&found.family, loader), "{loader} is not in {:?}", found.family);
        assert!(libc.version.starts_with("GLIBC_2.") && Path::new(&libc.library).is_file(), "{libc:?}");
        // A library has the same requirements, and the same loader meets them.
        let (_, library) = found.libraries.iter().find(|(name, _)| name == "libgcc_s.so.1").unwrap();
        let of_library = dependencies(library).libc.unwrap();
        assert_eq!((of_library.interpreter, of_library.library), (libc.interpreter, libc.library));
    }

    #[test]
    fn a_script_brings_its_interpreter_with_dependencies() {
        let scratch = tempfile::tempdir().unwrap();
        let script = scratch.path().join("script");
        std::fs::write(&script, "#!/bin/sh\n:\n").unwrap();
        let found = dependencies(&script);
        assert_eq!(found.programs, [Path::new("/bin/sh")]);
        assert!(has(&found.family, "libc.so.6") && found.libc.is_some(), "{found:?}");
        // An interpreter that is missing here may exist on the nodes.
        std::fs::write(&script, "#!/no/such/shell\n").unwrap();
        let found = dependencies(&script);
        assert!(found.programs.is_empty() && found.missing.is_empty(), "{found:?}");
    }

    #[test]
    fn a_file_unknown_to_the_loader_brings_nothing() {
        let scratch = tempfile::tempdir().unwrap();
        let text = scratch.path().join("text");
        std::fs::write(&text, "no program at all").unwrap();
        let found = dependencies(&text);
        assert!(found.libraries.is_empty() && found.family.is_empty() && found.missing.is_empty());
        assert!(SystemResolver::new().dependencies(&scratch.path().join("none")).is_err());
    }

    #[test]
    fn a_program_for_another_machine_brings_nothing_and_misses_nothing() {
        let scratch = tempfile::tempdir().unwrap();
        let foreign = scratch.path().join("foreign");
        let mut bytes = std::fs::read("/bin/sh").unwrap();
        // e_machine: aarch64's here, and x86-64's there.
        let other: u16 = if cfg!(target_arch = "aarch64") { 62 } else { 183 };
        bytes[18..20].copy_from_slice(&other.to_ne_bytes());
        std::fs::write(&foreign, bytes).unwrap();
        let found = dependencies(&foreign);
        assert!(found.missing.is_empty() && found.family.is_empty() && found.libc.is_none(), "{found:?}");
    }

    #[test]
    fn a_library_is_found_by_its_name_or_it_is_said_where_it_was_looked_for() {
        let resolver = SystemResolver::new();
        let found = resolver.find_library(OsStr::new("libc.so.6")).unwrap();
        assert!(found.is_file() && found.ends_with("libc.so.6"), "{found:?}");
        let error = resolver.find_library(OsStr::new("libgantry-none.so.7")).unwrap_err();
        assert_eq!(error.kind(), Kind::NotFound);
        assert!(error.to_string().contains("libgantry-none.so.7") && error.hint().is_some(), "{error}");
    }
}
