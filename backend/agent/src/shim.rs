//! The shim: it stands in a program's place on a launcher's command line. It checks in with its node's agent, and then
//! becomes the program.
//!
//! The first shim on a node finds no agent and starts it. The kernel decides which one is first: only one process can
//! bind the agent's socket. The first shim binds it before there is an agent, so the socket accepts early shims, too.

use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use gantry_backend::connect_abstract;
use gantry_shared::rendezvous::handle::{VARIABLES, build_service_name, build_variables};
use gantry_shared::wire::frame;
use gantry_shared::wire::hold::{
    CheckIn, FromDesk, GANTRY_SENT_AGENT, GANTRY_TICKET, HoldTicket, Own, SHIM_WORDS, ToDesk, build_desk_name,
};
use gantry_shared::wire::mpi::MpiRanks;
use gantry_shared::wire::rendezvous::{Ask, AskWhat, Gate, VERSION};
use gantry_types::error::{Failure, Kind};
use gantry_types::foreign::ForeignText;
use gantry_types::id::Rank;
use gantry_types::rendezvous::Resource;
use gantry_wlm::host::{Host, Machine, fork_orphan};
use gantry_wlm::launcher::{RankSide, find_by_word, parse_rank_facts};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::{AccessFlags, access, chdir, getppid};

use crate::process::allow_tracer;
use crate::process::diagnose::explain_exec;
use crate::process::exec::{self, Environment};
use crate::process::renumber::replace_arguments;
use crate::process::strays::Marker;
use crate::release::refuse;
use crate::{failure, pmi, ranks};

/// The timeout for the agent's messages. The agent answers when all ranks of the node have checked in.
const PATIENCE: Duration = Duration::from_secs(120);

/// How long a process may have the agent's socket without listening on it.
const LISTENING: Duration = Duration::from_secs(10);

/// The exit codes of shells and launchers for: not found, and found but not executable.
const NOT_FOUND: u8 = 127;
const NOT_EXECUTED: u8 = 126;

/// Checks in, waits for permission, and becomes the program. `args` are `[--by LAUNCHER] [--] PROGRAM ARGS`.
///
/// Returns the exit code, in two processes only: in one that fails; and in a copy of this process, after `serve`. That
/// copy is the node's agent, and has the agent's socket as its standard input.
pub(crate) fn run(args: &[OsString], serve: fn(HoldTicket) -> u8) -> u8 {
    let (by, command) = match args {
        [option, launcher, rest @ ..] if option == "--by" => (launcher.to_str(), rest),
        rest => (None, rest),
    };
    let command = command.strip_prefix(&[OsString::from("--")]).unwrap_or(command);
    let by = by.and_then(find_by_word);
    let (failure, code) = match check_in(by) {
        Ok(CheckedIn::Rank(entered)) => become_program(command, by, entered),
        Ok(CheckedIn::Agent(ticket)) => return serve(*ticket),
        Err(failure) => (failure, NOT_EXECUTED),
    };
    // The launcher forwards this to the user.
    let hint = failure.hint().map(|hint| format!(" ({hint})")).unwrap_or_default();
    drop(writeln!(io::stderr(), "{SHIM_WORDS}{}", ForeignText::of(&format_args!("{failure}{hint}"))));
    code
}

/// What this process is after the check-in.
enum CheckedIn {
    Rank(Entered),
    Agent(Box<HoldTicket>),
}

/// The shim's data once the agent lets it go on.
struct Entered {
    /// The connection to the agent.
    desk: UnixStream,
    /// The variables by which the program finds its rendezvous.
    variables: Vec<(&'static str, String)>,
    /// Settings of this rank alone.
    own: Own,
    /// The socket to the server of MPI programs. The program inherits it.
    served: Option<OwnedFd>,
}

/// Checks in and waits for the agent's permission.
fn check_in(by: Option<&RankSide>) -> Result<CheckedIn, Failure> {
    let host = Machine;
    let text = host.env(GANTRY_TICKET).ok_or_else(|| {
        Failure::new(Kind::Invalid, format!("{GANTRY_TICKET} is not set"))
            .with_hint("gantry-agent hold is started by a launcher that gantry has started; see that it passes on the environment")
    })?;
    let ticket = HoldTicket::from_text(&text.to_string_lossy());
    let ticket = ticket.map_err(|error| refuse(&error))?;
    let known = exec::variables();
    let facts =
        parse_rank_facts(&known, by).map_err(|error| Failure::new(Kind::Unsupported, error.to_string()))?;
    let local = facts.local.ok_or_else(|| {
        Failure::new(Kind::Unsupported, "the launcher does not tell how many ranks this node has")
    })?;
    let check_in = CheckIn { rank: Rank(facts.rank), size: facts.size, local_size: local.size };
    let Some(mut desk) = come_to_desk(&ticket, check_in)? else {
        return Ok(CheckedIn::Agent(Box::new(ticket)));
    };
    let (mut variables, mut served) = (Vec::new(), None);
    loop {
        match hear(&mut desk)? {
            FromDesk::Prepare { agent } => {
                let service = build_service_name(ticket.agent.app, &ticket.agent.secret, agent);
                variables = build_variables(&service, ticket.agent.subjob);
                // Without the marker the agent finds only descendants of the rank when the app ends.
                let marker = Marker::new(ticket.agent.app, getppid().as_raw()).ok();
                variables.extend(marker.map(|marker| marker.build(known.iter().copied())));
                if ticket.mpi != MpiRanks::NotServed {
                    let socket = ask_for_mpi(&service, check_in.rank)?;
                    let (numbers, here) = ((check_in.rank, check_in.size), (local.rank, local.size));
                    let here = (here.0 as usize, here.1 as usize);
                    let wide = ticket.mpi == MpiRanks::Join;
                    variables.extend(pmi::build_variables(socket.as_raw_fd(), numbers, here, wide));
                    served = Some(socket);
                }
                // Without Yama the call fails, and is not needed.
                drop(allow_tracer(agent.get()));
                say(&mut desk, &ToDesk::Ready)?;
            }
            FromDesk::Go => {
                let own = ticket.own.into_iter().find(|own| own.ranks.contains(check_in.rank));
                let own = own.unwrap_or_default();
                return Ok(CheckedIn::Rank(Entered { desk, variables, own, served }));
            }
            FromDesk::Refused(failure) => return Err(failure),
        }
    }
}

/// Connects to the node's server of MPI programs. This process's program inherits the socket.
fn ask_for_mpi(service: &str, rank: Rank) -> Result<OwnedFd, Failure> {
    let failed = |error: io::Error| failure::from_io("reach this node's server of MPI programs", &error);
    let of = Gate { resource: Resource::Job, expected: None };
    let ask = Ask { version: VERSION, rank: Some(rank), of, what: AskWhat::Mpi };
    let bytes = frame::encode(&ask).map_err(|error| failed(io::Error::other(error)))?;
    let mut socket = connect_abstract(service, Instant::now() + LISTENING).map_err(failed)?;
    // The agent answers when it has its place. Until then the whole request fits into the socket's buffer.
    socket.write_all(&bytes).map_err(failed)?;
    fcntl(&socket, FcntlArg::F_SETFD(FdFlag::empty())).map_err(|errno| failed(errno.into()))?;
    Ok(socket.into())
}

/// Checks in with the node's agent. Starts the agent if there is none. `None`: this process is that agent.
///
/// A shim that starts the agent checks in first. The agent waits for ranks that have checked in: it would wait in vain
/// for a shim that was killed between the start and its check-in.
fn come_to_desk(ticket: &HoldTicket, check_in: CheckIn) -> Result<Option<UnixStream>, Failure> {
    let failed = |error: io::Error| failure::from_io("reach this node's agent", &error);
    let name = build_desk_name(ticket.agent.app, &ticket.agent.secret);
    let (first, mut desk) = take_or_reach(&name).map_err(failed)?;
    say(&mut desk, &ToDesk::CheckIn(check_in))?;
    if let Some(listener) = first {
        if fork_orphan(listener.into()).map_err(failed)? {
            // Users end their app by its arguments. Without `/proc` the agent keeps them.
            replace_arguments("enter").ok();
            return Ok(None);
        }
        forget_child();
    }
    Ok(Some(desk))
}

/// Removes the pending signal of our own child's end. The program must not see it.
///
/// Some launchers start ranks with SIGCHLD blocked, and a pending signal survives execve.
fn forget_child() {
    let mut end_of_child = SigSet::empty();
    end_of_child.add(Signal::SIGCHLD);
    // If SIGCHLD is not blocked, it was never pending.
    let pending = SignalFd::with_flags(&end_of_child, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC);
    pending.and_then(|pending| pending.read_signal()).ok();
}

/// Connects to the desk. Also returns the desk itself if this shim is the first.
fn take_or_reach(name: &str) -> io::Result<(Option<UnixListener>, UnixStream)> {
    let deadline = Instant::now() + LISTENING;
    let address = &SocketAddr::from_abstract_name(name)?;
    loop {
        let first = match UnixListener::bind_addr(address) {
            Ok(listener) => Some(listener),
            Err(error) if error.kind() == ErrorKind::AddrInUse => None,
            Err(error) => return Err(error),
        };
        match connect(name, deadline) {
            // Another shim may be between bind and listen. If it is killed there, the next shim binds the socket.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused && Instant::now() < deadline => {
                #[expect(
                    clippy::disallowed_methods,
                    reason = "this process has one thread, and nothing else to do"
                )]
                thread::sleep(Duration::from_millis(1));
            }
            reached => return Ok((first, reached?)),
        }
    }
}

/// Connects to the desk. Another rank of the app has created its socket.
fn connect(name: &str, until: Instant) -> io::Result<UnixStream> {
    let desk = connect_abstract(name, until)?;
    desk.set_read_timeout(Some(PATIENCE))?;
    Ok(desk)
}

fn say(desk: &mut UnixStream, message: &ToDesk) -> Result<(), Failure> {
    let failed = |error: String| Failure::new(Kind::Lost, format!("write to this node's agent: {error}"));
    let bytes = frame::encode(message).map_err(|error| failed(error.to_string()))?;
    desk.write_all(&bytes).map_err(|error| failed(error.to_string()))
}

fn hear(desk: &mut UnixStream) -> Result<FromDesk, Failure> {
    let failed = |error: String| Failure::new(Kind::Lost, format!("read from this node's agent: {error}"));
    let body = frame::read_frame(desk).map_err(|error| failed(error.to_string()))?;
    let body = body.ok_or_else(|| failed("it has ended".to_owned()))?;
    frame::decode(&body).map_err(|error| failed(error.to_string()))
}

/// Becomes the program, which is found as by the C library's execvp.
///
/// This closes the connection to the agent, which thereby learns of the success.
fn become_program(
    command: &[OsString],
    by: Option<&RankSide>,
    Entered { mut desk, variables, own, served }: Entered,
) -> (Failure, u8) {
    let Some((program, args)) = command.split_first() else {
        return (Failure::new(Kind::Invalid, "no program to start"), NOT_EXECUTED);
    };
    if let Some(cwd) = &own.cwd {
        // Otherwise a missing directory would look like an error of the program.
        if let Err(errno) = access(&Path::new(cwd).join("."), AccessFlags::X_OK) {
            let failure = failure::from_io(format_args!("enter {}", cwd.display()), &errno.into());
            drop(say(&mut desk, &ToDesk::NotStarted(failure.clone())));
            return (failure, NOT_EXECUTED);
        }
    }
    let environment = build_environment(by, &own, &variables, served.is_some());
    let enter = || own.cwd.as_deref().map_or(Ok(()), |cwd| chdir(cwd).map_err(io::Error::from));
    let error = match environment.and_then(|environment| enter().map(|()| environment)) {
        Ok(environment) => exec::become_program(program, args, &environment),
        Err(error) => error,
    };
    let code = if error.kind() == ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTED };
    let failure = match error.raw_os_error() {
        Some(errno) if program.as_bytes().contains(&b'/') => {
            ranks::to_failure(&explain_exec(Path::new(program), None, errno))
        }
        _ => failure::from_io(format_args!("start {}", program.display()), &error)
            .with_hint("give its path, or add its folder to PATH on the nodes"),
    };
    drop(say(&mut desk, &ToDesk::NotStarted(failure.clone())));
    (failure, code)
}

/// The program's environment: this process's own with those changes.
fn build_environment(
    by: Option<&RankSide>,
    own: &Own,
    variables: &[(&'static str, String)],
    is_served: bool,
) -> io::Result<Environment> {
    let foreign = pmi::FOREIGN.iter().filter(|_| is_served);
    let mut environment = Environment::inherit();
    environment.remove(|name| {
        VARIABLES.iter().chain(foreign.clone()).any(|it| name == *it) || by.is_some_and(|by| by.hides(name))
    });
    for (name, value) in &own.env {
        environment.set(name, value)?;
    }
    environment.unset(OsStr::new(GANTRY_TICKET));
    environment.unset(OsStr::new(GANTRY_SENT_AGENT));
    for (name, value) in variables {
        environment.set(OsStr::new(name), OsStr::new(value))?;
    }
    Ok(environment)
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsRawFd, OwnedFd};
    use std::sync::mpsc;

    use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket};

    use super::*;

    /// One process has the socket and does not listen. Another one connects, and waits until `then` is done.
    ///
    /// Returns whether the second one was the first to listen.
    #[track_caller]
    fn is_first_after(name: &str, then: impl FnOnce(OwnedFd) -> Option<OwnedFd>) -> bool {
        let name = format!("gantry-test-{name}-{}", std::process::id());
        let taken = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).unwrap();
        bind(taken.as_raw_fd(), &UnixAddr::new_abstract(name.as_bytes()).unwrap()).unwrap();
        let (say, hear) = mpsc::channel();
        let reached = name.clone();
        let coming = thread::spawn(move || say.send(take_or_reach(&reached).unwrap().0.is_some()));
        assert!(hear.recv_timeout(Duration::from_millis(50)).is_err(), "nobody listens yet");
        let _kept = then(taken);
        let first = hear.recv_timeout(2 * LISTENING).unwrap();
        coming.join().unwrap().unwrap();
        first
    }

    #[test]
    fn who_comes_while_another_has_the_socket_and_does_not_listen_yet_waits_for_that() {
        let listens = |taken: OwnedFd| {
            listen(&taken, Backlog::new(8).unwrap()).unwrap();
            Some(taken)
        };
        assert!(!is_first_after("listens", listens));
    }

    #[test]
    fn who_comes_after_one_that_was_killed_before_it_listened_is_the_first() {
        assert!(is_first_after("gone", |_closed| None));
    }
}
