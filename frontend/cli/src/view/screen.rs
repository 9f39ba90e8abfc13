//! What a command that stays with an app shows.

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
use super::writer::{Ink, Patient, Pen, Target, Watch, start};
use super::{colours, has_sequences};

/// How long whoever reads what we write may take for the last of it: long enough to see that a terminal stands still and to let it go on.
const LAST_WRITE: Duration = Duration::from_secs(10);

/// The same, when somebody has asked twice to end.
const HURRIED: Duration = Duration::from_millis(200);

/// What is sent within that time has no bar: nobody could read it.
const SENDING_DELAY: Duration = Duration::from_millis(200);

/// What is shown besides output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Talk {
    /// Notes, and a live table on a terminal.
    All,
    /// Failures only.
    Quiet,
    /// Events for scripts.
    Json,
}

/// Where everything goes that a command shows. Nothing here waits for who reads it, but passing output on and the end.
pub(crate) struct Screen {
    /// Gets events as JSON.
    events: Option<Pen>,
    /// Gets what is written to standard output, with its label.
    out: Option<Pen>,
    /// Gets what is written to standard error, with its label.
    err: Option<Pen>,
    /// Gets what is said to people.
    talk: Option<Pen>,
    labels: Mutex<Labels>,
    /// What ranks write is passed on as it is.
    pass_ranks: bool,
    /// Notes are wanted.
    chatty: bool,
    /// A live table is wanted.
    live: bool,
    /// Whether somebody waits to hear that the app is there.
    reports: bool,
    hurried: AtomicBool,
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
        let alone = match shared {
            true => {
                targets.push(Box::new(Patient(copy(&stdout)?)));
                None
            }
            // Who reads standard output slowly must not keep us from talking.
            false => start(vec![Box::new(Patient(copy(&stdout)?))], None).pop(),
        };
        let mut pens = start(targets, terminal).into_iter();
        let err = pens.next();
        let out = alone.or_else(|| pens.next());
        let empty = Self::empty();
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

    /// Events go to who started us, output to a file if there is one, and nobody is there to talk to.
    pub(crate) fn background(events: Target, output: Option<[File; 2]>) -> Self {
        let mut targets = vec![events];
        targets.extend(output.into_iter().flatten().map(|file| Box::new(file) as Target));
        let mut pens = start(targets, None).into_iter();
        Self { events: pens.next(), out: pens.next(), err: pens.next(), reports: true, ..Self::empty() }
    }

    fn empty() -> Self {
        Self {
            events: None,
            out: None,
            err: None,
            talk: None,
            labels: Mutex::default(),
            pass_ranks: false,
            chatty: false,
            live: false,
            reports: false,
            hurried: AtomicBool::new(false),
        }
    }

    /// An event as JSON, where that is wanted.
    pub(crate) fn event(&self, event: &Event) {
        if let Some(events) = &self.events {
            events.write(Ink::Lines(Page::json(event)));
        }
    }

    /// The app is there, with all that was to be started with it. In the background, who started us is told so and hears no more.
    /// False when nobody was there to be told.
    pub(crate) async fn started(&self, app: AppId) -> bool {
        match &self.events {
            Some(events) if self.reports => events.write_last(Page::json(&Answer::Ok(app))).await,
            _ => true,
        }
    }

    /// As [`Screen::started`], of a job of several apps.
    pub(crate) async fn all_started(&self, apps: Vec<AppId>) -> bool {
        match &self.events {
            Some(events) if self.reports => events.write_last(Page::json(&Answer::Ok(apps))).await,
            _ => true,
        }
    }

    /// It cannot be started. In the background, who started us is told.
    pub(crate) fn not_started(&self, failure: &Failure) {
        if let Some(events) = &self.events {
            events.write(Ink::Lines(Page::json(&Answer::<()>::Error(failure.clone()))));
        }
    }

    /// What a rank or a daemon wrote: as it is, by whole lines with their label, or as an event. Waits while too much of it is unread.
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

    /// Lines that have no end yet, at the end of everything.
    pub(crate) fn flush(&self) {
        let (out, err) = self.labels().finish();
        for (pen, lines) in [(&self.out, out), (&self.err, err)] {
            if let Some(pen) = pen {
                pen.write(Ink::Labelled(lines));
            }
        }
    }

    /// Shows how an app stands in a live table, where there can be one. False: there can be none.
    pub(crate) fn watch(&self, app: AppHandle, keep: bool, delay: Duration) -> bool {
        self.start_table(Subject::App(app), keep, delay)
    }

    /// Shows how far files are on their way, where that can be shown, as long as it is told.
    pub(crate) fn watch_sending(&self) -> Sending<'_> {
        let staging = Arc::default();
        self.start_table(Subject::Sending(Arc::clone(&staging)), false, SENDING_DELAY);
        Sending { screen: self, staging }
    }

    fn start_table(&self, subject: Subject, keep: bool, delay: Duration) -> bool {
        let Some(pen) = self.talk.clone().filter(|_| self.live) else { return false };
        pen.watch(Watch { subject, keep, delay, bold: colours(&io::stderr()) });
        // Without it the table has the right size from the next event on.
        if let Ok(mut resized) = signal(SignalKind::window_change()) {
            tokio::spawn(async move {
                while resized.recv().await.is_some() {
                    pen.changed();
                }
            });
        }
        true
    }

    /// Something has happened to the app.
    pub(crate) fn changed(&self) {
        if let Some(pen) = self.talk.as_ref().filter(|_| self.live) {
            pen.changed();
        }
    }

    /// A word to people.
    pub(crate) fn note(&self, text: &str) {
        if self.chatty {
            self.say(Page::note(text));
        }
    }

    /// A word to whoever pressed a key, also while standard output carries JSON.
    pub(crate) fn insist(&self, text: &str) {
        self.say(Page::note(text));
    }

    /// A table for people.
    pub(crate) fn show(&self, page: Page) {
        if self.chatty {
            self.say(page);
        }
    }

    /// A failure that does not end the command.
    pub(crate) fn failure(&self, failure: &Failure) {
        // With JSON it is an event.
        if self.events.is_none() {
            self.say(Page::failure(failure));
        }
    }

    /// Nobody wants to wait for the last of what is written.
    pub(crate) fn hurry(&self) {
        self.hurried.store(true, Ordering::SeqCst);
    }

    /// The end: waits until everything is written, for as long as is good.
    pub(crate) async fn finish(&self) {
        let patience = if self.hurried.load(Ordering::SeqCst) { HURRIED } else { LAST_WRITE };
        let all = async {
            for pen in [&self.talk, &self.out, &self.err, &self.events].into_iter().flatten() {
                pen.finish().await;
            }
        };
        // What is not read by then is lost, as with any program that is killed.
        drop(tokio::time::timeout(patience, all).await);
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

/// A bar of what is being sent.
pub(crate) struct Sending<'a> {
    screen: &'a Screen,
    staging: Arc<Mutex<Option<Staging>>>,
}

impl Sending<'_> {
    /// How far it is; nothing is on its way any more when there is none.
    pub(crate) fn show(&self, staging: Option<Staging>) {
        *self.staging.lock().unwrap_or_else(PoisonError::into_inner) = staging;
        self.screen.changed();
    }
}

/// Whether lines can be drawn anew, and nobody has asked for plain ones. Logs go to the same place by a way of their own.
fn has_cursor() -> bool {
    let logs = tracing::level_filters::LevelFilter::current() != tracing::level_filters::LevelFilter::OFF;
    has_sequences() && !logs
}

/// A descriptor of our own for the same place.
fn copy(of: impl AsFd) -> io::Result<File> {
    Ok(of.as_fd().try_clone_to_owned()?.into())
}
