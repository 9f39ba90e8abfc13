//! One gdb: what is said to it, and what it says.

use std::io::Write;
use std::process::ChildStdin;

use gantry_gdb::answer::State;
use gantry_gdb::mi::Parser;
use gantry_types::id::Rank;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::dialogue::{Asks, Dialogue};
use crate::words::Words;

/// The signal by which a rank is stopped. Who has no debugger any more by then ignores it: it is the default of that signal. So a rank that is let go at
/// that moment goes on.
pub(crate) const INTERRUPT: Signal = Signal::SIGURG;

/// One gdb, as the desk has it.
#[derive(Debug)]
pub(crate) struct Gdb {
    pub(crate) dialogue: Dialogue,
    pub(crate) words: Words,
    parser: Parser,
    input: Option<ChildStdin>,
    pid: i32,
    /// The rank was stopped when it came here, and nobody has let it go on since. The kernel keeps that as long as there is no SIGCONT: gdb's own
    /// commands let it run, and it is stopped again when gdb lets go of it.
    is_held: bool,
}

impl Gdb {
    /// One that reads from there, for a rank of that process. `is_held`: the process was stopped when it came here.
    pub(crate) fn new(rank: Rank, pid: i32, alone: State, is_held: bool, input: Option<ChildStdin>) -> Self {
        let dialogue = Dialogue::begin(rank, pid, alone);
        let mut gdb =
            Self { dialogue, words: Words::default(), parser: Parser::default(), input, pid, is_held };
        gdb.write();
        gdb
    }

    /// What has come from gdb. What is to be written because of it is written.
    pub(crate) fn take(&mut self, bytes: &[u8]) {
        self.words.push(bytes);
        let dialogue = &mut self.dialogue;
        self.parser.push(bytes, |record| dialogue.take(record));
        if self.is_held && self.dialogue.has_gone_on() {
            self.is_held = false;
            // It may have ended.
            kill(Pid::from_raw(self.pid), Signal::SIGCONT).unwrap_or_default();
        }
        self.write();
    }

    /// Gives gdb a command.
    pub(crate) fn tell(&mut self, line: &str) {
        self.dialogue.tell(line);
        self.write();
    }

    /// Asks gdb's machine interface.
    pub(crate) fn ask(&mut self, asks: Asks) {
        self.dialogue.ask(asks);
        self.write();
    }

    fn write(&mut self) {
        let output = std::mem::take(&mut self.dialogue.output);
        if let (Some(input), false) = (&mut self.input, output.is_empty()) {
            self.words.push(&output);
            // Its end is seen by who reads.
            drop(input.write_all(&output));
        }
    }

    /// Stops the rank, if it goes on.
    pub(crate) fn interrupt(&mut self) {
        if self.dialogue.is_running() {
            self.dialogue.note_signal();
            // It may have ended.
            kill(Pid::from_raw(self.pid), INTERRUPT).unwrap_or_default();
        }
    }

    /// There is nothing more to be said.
    pub(crate) fn close(&mut self) {
        self.input = None;
    }
}
