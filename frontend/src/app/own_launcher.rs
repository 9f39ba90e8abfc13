//! Finds the server that MPI programs need, and refuses those whose library needs a launcher of its own.
//!
//! Programs that speak PMI find each other through gantry's agents, and so do programs without MPI. Open MPI needs PMIx.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use gantry_shared::foreign_mpi::{ForeignMpi, find_foreign_mpi};
use gantry_types::launch::Mpi;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use crate::error::{Error, Result};
use crate::staging::{Resolver, ResolverConfig};

/// The prefix of the file name of PMIx's library.
const PMIX_LIBRARY: &[u8] = b"libpmix.so";

/// Number of ranks, their program, and the directory in which they start.
pub(super) type Called = (u64, OsString, PathBuf);

/// The server that the ranks get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Served {
    /// PMI.
    Pmi,
    /// PMIx, by the library of the programs, if they have one.
    Pmix(Option<PathBuf>),
}

/// A check of programs that runs in the background until its result is needed.
#[derive(Debug)]
pub(super) struct Check {
    asked: Mpi,
    looking: Option<JoinHandle<Result<Served>>>,
}

impl Check {
    /// Begins to check what the ranks run. A single rank needs no server to find other ranks. `alone`: the ranks are a
    /// world of their own.
    pub(super) fn begin(called: Vec<Called>, asked: Mpi, alone: bool) -> Self {
        let ranks: u64 = called.iter().map(|(ranks, ..)| ranks).sum();
        let needs_look = asked == Mpi::Pmix || (ranks > 1 && asked == Mpi::Detect);
        let looking = needs_look
            .then(|| tokio::task::spawn_blocking(move || find_server(&called, asked, (ranks, alone))));
        Self { asked, looking }
    }

    /// The result of the check. A program that cannot be read by `deadline`, or from here, passes.
    ///
    /// # Errors
    /// [`Error::Invalid`]: a program needs its launcher.
    pub(super) async fn wait(self, deadline: Instant) -> Result<Served> {
        let otherwise = if self.asked == Mpi::Pmix { Served::Pmix(None) } else { Served::Pmi };
        let Some(looking) = self.looking else { return Ok(otherwise) };
        match timeout_at(deadline, looking).await {
            Ok(Ok(found)) => found,
            _ => Ok(otherwise),
        }
    }
}

/// Refuses a program whose ranks cannot find those of another program through gantry's agents. A program that cannot be
/// read from here passes.
///
/// # Errors
/// [`Error::Invalid`]: its library needs a launcher of its own.
pub(crate) fn refuse_foreign(program: &OsString, cwd: &Path) -> Result<()> {
    match find_library(program, cwd) {
        Some(Library { name, whose, .. }) => Err(refuse_part(program, &name, whose)),
        None => Ok(()),
    }
}

/// Why that program is not part of a world of several apps.
fn refuse_part(program: &OsStr, library: &str, ForeignMpi { vendor, .. }: &ForeignMpi) -> Error {
    Error::Invalid {
        message: format!(
            "{} is a program of {vendor} ({library}), which does not speak PMI: it cannot be part of the job's MPI world",
            program.to_string_lossy()
        ),
        hint: Some(
            "build it with MPICH, or make the part a world of its own: subjobCommsType=independent"
                .to_owned(),
        ),
    }
}

/// The server that these programs need.
fn find_server(called: &[Called], asked: Mpi, (ranks, alone): (u64, bool)) -> Result<Served> {
    let mut served = if asked == Mpi::Pmix { Served::Pmix(None) } else { Served::Pmi };
    for (_, program, cwd) in called {
        let Some(Library { name, whose, pmix }) = find_library(program, cwd) else { continue };
        if !alone {
            return Err(refuse_part(program, &name, whose));
        }
        if !whose.pmix {
            return Err(refuse(program, &name, whose, ranks));
        }
        if !matches!(served, Served::Pmix(Some(_))) {
            served = Served::Pmix(pmix);
        }
    }
    Ok(served)
}

/// Why that program is not started.
fn refuse(
    program: &OsStr,
    library: &str,
    ForeignMpi { vendor, remedy, .. }: &ForeignMpi,
    ranks: u64,
) -> Error {
    let program = program.to_string_lossy();
    Error::Invalid {
        message: format!(
            "{program} is a program of {vendor} ({library}) and needs its launcher: each of the {ranks} ranks would be a world of its own"
        ),
        hint: Some((*remedy).to_owned()),
    }
}

/// A program's MPI library that does not speak PMI.
struct Library {
    name: String,
    whose: &'static ForeignMpi,
    /// The PMIx library that it needs, directly or through another library.
    pmix: Option<PathBuf>,
}

/// Finds the library of a foreign MPI that a program needs, directly or through another library.
fn find_library(program: &OsString, cwd: &Path) -> Option<Library> {
    let resolver = Resolver::new(ResolverConfig::of_process());
    let path = cwd.join(resolver.find_program(Path::new(program)));
    let closure = resolver.closure(&path).ok()?;
    let needed = closure.needed.iter().map(|it| &it.name);
    let names: Vec<&OsStr> =
        needed.chain(closure.missing.iter().map(|it| &it.name)).map(OsString::as_os_str).collect();
    let (found, whose) = find_foreign_mpi(&names)?;
    let pmix = closure.needed.iter().find(|it| it.name.as_bytes().starts_with(PMIX_LIBRARY));
    let pmix = pmix.map(|it| cwd.join(&it.path));
    Some(Library { name: found.to_string_lossy().into_owned(), whose, pmix })
}
