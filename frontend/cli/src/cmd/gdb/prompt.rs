//! Reads lines at the prompt, with history and completion, on a separate thread.

use std::borrow::Cow;
use std::io;
use std::sync::mpsc as blocking;

use gantry_debug::input::OWN;
use gantry_debug::sets::WORDS;
use nix::sys::termios::{FlushArg, SetArg, Termios, tcflush, tcgetattr, tcsetattr};
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::MemHistory;
use rustyline::validate::Validator;
use rustyline::{Config, Context, Editor, Helper};
use tokio::sync::mpsc;

/// The gdb commands that are completed. gdb itself accepts every unambiguous abbreviation.
const COMMANDS: [&str; 48] = [
    "advance",
    "backtrace",
    "break",
    "bt",
    "call",
    "catch",
    "clear",
    "condition",
    "continue",
    "delete",
    "detach",
    "disable",
    "disassemble",
    "display",
    "down",
    "enable",
    "finish",
    "frame",
    "handle",
    "ignore",
    "info args",
    "info breakpoints",
    "info frame",
    "info line",
    "info locals",
    "info registers",
    "info sharedlibrary",
    "info signals",
    "info source",
    "info threads",
    "info variables",
    "jump",
    "list",
    "next",
    "nexti",
    "print",
    "ptype",
    "set var",
    "show",
    "signal",
    "step",
    "stepi",
    "tbreak",
    "thread apply all",
    "until",
    "up",
    "watch",
    "x",
];

/// The result of reading a line.
#[derive(Debug)]
pub(super) enum Typed {
    Line(String),
    /// Ctrl-C before Enter.
    Nothing,
    /// A line that is not UTF-8.
    Garbled,
    /// The end of the input.
    End,
    /// Nothing can be read any more, and why.
    Failed(io::Error),
}

/// Reads lines from the user.
pub(super) struct Prompt {
    ask: blocking::Sender<String>,
    typed: mpsc::Receiver<Typed>,
    /// The terminal settings at the start.
    before: Option<Termios>,
}

impl Prompt {
    pub(super) fn open() -> io::Result<Self> {
        let before = tcgetattr(io::stdin()).ok();
        let config = Config::builder().auto_add_history(true).build();
        let history = MemHistory::with_config(&config);
        let mut editor: Editor<Words, MemHistory> =
            Editor::with_history(config, history).map_err(io::Error::other)?;
        editor.set_helper(Some(Words));
        let (ask, asked) = blocking::channel::<String>();
        let (send, typed) = mpsc::channel(1);
        std::thread::Builder::new().name("prompt".to_owned()).spawn(move || {
            let mut last = String::new();
            while let Ok(prompt) = asked.recv() {
                let typed = match editor.readline(&prompt) {
                    // An empty line repeats the last command, as in gdb.
                    Ok(line) if line.trim().is_empty() => Typed::Line(last.clone()),
                    Ok(line) => {
                        last = if repeats(&line) { line.clone() } else { String::new() };
                        Typed::Line(line)
                    }
                    Err(error) => failed(error),
                };
                if send.blocking_send(typed).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { ask, typed, before })
    }

    /// Shows the prompt.
    pub(super) fn ask(&self, prompt: String) {
        // If the thread has ended, `typed` reports the end of the input.
        self.ask.send(prompt).unwrap_or_default();
    }

    /// Waits for a line. Cancel-safe.
    pub(super) async fn typed(&mut self) -> Typed {
        self.typed.recv().await.unwrap_or(Typed::End)
    }
}

impl Drop for Prompt {
    fn drop(&mut self) {
        // The thread may still be reading a line with changed terminal settings.
        if let Some(before) = &self.before {
            tcsetattr(io::stdin(), SetArg::TCSANOW, before).unwrap_or_default();
        }
    }
}

/// What it means that no line was read.
fn failed(error: ReadlineError) -> Typed {
    match error {
        ReadlineError::Interrupted | ReadlineError::Signal(_) => Typed::Nothing,
        ReadlineError::Io(error) if error.kind() == io::ErrorKind::InvalidData => {
            // The rest of a pasted line is no command. Input that is no terminal is read in lines.
            tcflush(io::stdin(), FlushArg::TCIFLUSH).unwrap_or_default();
            Typed::Garbled
        }
        ReadlineError::Eof => Typed::End,
        ReadlineError::Io(error) => Typed::Failed(error),
        error => Typed::Failed(io::Error::other(error)),
    }
}

/// Whether an empty line repeats this command.
fn repeats(line: &str) -> bool {
    let word = line.split_whitespace().next().unwrap_or_default();
    [
        "step", "s", "next", "n", "stepi", "si", "nexti", "ni", "continue", "c", "up", "down", "list", "l",
        "x", "until", "u",
    ]
    .contains(&word)
}

/// The words for completion.
struct Words;

impl Completer for Words {
    type Candidate = String;

    fn complete(&self, line: &str, at: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<String>)> {
        Ok(complete(&line[..at]))
    }
}

impl Hinter for Words {
    type Hint = String;
}

impl Highlighter for Words {
    fn highlight_prompt<'b, 's: 'b, 'p: 'b>(&'s self, prompt: &'p str, _: bool) -> Cow<'b, str> {
        Cow::Borrowed(prompt)
    }
}

impl Validator for Words {}

impl Helper for Words {}

/// The start of the word to complete, and the candidates.
fn complete(line: &str) -> (usize, Vec<String>) {
    let of = |words: &mut dyn Iterator<Item = &str>, begun: &str| {
        let mut found: Vec<String> =
            words.filter(|word| word.starts_with(begun)).map(|word| format!("{word} ")).collect();
        found.sort();
        found
    };
    let sets = || WORDS.iter().map(|(word, _)| *word).chain(["at", "class"]);
    if let Some(set) =
        line.strip_prefix("focus ").or_else(|| line.strip_prefix('@').filter(|it| !it.contains(' ')))
    {
        let begun = set.rsplit([',', '(', ' ']).next().unwrap_or_default();
        return (line.len() - begun.len(), of(&mut sets(), begun));
    }
    let begin = if line.starts_with('@') { line.find(' ').map_or(0, |blank| blank + 1) } else { 0 };
    let own =
        OWN.iter().filter_map(|(usage, _)| usage.split(' ').next()).filter(|word| !word.starts_with('@'));
    (begin, of(&mut own.chain(COMMANDS), &line[begin..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_completed() {
        let check = |line: &str, begin: usize, expected: &[&str]| {
            assert_eq!(
                complete(line),
                (begin, expected.iter().map(|it| (*it).to_owned()).collect()),
                "{line}"
            );
        };
        check("fo", 0, &["focus "]);
        check("conti", 0, &["continue "]);
        check("@0 conti", 3, &["continue "]);
        check("focus st", 6, &["stopped "]);
        check("focus 0,ru", 8, &["running "]);
        check("@sto", 1, &["stopped "]);
        check("@(a", 2, &["all ", "at "]);
        check("nosuchword", 0, &[]);
    }

    #[test]
    fn enter_repeats_steps_alone() {
        assert!(repeats("next") && repeats("s 3") && !repeats("print x") && !repeats(""));
    }
}
