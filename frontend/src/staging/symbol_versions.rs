//! Whether the libraries that were found have the versions of symbols that are asked of them (glibc: `elf/dl-version.c`).

use std::ffi::OsString;
use std::path::Path;

use super::closure::{LibcNeeds, Missing, Why};
use super::libc_needs::{GlibcVersion, is_glibc_family};
use super::walk::Walk;

impl Walk<'_> {
    /// Adds what is too old to what is missing.
    pub(super) fn check_versions(&mut self) {
        let mut lacking = Vec::new();
        for object in self.objects.iter().filter(|object| object.is_listed) {
            let needs = object.elf.dynamic.iter().flat_map(|dynamic| &dynamic.versions_needed);
            for need in needs {
                let library = self.position_of(&need.file).and_then(|at| self.objects.get(at));
                let Some(library) = library else { continue };
                let defined = library.elf.dynamic.as_ref().and_then(|it| it.versions_defined.as_ref());
                // A library that knows no versions has, to the loader, all of them.
                let Some(defined) = defined else { continue };
                let is_lacking = |name: &OsString| !defined.contains(name);
                let versions = need.versions.iter().filter(|it| !it.is_weak && is_lacking(&it.name));
                lacking.extend(versions.map(|version| Missing {
                    name: need.file.clone(),
                    needed_by: object.path.clone(),
                    why: Why::Version { path: library.path.clone(), version: version.name.clone() },
                }));
            }
        }
        self.missing.extend(lacking);
    }

    /// What is needed of the C library.
    pub(super) fn libc_needs(&self) -> LibcNeeds {
        let mut needs = LibcNeeds::default();
        for object in self.objects.iter().filter(|object| object.is_listed) {
            let Some(dynamic) = &object.elf.dynamic else { continue };
            if object.is_called("libc.so.6".as_ref()) {
                needs.path = Some(object.path.clone());
                let defined = dynamic.versions_defined.iter().flatten();
                needs.provided = defined.filter_map(|name| GlibcVersion::parse(name)).max();
            }
            let own = dynamic.soname.as_deref().map_or(object.path.as_path(), Path::new);
            if is_glibc_family(own) {
                continue;
            }
            let of_glibc = dynamic.versions_needed.iter().filter(|it| is_glibc_family(Path::new(&it.file)));
            let versions = of_glibc.flat_map(|it| &it.versions).filter(|it| !it.is_weak);
            let newest = versions.filter_map(|version| GlibcVersion::parse(&version.name)).max();
            if newest > needs.newest {
                needs.newest = newest;
                needs.newest_by = Some(object.path.clone());
            }
        }
        needs
    }
}
