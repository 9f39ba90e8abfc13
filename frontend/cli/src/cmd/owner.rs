//! `gantry --group-owner`: the frontend process of a group that a message has started.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use gantry_frontend::procgroup::owner;

use super::block_on;
use super::interrupts::Interrupts;
use crate::exit::{self, Fault, Outcome};

pub(super) fn run() -> Outcome {
    let failed = |e: io::Error| Fault::io("cannot start a group", &e);
    let asker = UnixStream::from(io::stdin().as_fd().try_clone_to_owned().map_err(failed)?);
    if asker.local_addr().is_err() {
        return Err(owner::not_for_people().into());
    }
    // The requesting process sees the end of the answer only when this was the last open descriptor.
    let nothing = File::open("/dev/null").map_err(failed)?;
    nix::unistd::dup2_stdin(&nothing).map_err(|e| failed(e.into()))?;
    block_on(async {
        let mut interrupts = Interrupts::new()?;
        owner::own(asker, async {
            interrupts.next().await;
        })
        .await?;
        Ok(exit::SUCCESS)
    })
}
