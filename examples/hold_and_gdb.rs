//! Holds a program at its first instruction and attaches a `gdbserver` to every rank. So gdb can connect before the
//! program has run.
//!
//! ```sh
//! cargo build && cargo run --example hold_and_gdb -- -n 2 ./solver --steps 10
//! ```
//!
//! The arguments after `--` are the launcher's. The example prints one command for each rank: type it in another
//! terminal, then type `break main` and `continue` in gdb. A rank continues when its gdb detaches. The example ends
//! when the app ends, with the app's exit code.
//!
//! `gdbserver` asks for no password and listens on every address of its node. Use this only where you trust the
//! network.
#![expect(clippy::print_stdout, reason = "a command line tool prints")]

use std::error::Error;
use std::ffi::OsString;
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::Duration;

use gantry_frontend::types::id::Rank;
use gantry_frontend::types::output::DaemonOutput;
use gantry_frontend::types::placement::RankPlace;
use gantry_frontend::types::rank_set::{NodeSet, RankSet};
use gantry_frontend::types::signal::Signal;
use gantry_frontend::{AppHandle, Daemon, DaemonRequest, Frontend, LaunchRequest, OutputTo, Session};

/// Everything that may wait takes a timeout.
const MINUTE: Duration = Duration::from_secs(60);

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    if args.is_empty() {
        return Err("give what you would give the launcher, such as: -n 2 ./program".into());
    }

    // Every rank is stopped before its first instruction, and no process traces it: a debugger can attach.
    let output = OutputTo::Fds {
        stdout: std::io::stdout().as_fd().try_clone_to_owned()?,
        stderr: std::io::stderr().as_fd().try_clone_to_owned()?,
    };
    let app = Frontend::default().launch(LaunchRequest::new(args).hold(true).output(output), MINUTE).await?;

    // Daemons belong to a session. Here each daemon is a gdbserver for one rank, on the rank's node.
    let session = app.session(MINUTE).await?;
    let mut ready = Vec::new();
    for rank in app.placement().iter() {
        let (daemon, port) = start_gdbserver(&session, &rank).await?;
        tokio::spawn(go_on_without_gdb(app.clone(), rank.rank, daemon));
        ready.push(format!(
            "rank {}: on {} type: gdb -ex 'handle SIGSTOP nostop noprint nopass' -ex 'target remote localhost:{port}' {}",
            rank.rank, rank.host, rank.exe
        ));
    }

    // Release leaves a rank to its tracer, so no rank runs yet. It runs when its debugger continues it. The SIGSTOP
    // that held it is still pending. gdb must not pass it on to the rank; `nopass` ensures that.
    app.release(MINUTE).await?;
    println!("{}\nthen, in gdb: break main, continue", ready.join("\n"));

    let exit = app.wait().await?;
    app.close(MINUTE).await?;
    Ok(ExitCode::from(u8::try_from(exit.code).unwrap_or(u8::MAX)))
}

/// Starts a gdbserver that has attached to a rank when this returns. Also returns the port on which it listens.
async fn start_gdbserver(session: &Session, rank: &RankPlace<'_>) -> Result<(Daemon, u16), Box<dyn Error>> {
    let pid = rank.pid.ok_or("a held rank has a process")?;
    // `--once`: it ends with its gdb. Port 0: any that is free, and gdbserver prints which.
    let request = DaemonRequest::new("gdbserver")
        .args(["--once".to_owned(), "--attach".to_owned(), "localhost:0".to_owned(), pid.to_string()])
        .nodes([rank.node].into_iter().collect::<NodeSet>())
        .output(DaemonOutput::Forward);
    let daemon = session.manifest().exec_daemon(request, MINUTE).await?;
    let mut output = daemon.take_output().ok_or("forwarded output is there to be taken")?;
    let mut said = String::new();
    // Output arrives in pieces, not in lines. So the port counts only when its line is complete.
    while let Some(piece) = output.next().await {
        said.push_str(&String::from_utf8_lossy(&piece.data.0));
        let line = said.split_inclusive('\n').find_map(|line| line.strip_prefix("Listening on port "));
        if let Some(port) = line.and_then(|rest| rest.strip_suffix('\n')) {
            return Ok((daemon, port.trim().parse()?));
        }
    }
    Err(format!("gdbserver cannot attach to rank {}: {}", rank.rank, said.trim()).into())
}

/// When a gdb detaches, its gdbserver ends, and the kernel stops the rank again, as it was before gdb attached. No
/// other process would resume it.
async fn go_on_without_gdb(app: AppHandle, rank: Rank, gdbserver: Daemon) {
    gdbserver.wait().await;
    // An error means that the app has ended, which is the usual reason for a gdbserver's end.
    drop(app.signal(Signal::CONT, Some(&[rank].into_iter().collect::<RankSet>()), MINUTE).await);
}
