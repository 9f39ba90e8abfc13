//! gantry-agent: the helper on every node. It holds and starts ranks, keeps sessions, starts daemons, and leaves nothing behind.
//!
//! | module | what is there |
//! | --- | --- |
//! | [`work`] | the loop that decides, and all state |
//! | [`overlay`] | the way to the frontend, and to agents further down |
//! | [`starter`] | whether anybody still wants us before we are there |
//! | [`ranks`], [`process`] | ranks; starting, holding and ending processes |
//! | [`daemons`], [`ending`] | tool daemons; how one is started; how they end |
//! | [`storage`], [`session`], [`tree`] | directories on the node |
//! | [`provide`], [`receive`] | what is put into them: links to what the node has, archives of what it has not |
//! | [`service`] | the socket at which daemons ask |
//! | [`stdio`] | input and output of processes |

mod work;
mod overlay;
mod starter;
mod ranks;
mod process;
mod daemons;
mod ending;
mod storage;
mod session;
mod provide;
mod receive;
mod service;
mod stdio;
#[cfg(test)]
#[path = "../skip.rs"]
mod skip;
#[cfg(test)]
mod testing;

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use gantry_backend::{failure, tree};
use gantry_shared::error::{Failure, Kind};
use gantry_shared::wire::frame;
use gantry_shared::wire::message::Ticket;
use nix::sys::signal::SigSet;

const USAGE: &str = "gantry-agent is started by gantry, not by hand

usage: gantry-agent serve          serve an app; what it needs to know comes on standard input
       gantry-agent sweep [DIR]    remove what killed agents have left in DIR, or where storage usually goes
       gantry-agent --version";

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    let words: Vec<&str> = args.iter().filter_map(|arg| arg.to_str()).collect();
    let result = match words.as_slice() {
        ["serve"] => serve(),
        ["sweep"] => sweep(None),
        ["sweep", directory] => sweep(Some(Path::new(directory))),
        ["--version"] => say(&format!("gantry-agent {}", env!("CARGO_PKG_VERSION"))),
        ["--help"] => say(USAGE),
        _ => Err(Failure::new(Kind::Invalid, USAGE)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // The guard passes on what is written here.
            let hint = failure.hint().map(|hint| format!(" ({hint})")).unwrap_or_default();
            drop(writeln!(io::stderr(), "{failure}{hint}"));
            ExitCode::FAILURE
        }
    }
}

fn say(text: &str) -> Result<(), Failure> {
    writeln!(io::stdout(), "{text}").map_err(|e| failure::from_io("write to standard output", &e))
}

fn serve() -> Result<(), Failure> {
    // Whoever started us may have blocked signals, and we would inherit that: without SIGCHLD no child's end would ever be seen.
    SigSet::empty().thread_set_mask().map_err(|e| failure::from_io("unblock signals", &e.into()))?;
    let ticket = read_ticket()?;
    let nofile = process::spawn::raise_open_files().ok();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| failure::from_io("set up the agent", &e))?;
    let local = tokio::task::LocalSet::new();
    let served = local.block_on(&runtime, async {
        let joined = tokio::select! {
            joined = overlay::join(&ticket) => joined.map_err(|e| Failure::new(Kind::Lost, e.to_string()))?,
            () = starter::gone() => return Err(Failure::new(Kind::Lost, "whoever started this agent is gone")),
        };
        work::serve(ticket, joined, nofile).await
    });
    // Whatever still waits on a thread (a slow disk, say) must not keep the agent here.
    runtime.shutdown_background();
    served
}

/// What the agent is told, once, on its standard input.
fn read_ticket() -> Result<Ticket, Failure> {
    let malformed = |why: String| Failure::new(Kind::Protocol, format!("read the ticket: {why}"));
    let body = frame::read_frame(&mut io::stdin().lock()).map_err(|e| malformed(e.to_string()))?;
    let body = body.ok_or_else(|| Failure::new(Kind::Invalid, USAGE))?;
    let ticket: Ticket = frame::decode(&body).map_err(|e| malformed(e.to_string()))?;
    if ticket.release != env!("CARGO_PKG_VERSION") {
        let versions = format!(
            "the frontend is version {}, this agent is {}",
            ticket.release,
            env!("CARGO_PKG_VERSION")
        );
        return Err(
            Failure::new(Kind::Unsupported, versions).with_hint("install all of gantry from one version")
        );
    }
    Ok(ticket)
}

fn sweep(directory: Option<&Path>) -> Result<(), Failure> {
    let base = storage::choose_base(directory)?;
    let mut kept = Ok(());
    for swept in session::sweep(&base) {
        match swept.outcome {
            Ok(()) => say(&format!("removed {}", swept.path.display()))?,
            Err(failure) => kept = Err(failure),
        }
    }
    kept
}
