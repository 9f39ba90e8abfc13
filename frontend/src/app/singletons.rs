//! MPI programs that need a launcher of their own, and that none has started: they run, and none of them finds the others. Those whose libraries speak PMI find each
//! other by gantry's agents, and are not meant here.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::core::Core;
use super::state::Happening;
use crate::event::{Event, MpiSingletons};
use crate::staging::{Resolver, ResolverConfig};

/// Beginnings of the names of libraries that no other MPI library has, and of the MPI library that is beside it: Open MPI's, Cray's.
const MPI_LIBRARIES: [(&[u8], &[u8]); 2] =
    [(b"libopen-pal.so", b"libmpi.so"), (b"libmpi_cray.so", b"libmpi_cray.so")];

/// So many ranks, their program and the directory in which they start.
pub(super) type Called = (u64, OsString, PathBuf);

/// Tells of MPI programs among those that several ranks of `core` run. Returns at once.
pub(super) fn check(core: &Arc<Core>, called: Vec<Called>) {
    let ranks: u64 = called.iter().map(|(ranks, ..)| ranks).sum();
    if ranks < 2 {
        return;
    }
    let core = Arc::clone(core);
    tokio::task::spawn_blocking(move || {
        let found =
            called.into_iter().find_map(|(_, program, cwd)| Some((find_library(&program, &cwd)?, program)));
        let Some((library, program)) = found else { return };
        let (app, program) = (core.app, program.to_string_lossy().into_owned());
        let message = format!(
            "{program} is an MPI program ({library}) that needs the launcher of its library: each of the {ranks} ranks is a world of its own. \
             Name the launcher: gantry launch --launcher mpirun -- ..."
        );
        core.happened(Happening::Found(Event::MpiSingletons(MpiSingletons {
            app,
            program,
            library,
            message,
        })));
    });
}

/// The MPI library that a program needs, itself or by another library.
fn find_library(program: &OsString, cwd: &Path) -> Option<String> {
    let resolver = Resolver::new(ResolverConfig::of_process());
    let path = cwd.join(resolver.find_program(Path::new(program)));
    let closure = resolver.closure(&path).ok()?;
    let needed = closure.needed.iter().map(|it| &it.name);
    let names: Vec<_> = needed.chain(closure.missing.iter().map(|it| &it.name)).collect();
    let find = |begin: &[u8]| names.iter().find(|name| name.as_bytes().starts_with(begin));
    let found = MPI_LIBRARIES.iter().find_map(|(mark, library)| find(mark).and(find(library)))?;
    Some(found.to_string_lossy().into_owned())
}
