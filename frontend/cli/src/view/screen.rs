//! The output of a command that stays with an app.

use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gantry_frontend::AppHandle;
use gantry_frontend::control::Answer;
use gantry_frontend::event::{Event, Output, Staging};
use gantry_types::error::Failure;
use gantry_types::id::AppId;
use gantry_types::output::Stream;
use tokio::signal::unix::{SignalKind, signal};

use super::label::Labels;
use super::page::Page;
use super::status::Subject;
use super::writer::{Ink, Loss, Patient, Pen, Target, Watch, start};
use super::{colours, describe_loss, has_sequences};
use crate::exit::{self, Outcome};

/// The timeout for the last output. It is long enough for a user to notice a stopped terminal and continue it.
const LAST_WRITE: Duration = Duration::from_secs(10);

/// The same timeout after a second request to end.
const HURRIED: Duration = Duration::from_millis(200);

/// A transfer shorter than this gets no bar: it would disappear before it could be read.
const SENDING_DELAY: Duration = Duration::from_millis(200);

/// Which messages are printed besides output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Talk {
    /// Notes, and a live table on a terminal.
    All,
    /// Failures only.
    Quiet,
    /// Events for scripts.
    Json,
}

/// The destinations of a command's output. Only passing output on and the end wait for a reader.
#[derive(Default)]
pub(crate) struct Screen {
    /// Receives events as JSON.
    events: Option<Pen>,
    /// Receives standard output, with labels.
    out: Option<Pen>,
    /// Receives standard error, with labels.
    err: Option<Pen>,
    /// Receives messages for people.
    talk: Option<Pen>,
    labels: Mutex<Labels>,
    /// Pass the ranks' output on unchanged.
    pass_ranks: bool,
    /// Print notes.
    chatty: bool,
    /// Show a live table.
    live: bool,
    /// The starting process waits for the news that the app exists.
    reports: bool,
    hurried: AtomicBool,
    /// Something could not be written.
    lost: Arc<AtomicBool>,
}

impl Screen {
    /// Standard output and error; with JSON, events on standard output. Ranks' output has labels if `label`.
    ///
    /// # Errors
    /// No descriptors are left.
    pub(crate) fn terminal(talk: Talk, label: bool) -> io::Result<Self> {
        let (stdout, stderr) = (io::stdout(), io::stderr());
        let terminal = match stderr.is_terminal() {
            true => Some(copy(&stderr)?),
            false => None,
        };
        let is_live = terminal.is_some() && talk == Talk::All && has_cursor();
        let mut targets = vec![Box::new(Patient(copy(&stderr)?)) as Target];
        let shared = terminal.is_some() && stdout.is_terminal();
        let mut out_target = Some(Box::new(Patient(copy(&stdout)?)) as Target);
        targets.extend(out_target.take_if(|_| shared));
        let lost = Arc::<AtomicBool>::default();
        let loss = |talk| Loss { talk, seen: Arc::clone(&lost) };
        let mut pens = start(targets, terminal, loss(None)).into_iter();
        let err = pens.next();
        // A slow reader of standard output must not delay messages.
        let alone = out_target.and_then(|target| start(vec![target], None, loss(err.clone())).pop());
        let out = alone.or_else(|| pens.next());
        let empty = Self { lost, ..Self::default() };
        Ok(match talk {
            Talk::Json => Self { events: out, talk: err, ..empty },
            _ => Self {
                out,
                talk: err.clone(),
                err,
                pass_ranks: !label,
                chatty: talk == Talk::All,
                live: is_live,
                ..empty
            },
        })
    }

    /// Events go to the starting process, output to a file if there is one. There are no messages for people.
    pub(crate) fn background(events: Target, output: Option<[File; 2]>) -> Self {
        let mut targets = vec![events];
        targets.extend(output.into_iter().flatten().map(|file| Box::new(file) as Target));
        let mut pens = start(targets, None, Loss::default()).into_iter();
        Self { events: pens.next(), out: pens.next(), err: pens.next(), reports: true, ..Self::default() }
    }

    /// Prints an event as JSON, if wanted.
    pub(crate) fn event(&self, event: &Event) {
        if let Some(events) = &self.events {
            events.write(Ink::Lines(Page::json(event)));
        }
    }

    /// Whether this process looks after an app in the background.
    pub(crate) fn is_of_background(&self) -> bool {
        self.reports
    }

    /// The app and all that starts with it are there. In the background, this reports success to the starting process
    /// and closes the connection. False: the starting process has gone.
    pub(crate) async fn started(&self, app: AppId) -> bool {
        match &self.events {
            Some(events) if self.reports => events.write_last(Page::json(&Answer::Ok(app))).await,
            _ => true,
        }
    }

    /// As [`Screen::started`], for a job of several apps.
    pub(crate) async fn all_started(&self, apps: Vec<AppId>) -> bool {
        match &self.events {
            Some(events) if self.reports => events.write_last(Page::json(&Answer::Ok(apps))).await,
            _ => true,
        }
    }

    /// The start has failed. In the background, reports that to the starting process.
    pub(crate) fn not_started(&self, failure: &Failure) {
        if let Some(events) = &self.events {
            events.write(Ink::Lines(Page::json(&Answer::<()>::Error(failure.clone()))));
        }
    }

    /// Prints output of a rank or a daemon: unchanged, in labelled lines, or as an event. Waits while too much output
    /// is unread.
    pub(crate) async fn output(&self, output: &Output) {
        let pen = match output.stream {
            Stream::Stdout => &self.out,
            Stream::Stderr => &self.err,
        };
        match (pen, &self.events) {
            (Some(pen), _) if self.pass_ranks && output.rank.is_some() => {
                pen.write_much(Ink::Passed(output.data.0.clone())).await;
            }
            (Some(pen), _) => {
                let lines = self.labels().push(output);
                pen.write_much(Ink::Labelled(lines)).await;
            }
            (None, Some(events)) => {
                events.write_much(Ink::Lines(Page::json(&Event::Output(output.clone())))).await;
            }
            (None, None) => {}
        }
    }

    /// Prints the lines without an end when everything is over.
    pub(crate) fn flush(&self) {
        let (out, err) = self.labels().finish();
        for (pen, lines) in [(&self.out, out), (&self.err, err)] {
            if let Some(pen) = pen {
                pen.write(Ink::Labelled(lines));
            }
        }
    }

    /// Shows the app's state in a live table. False: this terminal cannot show one.
    pub(crate) fn watch(&self, app: AppHandle, keep: bool, delay: Duration) -> bool {
        self.start_table(Subject::App(app), keep, delay)
    }

    /// Shows the progress of a transfer, if the terminal can show it, until the result is dropped.
    pub(crate) fn watch_sending(&self) -> Sending<'_> {
        let staging = Arc::default();
        self.start_table(Subject::Sending(Arc::clone(&staging)), false, SENDING_DELAY);
        Sending { screen: self, staging }
    }

    fn start_table(&self, subject: Subject, keep: bool, delay: Duration) -> bool {
        let Some(pen) = self.talk.clone().filter(|_| self.live) else { return false };
        pen.watch(Watch { subject, keep, delay, bold: colours(&io::stderr()) });
        // Without the signal, the table gets the new size at its next event.
        if let Ok(mut resized) = signal(SignalKind::window_change()) {
            tokio::spawn(async move {
                while resized.recv().await.is_some() {
                    pen.changed();
                }
            });
        }
        true
    }

    /// The app has changed.
    pub(crate) fn changed(&self) {
        if let Some(pen) = self.talk.as_ref().filter(|_| self.live) {
            pen.changed();
        }
    }

    /// Prints a message for people.
    pub(crate) fn note(&self, text: &str) {
        if self.chatty {
            self.say(Page::note(text));
        }
    }

    /// Answers a key, even while standard output carries JSON.
    pub(crate) fn insist(&self, text: &str) {
        self.say(Page::note(text));
    }

    /// Prints a table for people.
    pub(crate) fn show(&self, page: Page) {
        if self.chatty {
            self.say(page);
        }
    }

    /// Reports a failure that does not end the command.
    pub(crate) fn failure(&self, failure: &Failure) {
        // With JSON it is an event.
        if self.events.is_none() {
            self.say(Page::failure(failure));
        }
    }

    /// Reports that output of the ranks cannot be written.
    pub(crate) fn output_lost(&self, stream: Stream, reason: &str) {
        self.lost.store(true, Ordering::SeqCst);
        self.failure(&describe_loss(stream, reason));
    }

    /// Shortens the wait for the last output.
    pub(crate) fn hurry(&self) {
        self.hurried.store(true, Ordering::SeqCst);
    }

    /// The end: waits a limited time until everything is written. A success whose output is lost is a failure.
    pub(crate) async fn finish(&self, outcome: Outcome) -> Outcome {
        let patience = if self.hurried.load(Ordering::SeqCst) { HURRIED } else { LAST_WRITE };
        let all = async {
            // Messages last: one may be about the others.
            for pen in [&self.out, &self.events, &self.err, &self.talk].into_iter().flatten() {
                pen.finish().await;
            }
        };
        // Output that is unread by then is lost, as with any killed program.
        drop(tokio::time::timeout(patience, all).await);
        outcome.map(|code| if self.lost.load(Ordering::SeqCst) { exit::of_lost_output(code) } else { code })
    }

    fn say(&self, page: Page) {
        if let Some(talk) = &self.talk {
            talk.write(Ink::Lines(page));
        }
    }

    fn labels(&self) -> std::sync::MutexGuard<'_, Labels> {
        self.labels.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The progress bar of a transfer.
pub(crate) struct Sending<'a> {
    screen: &'a Screen,
    staging: Arc<Mutex<Option<Staging>>>,
}

impl Sending<'_> {
    /// The progress. None: the transfer is over.
    pub(crate) fn show(&self, staging: Option<Staging>) {
        *self.staging.lock().unwrap_or_else(PoisonError::into_inner) = staging;
        self.screen.changed();
    }
}

/// Whether lines can be redrawn: the terminal has a cursor, and the user did not ask for plain lines. Logs would
/// disturb the table.
fn has_cursor() -> bool {
    let logs = tracing::level_filters::LevelFilter::current() != tracing::level_filters::LevelFilter::OFF;
    has_sequences() && !logs
}

/// A duplicate of the descriptor.
fn copy(of: impl AsFd) -> io::Result<File> {
    Ok(of.as_fd().try_clone_to_owned()?.into())
}
