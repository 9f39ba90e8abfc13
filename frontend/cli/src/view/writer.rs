//! The thread that writes to a terminal, a pipe or a file.
//!
//! Each target may block for any time (Ctrl-S, a pager). So only this thread writes there, and every wait for it has
//! a timeout. The exception is output of the app: its sender waits for room, so that a slow reader slows the writers
//! down. One thread serves all streams that end on the same terminal. So no two streams are written at once, and the
//! thread can move the live table out of the way.

use std::fs::File;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use gantry_shared::deadline::bounded;
use gantry_types::output::Stream;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::{getpgrp, tcgetpgrp};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::block::Block;
use super::describe_loss;
use super::page::Page;
use super::status::{Room, Subject};
use super::sys::window_size;

/// The most bytes of output in the queue. A sender with more waits.
const ROOM_BYTES: u32 = 256 * 1024;

/// The most bytes of one write.
const PAGE_BYTES: usize = 64 * 1024;

/// The shortest time between two updates of the table.
const CALM: Duration = Duration::from_millis(100);

/// The size of a terminal that does not know its own.
const USUAL_SIZE: (usize, usize) = (80, 24);

/// A target for writing.
pub(super) type Target = Box<dyn Write + Send>;

/// A text, and how to write it.
#[derive(Debug)]
pub(super) enum Ink {
    /// Output of a process of the app, unchanged.
    Passed(Vec<u8>),
    /// The same in whole lines, with labels.
    Labelled(Vec<u8>),
    /// Messages of gantry.
    Lines(Page),
}

impl Ink {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Passed(bytes) | Self::Labelled(bytes) => bytes,
            Self::Lines(page) => page.as_str().as_bytes(),
        }
    }
}

enum Message {
    Write {
        sink: usize,
        ink: Ink,
        room: Option<OwnedSemaphorePermit>,
    },
    /// Writes, closes the target and reports success.
    Last {
        sink: usize,
        page: Page,
        done: oneshot::Sender<bool>,
    },
    Watch(Box<Watch>),
    Changed,
    /// The end of the table. Reports when everything is written.
    Finish(oneshot::Sender<bool>),
}

/// The content of a live table.
pub(super) struct Watch {
    pub(super) subject: Subject,
    /// Its last state stays on the screen.
    pub(super) keep: bool,
    /// The delay before the table appears: the user of a short program wants to see its output only.
    pub(super) delay: Duration,
    /// Headings may be bold.
    pub(super) bold: bool,
}

/// Queues text for the thread. All pens of one thread are written in order.
#[derive(Clone)]
pub(super) struct Pen {
    sink: usize,
    to: Sender<Message>,
    room: Arc<Semaphore>,
    changed: Arc<AtomicBool>,
}

impl Pen {
    /// Queues a short text without waiting.
    pub(super) fn write(&self, ink: Ink) {
        if !ink.bytes().is_empty() {
            self.send(Message::Write { sink: self.sink, ink, room: None });
        }
    }

    /// Waits for room, and queues the text.
    pub(super) async fn write_much(&self, ink: Ink) {
        if !ink.bytes().is_empty() {
            let length = u32::try_from(ink.bytes().len()).unwrap_or(u32::MAX).min(ROOM_BYTES);
            // The semaphore is never closed, so room comes some time.
            let room = Arc::clone(&self.room).acquire_many_owned(length).await.ok();
            self.send(Message::Write { sink: self.sink, ink, room });
        }
    }

    /// Writes and closes. False: the write failed.
    pub(super) async fn write_last(&self, page: Page) -> bool {
        let (done, written) = oneshot::channel();
        self.send(Message::Last { sink: self.sink, page, done });
        written.await.unwrap_or(false)
    }

    /// Shows a live table.
    pub(super) fn watch(&self, watch: Watch) {
        self.send(Message::Watch(watch.into()));
    }

    /// The app or the terminal has changed, so the table must be updated.
    pub(super) fn changed(&self) {
        // One message is enough until the thread has seen it.
        if !self.changed.swap(true, Ordering::SeqCst) {
            self.send(Message::Changed);
        }
    }

    /// Ends the table, and waits until everything is written.
    pub(super) async fn finish(&self) {
        let (done, written) = oneshot::channel();
        self.send(Message::Finish(done));
        drop(written.await);
    }

    fn send(&self, message: Message) {
        // The thread lives as long as there are pens.
        drop(self.to.send(message));
    }
}

/// What is done when a target cannot be written to.
#[derive(Default)]
pub(super) struct Loss {
    /// Receives the message, if the target is standard output.
    pub(super) talk: Option<Pen>,
    /// Becomes true.
    pub(super) seen: Arc<AtomicBool>,
}

impl Loss {
    fn happened(&self, error: &io::Error) {
        self.seen.store(true, Ordering::SeqCst);
        if let Some(talk) = &self.talk {
            let failure = describe_loss(Stream::Stdout, &error.to_string());
            talk.write(Ink::Lines(Page::failure(&failure)));
        }
    }
}

/// Starts a thread that writes to `targets`, and returns a pen for each. With `terminal`, all of them are that
/// terminal.
pub(super) fn start(targets: Vec<Target>, terminal: Option<File>, loss: Loss) -> Vec<Pen> {
    let (to, inbox) = channel();
    let (room, changed) = (Arc::new(Semaphore::new(ROOM_BYTES as usize)), Arc::new(AtomicBool::new(false)));
    let pen = |sink| Pen { sink, to: to.clone(), room: Arc::clone(&room), changed: Arc::clone(&changed) };
    let pens = (0..targets.len()).map(pen).collect();
    let writer = Writer {
        sinks: targets.into_iter().map(Some).collect(),
        terminal,
        loss,
        changed,
        pages: Vec::new(),
        rooms: Vec::new(),
        dones: Vec::new(),
        block: Block::default(),
        table: None,
    };
    // Without the thread the pens write nothing. A process that cannot start a thread cannot continue anyway.
    drop(std::thread::Builder::new().name("gantry-screen".to_owned()).spawn(move || writer.run(&inbox)));
    pens
}

struct Table {
    watch: Watch,
    /// The time of the next update, if one is due.
    due: Option<Instant>,
    /// The earliest time for it.
    earliest: Instant,
    /// The app or a daemon has written output here.
    written: bool,
}

struct Writer {
    /// A target that failed is replaced by none.
    sinks: Vec<Option<Target>>,
    terminal: Option<File>,
    loss: Loss,
    changed: Arc<AtomicBool>,
    /// The data to write, and the index of its target.
    pages: Vec<(usize, Vec<u8>)>,
    /// Returned after the write.
    rooms: Vec<OwnedSemaphorePermit>,
    dones: Vec<oneshot::Sender<bool>>,
    block: Block,
    table: Option<Table>,
}

impl Writer {
    fn run(mut self, inbox: &Receiver<Message>) {
        loop {
            let first = match self.table.as_ref().and_then(|table| table.due) {
                None => inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(due) => inbox.recv_timeout(due.saturating_duration_since(Instant::now())),
            };
            match first {
                Ok(message) => self.take(message),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            while self.pages.iter().map(|(_, page)| page.len()).sum::<usize>() < PAGE_BYTES
                && let Ok(message) = inbox.try_recv()
            {
                self.take(message);
            }
            self.draw();
            self.flush();
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Write { sink, ink, room } => {
                self.put(sink, &ink);
                self.rooms.extend(room);
            }
            Message::Last { sink, page, done } => {
                self.put(sink, &Ink::Lines(page));
                self.flush();
                let written = self.sinks.get_mut(sink).and_then(Option::take).is_some();
                // The receiver may have been cancelled.
                done.send(written).unwrap_or_default();
            }
            Message::Watch(watch) => {
                let earliest = Instant::now() + bounded(watch.delay);
                self.table = Some(Table { watch: *watch, due: Some(earliest), earliest, written: false });
            }
            Message::Changed => {
                self.changed.store(false, Ordering::SeqCst);
                if let Some(table) = &mut self.table {
                    table.due.get_or_insert(table.earliest);
                }
            }
            Message::Finish(done) => {
                self.end_table();
                self.dones.push(done);
            }
        }
    }

    fn put(&mut self, sink: usize, ink: &Ink) {
        let on_terminal = self.terminal.is_some();
        let page = page(&mut self.pages, sink);
        match ink {
            _ if !on_terminal => page.extend_from_slice(ink.bytes()),
            Ink::Passed(bytes) => self.block.pass(page, bytes),
            Ink::Labelled(_) | Ink::Lines(_) => self.block.add_lines(page, ink.bytes()),
        }
        let is_ours = matches!(ink, Ink::Lines(_));
        if let Some(table) = self.table.as_mut().filter(|table| !is_ours && !table.written) {
            table.written = true;
            table.due.get_or_insert(table.earliest);
        }
    }

    fn flush(&mut self) {
        for (sink, page) in self.pages.drain(..) {
            if let Some(sink) = self.sinks.get_mut(sink)
                && let Some(to) = sink
                && let Err(error) = to.write_all(&page).and_then(|()| to.flush())
            {
                *sink = None;
                // A reader that has closed its pipe wants no more.
                if error.kind() != ErrorKind::BrokenPipe {
                    self.loss.happened(&error);
                }
            }
        }
        self.rooms.clear();
        self.dones.drain(..).for_each(|done| done.send(true).unwrap_or_default());
    }

    /// Puts the table back where output has replaced it, and updates it when due.
    fn draw(&mut self) {
        let (Some(table), Some(terminal)) = (&mut self.table, &self.terminal) else { return };
        let begun = Instant::now();
        let is_due = table.due.is_some_and(|due| due <= begun);
        // Another process owns the terminal now, such as a shell with its prompt. Do not draw.
        if !is_in_front(terminal) {
            if is_due {
                table.due = None;
            }
            return;
        }
        let (columns, rows) = window_size(terminal).unwrap_or(USUAL_SIZE);
        let page = page(&mut self.pages, 0);
        if is_due {
            let lines =
                table.watch.subject.build_lines(Room { columns, rows }, table.written, table.watch.bold);
            self.block.change(page, lines);
            // A table of a million ranks takes long to build. Limit it to a tenth of this thread's time.
            table.earliest = begun + CALM.max(begun.elapsed() * 10);
            table.due = None;
        }
        self.block.show(page, rows);
    }

    fn end_table(&mut self) {
        let page = page(&mut self.pages, 0);
        self.block.hide(page);
        if let Some(Table { watch, .. }) = self.table.take()
            && watch.keep
        {
            let (columns, rows) = self.terminal.as_ref().and_then(window_size).unwrap_or(USUAL_SIZE);
            let lines = watch.subject.build_lines(Room { columns, rows }, false, watch.bold);
            self.block.add_lines(page, Page::from(lines.as_slice()).as_str().as_bytes());
        }
        self.block.change(page, Vec::new());
    }
}

/// The page for a target, behind all others.
fn page(pages: &mut Vec<(usize, Vec<u8>)>, sink: usize) -> &mut Vec<u8> {
    if pages.last().is_none_or(|(last, _)| *last != sink) {
        pages.push((sink, Vec::new()));
    }
    let last = pages.len() - 1;
    &mut pages[last].1
}

/// Whether this process is in the terminal's foreground group. In the background it must not draw.
fn is_in_front(terminal: &File) -> bool {
    match tcgetpgrp(terminal) {
        Ok(group) => group == getpgrp(),
        // It is not the controlling terminal, so no shell shares it.
        Err(_) => terminal.is_terminal(),
    }
}

/// A duplicate descriptor that waits for room, even if the original is non-blocking.
pub(super) struct Patient(pub(super) File);

impl Write for Patient {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.0.write(bytes) {
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    poll(&mut [PollFd::new(self.0.as_fd(), PollFlags::POLLOUT)], PollTimeout::NONE)?;
                }
                done => return done,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
