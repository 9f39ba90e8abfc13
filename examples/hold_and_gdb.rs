//! Holds a program at its first instruction and puts a `gdbserver` beside every rank, so that gdb can be there before anything has run.
//!
//! ```sh
//! cargo build && cargo run --example hold_and_gdb -- -n 2 ./solver --steps 10
//! ```
//!
//! What stands after the `--` is what one would give the launcher. For each rank the line to type in another terminal is printed; in gdb
//! then `break main` and `continue`. A rank whose gdb detaches goes on by itself. The example ends with the app, and with its exit code.
//!
//! `gdbserver` asks for no password and listens on every address of its node: use this where you trust the network.
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

    // Every rank is stopped before its first instruction, and nothing traces it: the place is free for a debugger.
    let output = OutputTo::Fds {
        stdout: std::io::stdout().as_fd().try_clone_to_owned()?,
        stderr: std::io::stderr().as_fd().try_clone_to_owned()?,
    };
    let app = Frontend::default().launch(LaunchRequest::new(args).hold(true).output(output), MINUTE).await?;

    // Daemons live in a session. Here each is a gdbserver for one rank, on the node of that rank.
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

    // Release leaves ranks to their tracer. None runs now, but each will when its debugger says so: the SIGSTOP that held it is
    // still on it, and gdb must not hand it on, which is what `nopass` sees to.
    app.release(MINUTE).await?;
    println!("{}\nthen, in gdb: break main, continue", ready.join("\n"));

    let exit = app.wait().await?;
    app.close(MINUTE).await?;
    Ok(ExitCode::from(u8::try_from(exit.code).unwrap_or(u8::MAX)))
}

/// Starts a gdbserver that has attached to a rank when this returns, and says on which port it listens.
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
    // Output comes in pieces as it was written, not in lines: a port counts once its line has ended.
    while let Some(piece) = output.next().await {
        said.push_str(&String::from_utf8_lossy(&piece.data.0));
        let line = said.split_inclusive('\n').find_map(|line| line.strip_prefix("Listening on port "));
        if let Some(port) = line.and_then(|rest| rest.strip_suffix('\n')) {
            return Ok((daemon, port.trim().parse()?));
        }
    }
    Err(format!("gdbserver cannot attach to rank {}: {}", rank.rank, said.trim()).into())
}

/// When a gdb detaches, its gdbserver ends and the kernel stops the rank again, as it was before gdb came. No other process would resume it.
async fn go_on_without_gdb(app: AppHandle, rank: Rank, gdbserver: Daemon) {
    gdbserver.wait().await;
    // An error means that the app has ended, which is the usual reason for a gdbserver's end.
    drop(app.signal(Signal::CONT, Some(&[rank].into_iter().collect::<RankSet>()), MINUTE).await);
}
