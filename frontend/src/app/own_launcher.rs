//! Refuses MPI programs whose library needs a launcher of its own. Ranks that gantry starts would not find each other.
//!
//! Programs whose libraries speak PMI are not concerned: they find each other through gantry's agents.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use gantry_shared::foreign_mpi::{ForeignMpi, find_foreign_mpi};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use crate::error::{Error, Result};
use crate::staging::{Resolver, ResolverConfig};

/// Number of ranks, their program, and the directory in which they start.
pub(super) type Called = (u64, OsString, PathBuf);

/// A check of programs that runs in the background until its result is needed.
#[derive(Debug)]
pub(super) struct Check(Option<JoinHandle<Option<Error>>>);

impl Check {
    /// Begins to check what the ranks run. A single rank needs no launcher to find other ranks.
    pub(super) fn begin(called: Vec<Called>) -> Self {
        let ranks: u64 = called.iter().map(|(ranks, ..)| ranks).sum();
        if ranks < 2 {
            return Self(None);
        }
        Self(Some(tokio::task::spawn_blocking(move || called.iter().find_map(|it| refuse(it, ranks)))))
    }

    /// The result of the check. A program that cannot be read by `deadline`, or from here, passes.
    ///
    /// # Errors
    /// [`Error::Invalid`]: a program needs its launcher.
    pub(super) async fn wait(self, deadline: Instant) -> Result<()> {
        let Some(looking) = self.0 else { return Ok(()) };
        match timeout_at(deadline, looking).await {
            Ok(Ok(Some(refused))) => Err(refused),
            _ => Ok(()),
        }
    }
}

/// Refuses a program whose ranks cannot find those of another program through gantry's agents. A program that cannot be
/// read from here passes.
///
/// # Errors
/// [`Error::Invalid`]: its library needs a launcher of its own.
pub(crate) fn refuse_foreign(program: &OsString, cwd: &Path) -> Result<()> {
    let Some((library, ForeignMpi { vendor, .. })) = find_library(program, cwd) else { return Ok(()) };
    Err(Error::Invalid {
        message: format!(
            "{} is a program of {vendor} ({library}), which does not speak PMI: it cannot be part of the job's MPI world",
            program.to_string_lossy()
        ),
        hint: Some(
            "build it with MPICH, or make the part a world of its own: subjobCommsType=independent"
                .to_owned(),
        ),
    })
}

/// Why that program is not started.
fn refuse((_, program, cwd): &Called, ranks: u64) -> Option<Error> {
    let (library, ForeignMpi { vendor, remedy, .. }) = find_library(program, cwd)?;
    let program = program.to_string_lossy();
    Some(Error::Invalid {
        message: format!(
            "{program} is a program of {vendor} ({library}) and needs its launcher: each of the {ranks} ranks would be a world of its own"
        ),
        hint: Some((*remedy).to_owned()),
    })
}

/// Finds the library of a foreign MPI that a program needs, directly or through another library.
fn find_library(program: &OsString, cwd: &Path) -> Option<(String, &'static ForeignMpi)> {
    let resolver = Resolver::new(ResolverConfig::of_process());
    let path = cwd.join(resolver.find_program(Path::new(program)));
    let closure = resolver.closure(&path).ok()?;
    let needed = closure.needed.iter().map(|it| &it.name);
    let names: Vec<&OsStr> =
        needed.chain(closure.missing.iter().map(|it| &it.name)).map(OsString::as_os_str).collect();
    let (found, whose) = find_foreign_mpi(&names)?;
    Some((found.to_string_lossy().into_owned(), whose))
}
