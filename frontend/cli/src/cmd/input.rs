//! Standard input: Enter that releases a held app, and what rank 0 reads.

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
    /// Somebody else's word for Enter.
    pub(super) fn of(pressed: mpsc::UnboundedReceiver<()>) -> Self {
        Self { pressed, released: Arc::default() }
    }

    /// Waits for Enter; for ever, when nobody will press it any more. May be cancelled without loss.
    pub(super) async fn pressed(&mut self) {
        match self.pressed.recv().await {
            Some(()) => {}
            None => std::future::pending().await,
        }
    }

    /// From now on what is typed is rank 0's.
    pub(super) fn released(&self) {
        self.released.store(true, Ordering::SeqCst);
    }
}

/// What rank 0 reads, and Enter if that is to be waited for.
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

/// Whether we may read a terminal: a process group in the background would be stopped for it.
fn is_ours(stdin: &io::Stdin) -> bool {
    stdin.is_terminal() && nix::unistd::tcgetpgrp(stdin).is_ok_and(|group| group == nix::unistd::getpgrp())
}

/// Reads the terminal on a thread of its own: up to the first Enter for us, the rest for rank 0.
fn listen(feed: impl Write + Send + 'static) -> Enter {
    let (press, pressed) = mpsc::unbounded_channel();
    let released = Arc::new(AtomicBool::new(false));
    let known = Arc::clone(&released);
    std::thread::spawn(move || {
        // It ends with the input, with who reads the feed, or with the process.
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
