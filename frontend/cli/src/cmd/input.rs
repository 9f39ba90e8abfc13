//! Standard input: Enter, which releases a held app, and the input of rank 0.

use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gantry_frontend::Input;
use tokio::sync::mpsc;

use crate::exit::Fault;

/// Enter on the terminal.
#[derive(Debug)]
pub(super) struct Enter {
    pressed: mpsc::UnboundedReceiver<()>,
    released: Arc<AtomicBool>,
}

impl Enter {
    /// Takes Enter from another reader of the terminal.
    pub(super) fn of(pressed: mpsc::UnboundedReceiver<()>) -> Self {
        Self { pressed, released: Arc::default() }
    }

    /// Waits for Enter, for ever if none can come any more. Cancel-safe.
    pub(super) async fn pressed(&mut self) {
        match self.pressed.recv().await {
            Some(()) => {}
            None => std::future::pending().await,
        }
    }

    /// From now on all input goes to rank 0.
    pub(super) fn released(&self) {
        self.released.store(true, Ordering::SeqCst);
    }
}

/// Chooses the input of rank 0, and a wait for Enter if the app is held.
pub(super) fn choose(file: Option<&Path>, hold: bool) -> Result<(Input, Option<Enter>), Fault> {
    let failed = |e: io::Error| Fault::io("cannot read standard input", &e);
    if let Some(file) = file {
        let enter = match hold && is_ours(&io::stdin()) {
            true => Some(listen(io::sink())),
            false => None,
        };
        return Ok((Input::File(file.to_owned()), enter));
    }
    let stdin = io::stdin();
    if stdin.is_terminal() {
        if !is_ours(&stdin) {
            return Ok((Input::Null, None));
        }
        if hold {
            let (to_rank, feed) = io::pipe().map_err(failed)?;
            return Ok((Input::Fd(to_rank.into()), Some(listen(feed))));
        }
    }
    Ok((Input::Fd(stdin.as_fd().try_clone_to_owned().map_err(failed)?), None))
}

/// Whether this process may read the terminal: the kernel stops a background process group that reads it.
fn is_ours(stdin: &io::Stdin) -> bool {
    stdin.is_terminal() && nix::unistd::tcgetpgrp(stdin).is_ok_and(|group| group == nix::unistd::getpgrp())
}

/// Reads the terminal on its own thread: up to the first Enter for the command, the rest for rank 0.
fn listen(feed: impl Write + Send + 'static) -> Enter {
    let (press, pressed) = mpsc::unbounded_channel();
    let released = Arc::new(AtomicBool::new(false));
    let known = Arc::clone(&released);
    std::thread::spawn(move || {
        // The thread ends with the input, the reader of the feed, or the process.
        drop(pump(io::stdin().lock(), feed, &known, || press.send(()).unwrap_or_default()));
    });
    Enter { pressed, released }
}

fn pump(
    mut from: impl Read,
    mut feed: impl Write,
    released: &AtomicBool,
    press: impl Fn(),
) -> io::Result<()> {
    let mut buffer = [0; 4096];
    loop {
        let length = from.read(&mut buffer)?;
        let mut typed = &buffer[..length];
        if length == 0 {
            return Ok(());
        }
        if !released.load(Ordering::SeqCst) {
            let Some(enter) = typed.iter().position(|byte| *byte == b'\n') else { continue };
            released.store(true, Ordering::SeqCst);
            press();
            typed = &typed[enter + 1..];
        }
        feed.write_all(typed)?;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn check(released: bool, typed: &str, presses: usize, fed: &str) {
        let (pressed, mut feed) = (Cell::new(0), Vec::new());
        pump(typed.as_bytes(), &mut feed, &AtomicBool::new(released), || pressed.set(pressed.get() + 1))
            .unwrap();
        assert_eq!((pressed.get(), String::from_utf8(feed).unwrap().as_str()), (presses, fed), "{typed:?}");
    }

    #[test]
    fn the_first_enter_is_ours_and_the_rest_is_the_ranks() {
        check(false, "", 0, "");
        check(false, "abc", 0, "");
        check(false, "\n", 1, "");
        check(false, "go\nline\nmore", 1, "line\nmore");
        check(true, "line\n", 0, "line\n");
    }
}
