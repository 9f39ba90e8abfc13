//! gantry-agent: the program on every node. It holds and starts ranks, keeps sessions, starts daemons, and cleans up.
//!
//! | module | contents |
//! | --- | --- |
//! | `work` | the loop that decides, and all state |
//! | `overlay` | links to the frontend and to agents further down |
//! | `starter`, `connection` | whether the agent's parent process is alive; its connection as the agent's link |
//! | `shim`, `desk`, `after_rank` | ranks of a launcher: the shim, their check-in, the program run after each |
//! | `seek` | finds running ranks by their environment |
//! | `ranks`, `process` | ranks; starting, holding and ending processes |
//! | `daemons`, `ending` | starting tool daemons; ending them |
//! | `storage`, `session`, `tree` | directories on the node |
//! | `provide`, `receive`, [`unpack`] | their contents: links to files of the node, archives of files it lacks |
//! | `service` | the socket for daemons' queries |
//! | `rendezvous` | the socket at which ranks exchange data, and the command for their scripts |
//! | [`pmi`], `pmix` | the server that makes the ranks one MPI world; the same by the library of PMIx |
//! | `channel` | messages between the tool's frontend and its daemons |
//! | `stdio` | input and output of processes |
//! | `failure` | the system's errors as failures for the wire |
//! | `task` | tasks of the runtime |
//! | `heap` | memory for bulk data |
//!
//! It is a library only for its tests and fuzz targets.

mod work;
mod overlay;
mod starter;
mod connection;
mod shim;
mod desk;
mod after_rank;
mod seek;
mod ranks;
mod process;
mod daemons;
mod ending;
mod jobs;
mod storage;
mod session;
mod provide;
mod reach;
mod receive;
mod release;
mod service;
mod rendezvous;
mod pmix;
pub mod pmi;
mod channel;
mod stdio;
mod tree;
mod failure;
mod framed;
mod heap;
mod task;
pub mod unpack;
#[cfg(any(test, feature = "fuzz"))]
pub use channel::trial as channel_trial;
#[cfg(test)]
#[path = "../../src/skip.rs"]
mod skip;
#[cfg(test)]
mod testing;

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::thread;
use std::time::Duration;

use gantry_shared::wire::build::describe;
use gantry_shared::wire::frame;
use gantry_shared::wire::hold::{GANTRY_SENT_AGENT, GANTRY_TICKET, HoldTicket, from_hex, to_hex};
use gantry_shared::wire::message::Ticket;
use gantry_types::error::{Failure, Kind};
use gantry_types::foreign::push_lines;
use gantry_types::id::Pid;
use gantry_types::status::ExitStatus;
use gantry_wlm::caps::queue::STARTER;
use gantry_wlm::host::{Host, Machine, keep, open_pidfd};
use gantry_wlm::launcher::find_node_name;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::SigSet;

use crate::process::strays::{self, Doomed};
use crate::release::refuse;

const USAGE: &str = "gantry-agent is started by gantry, not by hand

usage: gantry-agent serve [step | attached [dial|here|either]]
                                   serve an app; what it needs to know comes on standard input, which an attached starter keeps open;
                                   dial the frontend (that is so without a word), or have the link on standard input and output
       gantry-agent serve told WLM serve an app, where the starter has nothing but variables to tell by; why it ends is left with the WLM
       gantry-agent hold PROGRAM [ARGS]   in the program's place in a launcher's command
       gantry-agent rendezvous --help     for ranks that are scripts: exchange data with the others
       gantry-agent ranks PID      tell gantry on another machine where the ranks of the launcher with that pid are
       gantry-agent below PORT     the same, of the ranks here that a proxy of that launcher has started
       gantry-agent pmix PID LIBRARY      the same, of a launcher that is a PMIx server, by its own library
       gantry-agent pmix serve     serve PMIx to an app's ranks, by a library of the node; standard input is a socket to the agent
       gantry-agent sweep [DIR]    end and remove what killed agents have left: processes, and storage in DIR or where it usually goes
       gantry-agent id             say which build this is
       gantry-agent --version";

/// The exit codes of the agent's commands.
const SUCCESS: u8 = 0;
const FAILURE: u8 = 1;

/// Runs the command in this process's arguments, and returns the exit code. That of a keeper is its agent's.
#[must_use]
pub fn run() -> u8 {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    let words: Vec<&str> = args.iter().filter_map(|arg| arg.to_str()).collect();
    if let Some((first, rest)) = args.split_first()
        && first == "hold"
    {
        return shim::run(rest, serve_ranks);
    }
    if let Some((first, rest)) = args.split_first()
        && first == "rendezvous"
    {
        return rendezvous::command::run(rest);
    }
    // The guard is the ancestor of its own agents, and inherits what a killed agent leaves. Other agents need a keeper.
    if matches!(words.as_slice(), ["serve", _, ..])
        && let Ok(Some(ended)) = keep(Duration::ZERO)
    {
        return end_as(ended);
    }
    let ticket = Machine.env(GANTRY_TICKET);
    let result = match words.as_slice() {
        // Some launchers take a program to run after each rank, but no arguments for it.
        [] if ticket.is_some() => after_rank::run_after_rank(&ticket.unwrap_or_default().to_string_lossy()),
        ["serve"] | ["serve", "step"] => begin(read_ticket).and_then(|ticket| serve(ticket, false)),
        ["serve", "told", wlm] => {
            let served = begin(read_told_ticket).and_then(|ticket| serve(ticket, false));
            served.map_err(|failure| leave_word(wlm, failure))
        }
        ["serve", "attached"] | ["serve", "attached", "dial"] => {
            begin(read_ticket).and_then(|ticket| serve(ticket, true))
        }
        ["serve", "attached", "here"] => serve_over(false),
        ["serve", "attached", "either"] => serve_over(true),
        ["ranks", pid] => tell_ranks(pid),
        ["below", port] => tell_below(port),
        ["pmix", "serve"] => pmix::serve(),
        ["pmix", pid, library] => ask_pmix(pid, Path::new(library)),
        ["sweep"] => sweep(None),
        ["sweep", directory] => sweep(Some(Path::new(directory))),
        ["id"] => identify(),
        ["--version"] => say(&format!("gantry-agent {}", describe())),
        ["--help"] => say(USAGE),
        _ => Err(Failure::new(Kind::Invalid, USAGE)),
    };
    end(result)
}

/// As [`serve`], for ranks that a launcher starts. They check in at the socket that is our standard input.
fn serve_ranks(ticket: HoldTicket) -> u8 {
    if let Ok(Some(ended)) = keep(Duration::ZERO) {
        return end_as(ended);
    }
    let served = serve_brought(ticket);
    // No process starts it any more.
    remove_sent_agent();
    end(served)
}

/// Exits with this result.
fn end(result: Result<(), Failure>) -> u8 {
    let Err(failure) = result else { return SUCCESS };
    // The guard forwards this text.
    let hint = failure.hint().map(|hint| format!(" ({hint})")).unwrap_or_default();
    let mut text = String::new();
    push_lines(&mut text, &format!("{failure}{hint}"));
    drop(io::stderr().write_all(text.as_bytes()));
    FAILURE
}

/// Exits as the keeper of an agent that has ended.
fn end_as(ended: ExitStatus) -> u8 {
    if let ExitStatus::Signal(_) = ended {
        // The agent's storage is left over. A failure to remove it has no reader here.
        drop(sweep(None));
    }
    ended.code().unwrap_or(FAILURE)
}

fn say(text: &str) -> Result<(), Failure> {
    writeln!(io::stdout(), "{text}").map_err(|e| failure::from_io("write to standard output", &e))
}

/// Prepares to serve. Reads the ticket with `read`.
fn begin(read: fn() -> Result<Ticket, Failure>) -> Result<Ticket, Failure> {
    // The parent process may have blocked signals for us: without SIGCHLD the agent would never learn of a child's end.
    SigSet::empty().thread_set_mask().map_err(|e| failure::from_io("unblock signals", &e.into()))?;
    remove_sent_agent();
    let mut ticket = read()?;
    if ticket.host.is_empty() {
        // One ticket serves all nodes.
        ticket.host = find_node_name(|name| Machine.env(name)).unwrap_or_else(|| Machine.hostname());
    }
    Ok(ticket)
}

fn serve(ticket: Ticket, attached: bool) -> Result<(), Failure> {
    block_on(async move {
        let joined = tokio::select! {
            joined = overlay::join(&ticket, None) => joined.map_err(|e| Failure::new(Kind::Lost, ranks::with_causes(&e)))?,
            () = starter::gone(attached) => return Err(Failure::new(Kind::Lost, "the process that started this agent has ended")),
        };
        work::serve(ticket, joined, work::Beginning::Empty).await
    })
}

/// Replaces this process with the program that reports a failure to the WLM. Its own output may have no reader.
///
/// Returns the failure if that program is not on this node.
fn leave_word(wlm: &str, failure: Failure) -> Failure {
    let (Ok(own), Ok(word)) = (std::env::current_exe(), frame::encode_body(&failure)) else { return failure };
    #[expect(
        clippy::disallowed_methods,
        reason = "nothing is started: this process replaces itself with another program"
    )]
    let mut program = std::process::Command::new(own.with_file_name(STARTER));
    // The program does not need the secret.
    drop(program.args(["word", wlm, &to_hex(&word)]).env_remove(GANTRY_TICKET).exec());
    failure
}

/// As [`serve`], with the link on standard input and output: at once, or if the agent cannot dial the frontend.
fn serve_over(dial_first: bool) -> Result<(), Failure> {
    let ticket = begin(read_ticket)?;
    block_on(async move {
        let connection = connection::Connection::take_stdio();
        let connection = connection.map_err(|e| failure::from_io("use standard input and output", &e))?;
        let joined = overlay::join_over(&ticket, connection, dial_first).await;
        let joined = joined.map_err(|e| Failure::new(Kind::Lost, ranks::with_causes(&e)))?;
        work::serve(ticket, joined, work::Beginning::Empty).await
    })
}

/// How long an agent tries to report why it has no ranks. Another agent may have reported it, and the frontend be gone.
const LAST_WORD_PATIENCE: Duration = Duration::from_secs(3);

/// Removes what was sent here for this agent alone: its executable and the directory made for it.
///
/// Another process may have removed it. The agent serves even if it cannot remove it now.
fn remove_sent_agent() {
    let Some(path) = Machine.env(GANTRY_SENT_AGENT).map(PathBuf::from) else { return };
    if !is_this_program(&path) {
        return;
    }
    drop(std::fs::remove_file(&path));
    if let Some(directory) = path.parent()
        && directory.file_name().is_some_and(|name| name.as_bytes().starts_with(b"gantry-agent-"))
    {
        drop(std::fs::remove_dir(directory));
    }
}

/// Whether that file itself, and no link to it, is this process's executable. The variable may name any file.
fn is_this_program(path: &Path) -> bool {
    let which = |meta: std::fs::Metadata| (meta.dev(), meta.ino());
    let named = std::fs::symlink_metadata(path).map(which);
    let own = std::fs::metadata("/proc/self/exe").map(which);
    named.is_ok_and(|named| own.is_ok_and(|own| own == named))
}

/// Prints where the ranks of a launcher are.
fn tell_ranks(pid: &str) -> Result<(), Failure> {
    remove_sent_agent();
    let pid = pid.parse().ok().and_then(Pid::new).ok_or_else(|| Failure::new(Kind::Invalid, USAGE))?;
    // Its name may already be removed.
    let agent = Path::new("/proc/self/exe");
    let told = gantry_wlm::mpir::tell_ranks(pid, agent, &Machine, &mut io::stdout().lock());
    told.map_err(|e| Failure::new(Kind::Lost, ranks::with_causes(&e)))
}

/// Prints which ranks a launcher's proxy has started here.
fn tell_below(port: &str) -> Result<(), Failure> {
    remove_sent_agent();
    let told = gantry_wlm::mpir::tell_below(port, &Machine, &mut io::stdout().lock());
    told.map_err(|e| Failure::new(Kind::Lost, ranks::with_causes(&e)))
}

/// The timeout in seconds of a process that runs PMIx's library. Such a process outlives the tool that started it.
const PMIX_SECONDS: u32 = 10;

/// As [`tell_ranks`], for a PMIx server, in another format.
fn ask_pmix(pid: &str, library: &Path) -> Result<(), Failure> {
    nix::unistd::alarm::set(PMIX_SECONDS);
    let pid = pid.parse().ok().and_then(Pid::new).ok_or_else(|| Failure::new(Kind::Invalid, USAGE))?;
    end_with(pid)?;
    let told = gantry_wlm::pmix::tell_ranks(pid, library, &mut io::stdout());
    told.map_err(|e| Failure::new(Kind::Lost, ranks::with_causes(&e)))
}

/// Ends this process when that server ends: the library would go on waiting for it.
fn end_with(server: Pid) -> Result<(), Failure> {
    let server = open_pidfd(server).map_err(|e| failure::from_io("inspect the launcher", &e))?;
    thread::spawn(move || {
        poll(&mut [PollFd::new(server.as_fd(), PollFlags::POLLIN)], PollTimeout::NONE).ok();
        #[expect(
            clippy::exit,
            reason = "the other thread is in foreign code, and this process does nothing else"
        )]
        std::process::exit(1);
    });
    Ok(())
}

/// Prints this build: its release and the hash of its bytes.
fn identify() -> Result<(), Failure> {
    let mut hasher = blake3::Hasher::new();
    let read = std::fs::File::open("/proc/self/exe").and_then(|mut exe| io::copy(&mut exe, &mut hasher));
    read.map_err(|e| failure::from_io("read this program", &e))?;
    say(&format!("{} {}", env!("CARGO_PKG_VERSION"), hasher.finalize().to_hex()))
}

fn serve_brought(ticket: HoldTicket) -> Result<(), Failure> {
    // The first rank's descriptors are pipes of its launcher, which must not stay open.
    gantry_wlm::host::close_inherited_descriptors()
        .map_err(|e| failure::from_io("close what is not ours", &e))?;
    SigSet::empty().thread_set_mask().map_err(|e| failure::from_io("unblock signals", &e.into()))?;
    let failed = |e: io::Error| failure::from_io("set up the agent", &e);
    let listener = UnixListener::from(io::stdin().as_fd().try_clone_to_owned().map_err(failed)?);
    listener.set_nonblocking(true).map_err(failed)?;
    let HoldTicket { agent: mut ticket, hold, hold_at, wrapper, mpi, .. } = ticket;
    ticket.host = find_node_name(|name| Machine.env(name)).unwrap_or_else(|| Machine.hostname());
    block_on(async move {
        let how = match (hold, hold_at, wrapper) {
            (true, Some(pattern), _) => desk::Hold::At(process::follow::Pattern::new(&pattern)),
            (_, _, Some(wrapper)) => desk::Hold::At(process::follow::Pattern::behind(&wrapper)),
            (false, _, None) => desk::Hold::No,
            (true, None, None) => desk::Hold::Yes,
        };
        let thread = process::thread::RanksThread::default();
        let listener = tokio::net::UnixListener::from_std(listener).map_err(failed)?;
        // Ranks may look for the socket as soon as they run.
        let socket = rendezvous::bind(&ticket)?;
        let desk::Entered { ranks, mut brought } = desk::receive_ranks(&listener, how, &thread).await;
        let size = brought.size;
        if let (false, Ok(reports)) = (hold, &mut brought.ranks) {
            // Ranks behind a wrapper were held only to be found. They run on as soon as the frontend knows of them.
            reports.iter_mut().for_each(|report| report.held = None);
        }
        let failed = brought.ranks.as_ref().err().cloned();
        if failed.is_some() {
            ticket.patience = ticket.patience.min(LAST_WORD_PATIENCE);
        }
        let lost = |why: String| failed.clone().unwrap_or_else(|| Failure::new(Kind::Lost, why));
        let joined = tokio::select! {
            joined = overlay::join(&ticket, Some(brought)) => joined.map_err(|e| lost(ranks::with_causes(&e))),
            () = ranks.all_ended(), if failed.is_none() => Err(lost("the ranks ended before the frontend knew of them".to_owned())),
        };
        if joined.is_err() {
            // No frontend will ever release them.
            let doomed = Doomed { roots: ranks.kill(None).1, app: Some(ticket.app) };
            // The first failure says more. A later sweep finds those that stay.
            strays::end(&doomed).ok();
        }
        let joined = joined?;
        let beginning = work::Beginning::Brought { ranks, size, hold, thread, desk: listener, socket, mpi };
        work::serve(ticket, joined, beginning).await
    })
}

fn block_on(work: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    heap::keep_freed();
    // If this fails, a launch of many ranks reports that no more files may be open.
    drop(process::spawn::raise_open_files());
    process::spawn::make_room_for_open_files();
    // Only this thread takes signals, for ends of children and requests to end. Other threads would wake for nothing.
    let quiet = || {
        SigSet::all().thread_block().ok();
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().on_thread_start(quiet).build();
    let runtime = runtime.map_err(|e| failure::from_io("set up the agent", &e))?;
    // The work is large. Pinned here, it is not moved again.
    let served = tokio::task::LocalSet::new().block_on(&runtime, pin!(work));
    // A thread that still waits (for a slow disk, say) must not keep the agent here.
    runtime.shutdown_background();
    served
}

/// Reads the ticket from standard input.
fn read_ticket() -> Result<Ticket, Failure> {
    read_ticket_from(&mut io::stdin().lock())
}

/// As [`read_ticket`], from the environment.
fn read_told_ticket() -> Result<Ticket, Failure> {
    let text = Machine.env(GANTRY_TICKET).ok_or_else(|| Failure::new(Kind::Invalid, USAGE))?;
    let bytes = from_hex(&text.to_string_lossy()).map_err(|e| Failure::new(Kind::Protocol, e.to_string()))?;
    read_ticket_from(&mut bytes.as_slice())
}

fn read_ticket_from(reader: &mut impl io::Read) -> Result<Ticket, Failure> {
    let malformed = |why: String| Failure::new(Kind::Protocol, format!("read the ticket: {why}"));
    let body = frame::read_frame(reader).map_err(|e| malformed(e.to_string()))?;
    let body = body.ok_or_else(|| Failure::new(Kind::Invalid, USAGE))?;
    Ticket::from_body(&body).map_err(|e| refuse(&e))
}

fn sweep(directory: Option<&Path>) -> Result<(), Failure> {
    strays::sweep().map_err(|e| failure::from_io("search for processes of dead agents", &e))?;
    // Apps are in any of these: where one has no room, they are in the next.
    let bases = session::StageBase::find_all(directory)?;
    let memory = directory.is_none().then(session::StageBase::in_memory).flatten();
    let mut kept = Ok(());
    for swept in bases.iter().chain(&memory).flat_map(session::sweep) {
        match swept.outcome {
            Ok(()) => say(&format!("removed {}", swept.path.display()))?,
            Err(failure) => kept = Err(failure),
        }
    }
    kept
}
