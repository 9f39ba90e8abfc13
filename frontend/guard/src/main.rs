//! The guard's executable. The frontend library starts it with a socket as standard input; a job's script starts it
//! to start agents; a batch script runs it under a launcher's name. It is not for interactive use.
//!
//! | module | content |
//! | --- | --- |
//! | `policy` | the guard's decisions, as a pure state machine |
//! | `serve` | the guard's process |
//! | `child` | a child that brings agents, and its last words |
//! | `launcher`, `driven` | the app's launcher, started plainly or under control as by a debugger |
//! | `table` | the launcher's own proctable |
//! | `starter`, `last_word` | inside a job that brings agents; the report when they fail |
//! | `held` | in a batch script, in the place of a launcher |
//! | `submitter` | submits a job, and cancels it if it has no owner |

mod child;
mod driven;
mod error;
mod held;
mod last_word;
mod launcher;
mod policy;
mod serve;
mod starter;
mod submitter;
mod sys;
mod table;

use std::ffi::{OsStr, OsString};
use std::io::{self, BufReader, PipeReader, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Duration;

use gantry_guard::helpers::GUARD;
use gantry_shared::signals::is_ignored;
use gantry_shared::wire::build::describe;
use gantry_types::foreign::ForeignText;
use gantry_types::status::ExitStatus;
use gantry_wlm::caps::queue::UNREACHABLE;
use tokio::signal::unix::{SignalKind, signal};

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    if let Some(name) = launcher_name() {
        return hold(&name, args);
    }
    let words: Vec<&str> = args.iter().filter_map(|arg| arg.to_str()).collect();
    let done = match words.as_slice() {
        ["--version"] => writeln!(io::stdout(), "gantry-guard {}", describe()),
        ["start", wlm, send] => return start(wlm, send),
        ["in", wlm, job, pid, what @ ("start" | "look")] => enter(wlm, job, pid, what),
        ["look", wlm] => look(wlm),
        ["leave", wlm] => run(starter::leave(wlm)),
        ["word", wlm, word] => run(starter::leave_word(wlm, word)),
        ["submit"] => tool_socket().and_then(submitter::run),
        ["cancel", wlm, job] => submitter::cancel_for(wlm, job).map_err(io::Error::other),
        _ => guard(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error);
            ExitCode::FAILURE
        }
    }
}

/// The launcher's name, if this executable was started through a link in the directory of launchers.
fn launcher_name() -> Option<OsString> {
    let called = PathBuf::from(std::env::args_os().next()?);
    called.file_name().filter(|name| *name != GUARD).map(OsStr::to_owned)
}

/// Runs a launcher whose ranks are to be held, and exits with its status.
fn hold(name: &OsStr, args: Vec<OsString>) -> ExitCode {
    let run = || {
        // A thread of its own receives signals; this one runs the launcher.
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let signals = pass_on(&runtime)?;
        let ended = held::run(name, args, signals).map_err(io::Error::other);
        runtime.shutdown_background();
        ended
    };
    match run() {
        Ok(ExitStatus::Code(code)) => ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)),
        Ok(ExitStatus::Signal(signal)) => {
            ExitCode::from(u8::try_from(128 + signal.number()).unwrap_or(u8::MAX))
        }
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            let said = format!("gantry: cannot hold what {} launches: {error}", name.display());
            drop(writeln!(io::stderr(), "{}", ForeignText::from(said.as_str())));
            ExitCode::FAILURE
        }
    }
}

/// The signals of this process for the launcher, one byte each. The launcher goes on ignoring what this process ignores.
fn pass_on(runtime: &tokio::runtime::Runtime) -> io::Result<PipeReader> {
    let (told, tell) = io::pipe()?;
    let tell = Arc::new(tell);
    let _inside = runtime.enter();
    let kinds = [
        SignalKind::terminate(),
        SignalKind::interrupt(),
        SignalKind::hangup(),
        SignalKind::quit(),
        SignalKind::user_defined1(),
        SignalKind::user_defined2(),
    ];
    for kind in kinds.into_iter().filter(|kind| !is_ignored(kind.as_raw_value())) {
        let Ok(number) = u8::try_from(kind.as_raw_value()) else { continue };
        let (tell, mut stream) = (Arc::clone(&tell), signal(kind)?);
        runtime.spawn(async move {
            while stream.recv().await.is_some() && (&*tell).write_all(&[number]).is_ok() {}
        });
    }
    Ok(told)
}

/// How long the remains of a launcher may run after launcher and guard were killed. Some use that time to tell their
/// WLM that the job is over.
const LEFT_BY_LAUNCHER: Duration = Duration::from_secs(5);

/// The socket to the tool.
fn tool_socket() -> io::Result<UnixStream> {
    // Otherwise this process would keep the tool's pipes and sockets open.
    gantry_wlm::host::close_inherited_descriptors().ok();
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    socket.local_addr()?;
    Ok(socket)
}

fn guard() -> io::Result<()> {
    let socket = tool_socket()?;
    if let Ok(Some(_)) = gantry_wlm::host::keep(LEFT_BY_LAUNCHER) {
        // The guard has ended, and so have its remaining children.
        return Ok(());
    }
    serve::serve(socket)
}

/// Becomes a program that acts in a job, like a child of one of the job's processes.
fn enter(wlm: &str, job: &str, pid: &str, what: &str) -> io::Result<()> {
    let entrance = starter::enter(wlm, job, pid, what).map_err(io::Error::other)?;
    #[expect(
        clippy::disallowed_methods,
        reason = "nothing is started: this process replaces itself with another program"
    )]
    let mut command = Command::new(entrance.program);
    Err(command.args(entrance.args).envs(entrance.variables).exec())
}

/// Prints where a job's ranks are.
fn look(wlm: &str) -> io::Result<()> {
    let mut said = String::new();
    run(async {
        said = starter::look(wlm).await?;
        Ok(())
    })?;
    io::stdout().write_all(said.as_bytes())
}

fn run(what: impl Future<Output = error::Result<()>>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(what).map_err(io::Error::other)
}

/// Starts agents in a job. The job asks it to end by a signal.
fn start(wlm: &str, send: &str) -> ExitCode {
    let run = || -> io::Result<ExitCode> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let code = runtime.block_on(async {
            let (mut term, mut hangup) = (signal(SignalKind::terminate())?, signal(SignalKind::hangup())?);
            let stop = Box::pin(async move {
                tokio::select! {
                    _ = term.recv() => {}
                    _ = hangup.recv() => {}
                }
            });
            match starter::run(wlm, send, BufReader::new(io::stdin().lock()), stop).await {
                Ok(()) => Ok(ExitCode::SUCCESS),
                Err(starter::Failed { error, unheard }) => {
                    complain(&error);
                    Ok(if unheard { ExitCode::from(UNREACHABLE) } else { ExitCode::FAILURE })
                }
            }
        });
        runtime.shutdown_background();
        code
    };
    run().unwrap_or_else(|error| {
        complain(&error);
        ExitCode::FAILURE
    })
}

fn complain(error: &dyn std::fmt::Display) {
    let said = format!("gantry-guard: {error} (it is started by gantry, not by hand)");
    drop(writeln!(io::stderr(), "{}", ForeignText::from(said.as_str())));
}
