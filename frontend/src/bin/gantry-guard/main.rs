//! The guard's executable. Started by the frontend library with a socket as its standard input, or by a job's script to start agents; of no use by hand.

use std::ffi::OsString;
use std::io::{self, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use gantry_frontend::guard::{serve, starter};
use tokio::signal::unix::{SignalKind, signal};

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    let words: Vec<&str> = args.iter().filter_map(|arg| arg.to_str()).collect();
    let done = match words.as_slice() {
        ["--version"] => writeln!(io::stdout(), "gantry-guard {}", env!("CARGO_PKG_VERSION")),
        ["start", wlm] => start(wlm),
        _ => guard(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            drop(writeln!(io::stderr(), "gantry-guard: {error} (it is started by gantry, not by hand)"));
            ExitCode::FAILURE
        }
    }
}

fn guard() -> io::Result<()> {
    // Without this the guard would keep the tool's pipes and sockets open. On kernels that cannot, only well-behaved tools are served.
    gantry_wlm::host::close_inherited_descriptors().ok();
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    socket.local_addr()?;
    serve::serve(socket)
}

/// Starts agents in a job, which is asked to end by a signal.
fn start(wlm: &str) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let run = runtime.block_on(async {
        let (mut term, mut hangup) = (signal(SignalKind::terminate())?, signal(SignalKind::hangup())?);
        let stop = Box::pin(async move {
            tokio::select! {
                _ = term.recv() => {}
                _ = hangup.recv() => {}
            }
        });
        starter::run(wlm, BufReader::new(io::stdin().lock()), stop).await.map_err(io::Error::other)
    });
    runtime.shutdown_background();
    run
}
