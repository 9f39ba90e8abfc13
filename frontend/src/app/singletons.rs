//! MPI programs that no MPI launcher has started: they run, and none of them finds the others.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::core::Core;
use super::state::Happening;
use crate::event::{Event, MpiSingletons};
use crate::staging::{Resolver, ResolverConfig};

/// Beginnings of the names of MPI libraries: MPICH's, Intel's and Open MPI's; MPICH's at Debian; Cray's.
const MPI_LIBRARIES: [&[u8]; 3] = [b"libmpi.so", b"libmpich.so", b"libmpi_cray.so"];

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
            "{program} is an MPI program ({library}), and no MPI launcher starts it: each of the {ranks} ranks is a world of its own. \
             Name the launcher: gantry launch --launcher mpiexec -- ..."
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
    let mut names = needed.chain(closure.missing.iter().map(|it| &it.name));
    let found =
        names.find(|name| MPI_LIBRARIES.iter().any(|library| name.as_bytes().starts_with(library)))?;
    Some(found.to_string_lossy().into_owned())
}
