//! Output for people and scripts.
//!
//! Standard output carries the requested data: the ranks' output, listings, and with `--json` events. Messages about
//! it go to standard error. A closed pipe ends neither gantry nor the app; output to it is dropped.

mod bar;
mod block;
pub(crate) mod groups;
pub(crate) mod label;
mod page;
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
use gantry_types::error::{Failure, Kind};
use gantry_types::foreign::LineWriter;
use gantry_types::output::Stream;
use gantry_wlm::Host;
use gantry_wlm::host::Machine;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

pub(crate) use self::bar::describe_end;
pub(crate) use self::page::Page;
pub(crate) use self::screen::{Screen, Talk};
pub(crate) use self::sys::window_size;

/// The variable that selects log records by level and target.
const GANTRY_LOG: &str = "GANTRY_LOG";

/// The timeout for printing why a command fails. A stopped terminal must not block the exit.
const LAST_WORD: Duration = Duration::from_secs(2);

/// Starts logging at the requested level, to a file or to standard error.
pub(crate) fn start_tracing(verbose: u8, file: Option<File>) {
    let asked = match verbose {
        0 => None,
        1 => Some("gantry=debug,gantry_frontend=debug,gantry_wlm=debug".to_owned()),
        _ => Some("trace".to_owned()),
    };
    let by_environment = || Machine.env(GANTRY_LOG).map(|it| it.to_string_lossy().into_owned());
    let Some(asked) = asked.or_else(by_environment) else { return };
    let filter = asked.parse::<Targets>().unwrap_or_else(|error| {
        let wrong = Failure::new(Kind::Invalid, format!("{GANTRY_LOG} is '{asked}': {error}"));
        tell_failure(
            &wrong.with_hint("write a level, or several with their targets: info,gantry_wlm=debug"),
            false,
        );
        Targets::new()
    });
    let writer = match file {
        Some(file) => BoxMakeWriter::new(std::sync::Mutex::new(LineWriter(file))),
        None => BoxMakeWriter::new(|| LineWriter(io::stderr())),
    };
    // Only gantry's escapes would be allowed, and its logs have none.
    let lines = tracing_subscriber::fmt::layer().with_writer(writer).with_ansi(false);
    tracing_subscriber::registry().with(lines.with_filter(filter)).init();
}

/// Whether colours and bold letters are wanted: on a terminal that has them, and not with NO_COLOR.
pub(crate) fn colours(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && has_sequences()
}

/// Whether a terminal understands escape sequences.
pub(crate) fn has_sequences() -> bool {
    let is_dumb = Machine.env("TERM").is_none_or(|term| term == "dumb" || term.is_empty());
    let is_plain = Machine.env("NO_COLOR").is_some_and(|it| !it.is_empty());
    !is_dumb && !is_plain
}

/// Prints the result of a command. Ignores a closed pipe.
///
/// # Errors
/// Standard output cannot be written.
pub(crate) fn print(page: &Page) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(page.as_str().as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        done => done,
    }
}

/// Reports why a command fails: as an event with `--json`, else on standard error with its hint.
pub(crate) fn tell_failure(failure: &Failure, json: bool) {
    let page = match json {
        true => Page::json(&Event::of_failure(None, failure.clone())),
        false => Page::failure(failure),
    };
    let (failure, (done, told)) = (failure.clone(), channel::<()>());
    std::thread::spawn(move || {
        let is_told = json && print(&page).is_ok();
        if !is_told {
            let page = if json { Page::failure(&failure) } else { page };
            // Ignore a closed pipe.
            drop(io::stderr().write_all(page.as_str().as_bytes()));
        }
        drop(done);
    });
    // The channel closes when the thread ends.
    told.recv_timeout(LAST_WORD).unwrap_or_default();
}

/// The failure of an app's output that this process cannot write.
pub(crate) fn describe_loss(stream: Stream, reason: &str) -> Failure {
    let failure = Failure::new(Kind::System, format!("cannot write to {}: {reason}", name_of(stream)));
    failure.with_hint("redirect it to another place; the app goes on, and what cannot be written is lost")
}

/// The failure of an app's output that the process in the background could not write.
pub(crate) fn describe_loss_of_app(stream: Stream, reason: &str) -> Failure {
    let name = name_of(stream);
    let failure = Failure::new(Kind::System, format!("the app's {name} could not be written: {reason}"));
    failure.with_hint("launch it with another --output; what could not be written is lost")
}

fn name_of(stream: Stream) -> &'static str {
    match stream {
        Stream::Stdout => "standard output",
        Stream::Stderr => "standard error",
    }
}

/// Prints help unchanged. An error quotes the command line, which a script may build from foreign text, so it is
/// escaped.
pub(crate) fn tell_usage(said: &clap::Error) {
    if !said.use_stderr() {
        // Ignore a closed pipe.
        return drop(said.print());
    }
    let mut page = Page::default();
    said.render().to_string().trim_end().lines().for_each(|line| page.add(line));
    complain(&page);
}

/// Prints a message on standard error. Ignores a closed pipe.
pub(crate) fn note(text: &str) {
    complain(&Page::note(text));
}

/// Asks a question on standard error. The user types the answer after it.
pub(crate) fn ask(text: &str) {
    let (page, mut to) = (Page::note(text), io::stderr());
    drop(to.write_all(page.as_str().trim_end_matches('\n').as_bytes()).and_then(|()| to.flush()));
}

/// Writes to standard error. Ignores a closed pipe.
pub(crate) fn complain(page: &Page) {
    drop(io::stderr().write_all(page.as_str().as_bytes()));
}
