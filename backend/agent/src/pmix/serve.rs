//! The process that runs PMIx's library for an agent. Its standard input is the socket to the agent.
//!
//! It serves until the agent closes its end, also by its death. Then it ends the library, which removes what ranks have
//! registered for removal, such as shared memory.

use std::fs::{DirBuilder, File};
use std::io::{self, Write, stdin};
use std::os::fd::AsFd;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use gantry_shared::wire::mpi::MpiSubject;
use gantry_types::error::{Failure, Kind};
use gantry_types::id::Rank;
use nix::sys::signal::SigSet;
use nix::unistd::{alarm, dup2_stdin, getegid, geteuid};

use super::facts::{build_job, build_server, find_job_directory, find_rank_directory};
use super::message::{FromServer, MAX_PUTS_BYTES, Setup, ToServer, build_message, read_message};
use super::sys::{Server, Upcall};
use crate::failure;
use crate::session::{StageBase, sweep};

/// How long the library may take to start. The agent gives up earlier.
const START_SECONDS: u32 = 60;

/// How long the library may take to end.
const END_SECONDS: u32 = 10;

/// Serves until the agent closes its end.
///
/// # Errors
/// The socket to the agent fails. The agent learns everything else from messages.
pub(crate) fn serve() -> Result<(), Failure> {
    let failed = |error: io::Error| failure::from_io("serve PMIx", &error);
    // A thread that blocks signals has started this process.
    SigSet::empty().thread_set_mask().map_err(|errno| failed(errno.into()))?;
    alarm::set(START_SECONDS);
    let mut agent = take_stdin().map_err(failed)?;
    let setup = match read_message(&mut agent).map_err(failed)? {
        Some((ToServer::Setup(setup), _)) => setup,
        Some(_) => {
            return Err(Failure::new(Kind::Protocol, "serve PMIx: the first message is not the setup"));
        }
        None => return Ok(()),
    };
    let server = match begin(&setup, &agent) {
        Ok(server) => server,
        Err(why) => return say(&agent, &FromServer::Failed(why), &[]).map_err(failed),
    };
    alarm::cancel();
    while let Ok(Some((ToServer::Fenced { .. }, all))) = read_message(&mut agent) {
        server.answer_fence(all);
    }
    alarm::set(END_SECONDS);
    server.finalize();
    remove_what_is_left(&setup);
    Ok(())
}

/// Takes the socket from standard input. Nothing that the library starts inherits it.
fn take_stdin() -> io::Result<UnixStream> {
    let socket = UnixStream::from(stdin().as_fd().try_clone_to_owned()?);
    dup2_stdin(File::open("/dev/null")?)?;
    Ok(socket)
}

/// Starts the server, and tells the agent what its ranks need.
fn begin(setup: &Setup, agent: &UnixStream) -> Result<Server, String> {
    let mine: Vec<Rank> =
        setup.layout.get(setup.node as usize).map(|ranks| ranks.iter().collect()).unwrap_or_default();
    let top = setup.directory.to_string_lossy();
    make_directories(&top, &mine).map_err(|error| format!("make directories in {top}: {error}"))?;
    let size: u64 = setup.layout.iter().map(|ranks| ranks.len()).sum();
    let size = u32::try_from(size).map_err(|error| error.to_string())?;
    let (server, library) = load(setup, size, agent)?;
    server.register_job(mine.len(), &build_job(setup))?;
    let user = (geteuid().as_raw(), getegid().as_raw());
    for rank in mine {
        let variables = server.register_rank(rank.0, user)?;
        say(agent, &FromServer::Variables(rank, variables), &[]).map_err(|error| error.to_string())?;
    }
    say(agent, &FromServer::Ready(library), &[]).map_err(|error| error.to_string())?;
    Ok(server)
}

/// Starts the server of the first library that is here. Names without a slash are the system's to find.
fn load(setup: &Setup, size: u32, agent: &UnixStream) -> Result<(Server, String), String> {
    let paths = setup.libraries.iter().map(Path::new);
    let is_here = |path: &&Path| path.components().count() == 1 || path.exists();
    let library = paths.clone().find(is_here).or_else(|| paths.clone().next_back());
    let library = library.ok_or("no library is named")?;
    let voice = Mutex::new(agent.try_clone().map_err(|error| error.to_string())?);
    let listener = move |upcall: Upcall<'_>| {
        let (message, behind) = match upcall {
            Upcall::Joined(rank) => (FromServer::Joined(Rank(rank)), &[][..]),
            Upcall::Left(rank) => (FromServer::Left(Rank(rank)), &[][..]),
            Upcall::Aborted(rank, code) => (FromServer::Aborted(Rank(rank), code), &[][..]),
            Upcall::Spawn(rank) => (FromServer::Asked(Rank(rank), MpiSubject::Spawn), &[][..]),
            Upcall::Names(rank) => (FromServer::Asked(Rank(rank), MpiSubject::Names), &[][..]),
            Upcall::Fence(puts) if puts.len() as u64 > MAX_PUTS_BYTES => return false,
            Upcall::Fence(puts) => (FromServer::Fence { bytes: puts.len() as u64 }, puts),
        };
        let voice = voice.lock().unwrap_or_else(PoisonError::into_inner);
        say(&voice, &message, behind).is_ok()
    };
    let server = Server::start(library, (&setup.namespace, size), &build_server(setup), Box::new(listener))?;
    Ok((server, library.display().to_string()))
}

fn say(mut agent: &UnixStream, message: &FromServer, behind: &[u8]) -> io::Result<()> {
    agent.write_all(&build_message(message, behind)?)
}

/// Makes the directories that ranks are told of. The one above them is the agent's.
fn make_directories(top: &str, ranks: &[Rank]) -> io::Result<()> {
    let make = |path: &str| DirBuilder::new().mode(0o700).create(path);
    make(&find_job_directory(top))?;
    ranks.iter().try_for_each(|rank| make(&find_rank_directory(top, *rank)))
}

/// Removes directories of dead agents: one that was killed leaves its own. A living agent removes it itself.
fn remove_what_is_left(setup: &Setup) {
    let base = Path::new(&setup.directory).parent().map(StageBase::at);
    drop(base.map(|base| sweep(&base)));
}
