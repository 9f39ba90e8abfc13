//! Checks whether found libraries have the required symbol versions (glibc: `elf/dl-version.c`).

use super::closure::{LibcNeeds, Missing, Why};
use super::elf::VersionNeeds;
use super::libc_needs::{GlibcVersion, is_glibc_soname};
use super::walk::Walk;

impl Walk<'_> {
    /// Adds libraries that are too old to the missing ones.
    pub(super) fn check_versions(&mut self) {
        let mut lacking = Vec::new();
        for object in self.objects.iter().filter(|object| object.is_listed) {
            let Some(dynamic) = &object.elf.dynamic else { continue };
            for need in &dynamic.versions_needed {
                let library = self.position_of(dynamic.text(need.file)).and_then(|at| self.objects.get(at));
                let Some((library, theirs)) = library.and_then(|it| Some((it, it.elf.dynamic.as_ref()?)))
                else {
                    continue;
                };
                let needed = dynamic.versions_of(need).iter().filter(|it| !it.is_weak);
                lacking.extend(needed.filter(|it| !theirs.defines(**it, dynamic)).map(|it| Missing {
                    name: dynamic.text(need.file).to_owned(),
                    needed_by: object.path.clone(),
                    why: Why::Version {
                        path: library.path.clone(),
                        version: dynamic.text(it.name).to_owned(),
                    },
                }));
            }
        }
        self.missing.extend(lacking);
    }

    /// The requirements on the C library.
    pub(super) fn libc_needs(&self) -> LibcNeeds {
        let mut needs = LibcNeeds::default();
        for object in self.objects.iter().filter(|object| object.is_listed) {
            let Some(dynamic) = &object.elf.dynamic else { continue };
            if object.is_called("libc.so.6".as_ref()) {
                needs.path = Some(object.path.clone());
                let defined = dynamic.versions_defined.iter().flatten();
                needs.provided = defined.filter_map(|it| GlibcVersion::parse(dynamic.text(it.name))).max();
            }
            if object.is_glibc() {
                continue;
            }
            let is_of_glibc = |it: &&VersionNeeds| is_glibc_soname(dynamic.text(it.file));
            let of_glibc = dynamic.versions_needed.iter().filter(is_of_glibc);
            let versions = of_glibc.flat_map(|it| dynamic.versions_of(it)).filter(|it| !it.is_weak);
            let newest = versions.filter_map(|it| GlibcVersion::parse(dynamic.text(it.name))).max();
            if newest > needs.newest {
                needs.newest = newest;
                needs.newest_by = Some(object.path.clone());
            }
        }
        needs
    }
}
