//! MPI programs whose library needs a launcher of its own. Ranks that gantry starts would not find each other, so they are not started.
//!
//! Programs whose libraries speak PMI find each other by gantry's agents, and are not meant here.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use crate::error::{Error, Result};
use crate::staging::{Resolver, ResolverConfig};

/// The beginning of the name of a library that no other MPI library has; that of the MPI library beside it; whose it is, and the remedy.
const LIBRARIES: [(&[u8], &[u8], &str, &str); 2] = [
    (b"libopen-pal.so", b"libmpi.so", "Open MPI", "name its launcher: --launcher mpirun"),
    (b"libmpi_cray.so", b"libmpi_cray.so", "Cray MPI", "name the launcher of your site by --launcher"),
];

/// So many ranks, their program and the directory in which they start.
pub(super) type Called = (u64, OsString, PathBuf);

/// The look at programs, which runs beside all else until its result is needed.
#[derive(Debug)]
pub(super) struct Check(Option<JoinHandle<Option<Error>>>);

impl Check {
    /// Begins to look at what the ranks run. One rank alone is a world anyway.
    pub(super) fn begin(called: Vec<Called>) -> Self {
        let ranks: u64 = called.iter().map(|(ranks, ..)| ranks).sum();
        if ranks < 2 {
            return Self(None);
        }
        Self(Some(tokio::task::spawn_blocking(move || called.iter().find_map(|it| refuse(it, ranks)))))
    }

    /// What was found. A program that cannot be looked at by `deadline`, or from here, is let pass.
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

/// Refuses a program whose ranks do not find those of another one by gantry's agents. One that cannot be looked at from here is let pass.
///
/// # Errors
/// [`Error::Invalid`]: its library needs a launcher of its own.
pub(crate) fn refuse_foreign(program: &OsString, cwd: &Path) -> Result<()> {
    let Some((library, whose, _)) = find_library(program, cwd) else { return Ok(()) };
    Err(Error::Invalid {
        message: format!(
            "{} is a program of {whose} ({library}), which does not speak PMI: it cannot be part of the job's MPI world",
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
    let (library, whose, remedy) = find_library(program, cwd)?;
    let program = program.to_string_lossy();
    Some(Error::Invalid {
        message: format!(
            "{program} is a program of {whose} ({library}) and needs its launcher: each of the {ranks} ranks would be a world of its own"
        ),
        hint: Some(remedy.to_owned()),
    })
}

/// The MPI library that a program needs, itself or by another library, if it is one of those; whose it is, and the remedy.
fn find_library(program: &OsString, cwd: &Path) -> Option<(String, &'static str, &'static str)> {
    let resolver = Resolver::new(ResolverConfig::of_process());
    let path = cwd.join(resolver.find_program(Path::new(program)));
    let closure = resolver.closure(&path).ok()?;
    let needed = closure.needed.iter().map(|it| &it.name);
    let names: Vec<_> = needed.chain(closure.missing.iter().map(|it| &it.name)).collect();
    let find = |begin: &[u8]| names.iter().find(|name| name.as_bytes().starts_with(begin));
    LIBRARIES.iter().find_map(|(mark, library, whose, remedy)| {
        let found = find(mark).and(find(library))?;
        Some((found.to_string_lossy().into_owned(), *whose, *remedy))
    })
}
