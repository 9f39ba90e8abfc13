//! What people and scripts see.
//!
//! Standard output carries what was asked for: the ranks' output, listings, and with `--json` events. Everything that is said about it
//! goes to standard error. A closed pipe ends neither gantry nor the app: what would go there is dropped.

mod bar;
mod block;
pub(crate) mod groups;
pub(crate) mod json;
mod label;
mod screen;
mod status;
mod sys;
pub(crate) mod table;
mod writer;

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::channel;
use std::time::Duration;

use gantry_frontend::event::Event;
use gantry_shared::error::Failure;
use gantry_wlm::Host;
use gantry_wlm::host::Machine;
use tracing_subscriber::fmt::writer::BoxMakeWriter;

pub(crate) use self::bar::describe_end;
pub(crate) use self::screen::{Screen, Talk};

/// How long telling why a command fails may take: a terminal that somebody stopped must not keep us.
const LAST_WORD: Duration = Duration::from_secs(2);

/// Says what is being done, as much as was asked for: in a file, else on standard error.
pub(crate) fn start_tracing(verbose: u8, file: Option<File>) {
    let asked = match verbose {
        0 => None,
        1 => Some("gantry=debug,gantry_frontend=debug,gantry_wlm=debug".to_owned()),
        _ => Some("trace".to_owned()),
    };
    let Some(filter) =
        asked.or_else(|| Machine.env("GANTRY_LOG").map(|it| it.to_string_lossy().into_owned()))
    else {
        return;
    };
    let (writer, ansi) = match file {
        Some(file) => (BoxMakeWriter::new(std::sync::Mutex::new(file)), false),
        None => (BoxMakeWriter::new(io::stderr), colours(&io::stderr())),
    };
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::new(filter))
        .with_writer(writer)
        .with_ansi(ansi)
        .init();
}

/// Whether colours and bold letters are wanted: on a terminal that has them, and not with NO_COLOR.
pub(crate) fn colours(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && has_sequences()
}

/// Whether a terminal may be given more than plain text.
fn has_sequences() -> bool {
    let is_dumb = Machine.env("TERM").is_none_or(|term| term == "dumb" || term.is_empty());
    let is_plain = Machine.env("NO_COLOR").is_some_and(|it| !it.is_empty());
    !is_dumb && !is_plain
}

/// Prints the result of a command that says one thing. A closed pipe is nobody's loss.
///
/// # Errors
/// Standard output cannot be written.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        done => done,
    }
}

/// Tells why a command fails: as an event with `--json`, else on standard error with its hint.
pub(crate) fn tell_failure(failure: &Failure, json: bool) {
    let text = match json {
        true => json::line(&Event::of_failure(None, failure.clone())),
        false => describe_failure(failure),
    };
    let (done, told) = channel::<()>();
    std::thread::spawn(move || {
        // Nobody may be reading there.
        drop(if json { print(&text) } else { io::stderr().write_all(text.as_bytes()) });
        drop(done);
    });
    // It ends without a word when the thread does.
    told.recv_timeout(LAST_WORD).unwrap_or_default();
}

/// Says on standard error what happens. Nobody may be reading there.
pub(crate) fn note(text: &str) {
    drop(writeln!(io::stderr(), "gantry: {text}"));
}

/// Asks on standard error; the answer is to be typed behind it.
pub(crate) fn ask(text: &str) {
    let mut to = io::stderr();
    drop(write!(to, "gantry: {text}").and_then(|()| to.flush()));
}

/// A failure with its hint, for people.
fn describe_failure(failure: &Failure) -> String {
    let hint = failure.hint().map(|hint| format!("hint: {hint}\n")).unwrap_or_default();
    format!("gantry: {}\n{hint}", failure.message())
}
