//! One gdb: its input and its output.

use std::io::{self, Write};
use std::process::ChildStdin;

use gantry_gdb::answer::State;
use gantry_gdb::mi::Parser;
use gantry_types::id::Rank;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::dialogue::{Asks, Dialogue};
use crate::interrupt::INTERRUPT;
use crate::symbols::Files;
use crate::traps::leave_in_order;
use crate::watcher::{Pair, Watcher};
use crate::words::Words;

/// One gdb on the desk.
#[derive(Debug)]
pub(crate) struct Gdb {
    pub(crate) dialogue: Dialogue,
    pub(crate) words: Words,
    parser: Parser,
    input: Option<ChildStdin>,
    pid: i32,
    own_pid: i32,
    watcher: Watcher,
    /// The rank was stopped when gdb was started, and no command has continued it since.
    ///
    /// The kernel keeps that stop until a SIGCONT. gdb's own commands let the rank run, and it stops again when gdb
    /// detaches.
    is_held: bool,
}

impl Gdb {
    /// A gdb with this standard input, for the rank of `pair`. It reads `files`.
    ///
    /// # Errors
    /// The watcher has ended.
    pub(crate) fn new(
        rank: Rank,
        pair: Pair,
        alone: State,
        input: Option<ChildStdin>,
        files: &Files,
        watcher: Watcher,
    ) -> io::Result<Self> {
        // Before gdb attaches to the rank; the write below makes it attach.
        watcher.tell(pair)?;
        let Pair { rank: pid, gdb: own_pid, is_held } = pair;
        let (dialogue, words, parser) =
            (Dialogue::begin(rank, pid, alone, files), Words::default(), Parser::default());
        let mut gdb = Self { dialogue, words, parser, input, pid, own_pid, watcher, is_held };
        gdb.write();
        Ok(gdb)
    }

    /// Takes gdb's output, and writes the commands that follow from it.
    pub(crate) fn take(&mut self, bytes: &[u8]) {
        self.words.push(bytes);
        let dialogue = &mut self.dialogue;
        self.parser.push(bytes, |record| dialogue.take(record));
        if self.is_held && self.dialogue.has_gone_on() {
            self.is_held = false;
            self.tell_watcher(self.own_pid);
            // It may have ended.
            kill(Pid::from_raw(self.pid), Signal::SIGCONT).unwrap_or_default();
        }
        self.write();
    }

    /// Sends gdb a command.
    pub(crate) fn tell(&mut self, line: &str) {
        self.dialogue.tell(line);
        self.write();
    }

    /// Sends commands to gdb's machine interface.
    pub(crate) fn ask(&mut self, asks: Asks) {
        self.dialogue.ask(asks);
        self.write();
    }

    fn write(&mut self) {
        let output = std::mem::take(&mut self.dialogue.output);
        if let (Some(input), false) = (&mut self.input, output.is_empty()) {
            self.words.push(&output);
            // The reading thread detects gdb's end.
            drop(input.write_all(&output));
        }
    }

    /// Stops the rank, if it runs.
    pub(crate) fn interrupt(&mut self) {
        if self.dialogue.is_running() {
            self.dialogue.note_signal();
            // It may have ended.
            kill(Pid::from_raw(self.pid), INTERRUPT).unwrap_or_default();
        }
    }

    /// Notes that gdb has ended, and removes what it has left in the rank if it was killed.
    pub(crate) fn end(&mut self) {
        self.dialogue.end();
        if !matches!(self.dialogue.answer().state, State::Ended(_)) {
            leave_in_order(self.pid, self.is_held);
        }
        self.tell_watcher(0);
    }

    fn tell_watcher(&self, gdb: i32) {
        // A watcher that was killed releases no rank.
        drop(self.watcher.tell(Pair { rank: self.pid, gdb, is_held: self.is_held }));
    }

    /// Closes gdb's input.
    pub(crate) fn close(&mut self) {
        self.input = None;
    }
}
