//! The guard's executable. Started by the frontend library with a socket as its standard input; of no use by hand.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use gantry_frontend::guard::serve;

fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|arg| arg == "--version") {
        let said = writeln!(io::stdout(), "gantry-guard {}", env!("CARGO_PKG_VERSION"));
        return if said.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    // Without this the guard would keep the tool's pipes and sockets open. On kernels that cannot, only well-behaved tools are served.
    gantry_wlm::host::close_inherited_descriptors().ok();
    let socket = io::stdin().as_fd().try_clone_to_owned().map(UnixStream::from);
    match socket.and_then(|socket| socket.local_addr().map(|_| socket)).and_then(serve::serve) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            drop(writeln!(io::stderr(), "gantry-guard: {error} (it is started by gantry, not by hand)"));
            ExitCode::FAILURE
        }
    }
}
