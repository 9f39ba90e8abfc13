//! A launcher's standard streams, and the text that it writes.
//!
//! A launcher reads its standard input and writes its standard output directly at the tool's descriptors, if the tool
//! gave descriptors. Its standard error passes through here: the last bytes are kept, because launchers write there why
//! they failed.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gantry_shared::wire::flow::FlowId;
use gantry_types::id::AppId;
use gantry_types::output::Stream;
use gantry_types::status::EndCause;
use gantry_wlm::{JobRef, LauncherWait, WaitLine, Wlm};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use tokio::sync::{Semaphore, mpsc, watch};

use super::output::{OutputStream, Piece, Room};
use crate::event::{Data, Output};
use crate::lock::lock;
use crate::request::OutputTo;

/// Most bytes in one piece.
const PIECE_BYTES: usize = 32 * 1024;

/// How much of a pipe's output may wait to be taken, then the launcher waits. Output is taken only once the ranks are
/// there, so this is far more than launchers write until then.
const ROOM_BYTES: usize = 16 * 1024 * 1024;

/// How much of a launcher's standard error is kept.
const WORDS_BYTES: usize = 4096;

/// How long to wait for the rest of an ended launcher's output. A child of the launcher may hold its pipes open.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// What a launcher has written on standard error.
#[derive(Debug, Clone)]
pub(crate) struct Words {
    said: Arc<Mutex<Said>>,
    /// The launcher's current wait. None: it does not wait.
    waits: watch::Receiver<Option<LauncherWait>>,
    /// Number of pipes still open.
    open: watch::Receiver<usize>,
}

#[derive(Debug, Default)]
struct Said {
    /// The last bytes.
    tail: Vec<u8>,
    /// Why the WLM had its ranks ended, from the most telling line.
    cause: Option<EndCause>,
    /// The job that the launcher has submitted, from its first line about one.
    submitted: Option<JobRef>,
}

impl Words {
    /// The last part of what it has written so far, trimmed.
    pub(crate) fn so_far(&self) -> String {
        String::from_utf8_lossy(&lock(&self.said).tail).trim().to_owned()
    }

    /// Why the WLM had its ranks ended, if a line said so.
    pub(crate) fn cause(&self) -> Option<EndCause> {
        lock(&self.said).cause.clone()
    }

    /// The launcher's current wait, from its lines. None: it does not wait.
    pub(crate) fn waits(&self) -> watch::Receiver<Option<LauncherWait>> {
        self.waits.clone()
    }

    /// The job that the launcher has submitted, if it has said so.
    pub(crate) fn submitted(&self) -> Option<JobRef> {
        lock(&self.said).submitted.clone()
    }

    /// Waits until the output of an ended launcher has been read: [`LAST_WORDS`] at most.
    pub(crate) async fn through(&mut self) {
        drop(tokio::time::timeout(LAST_WORDS, self.open.wait_for(|open| *open == 0)).await);
    }
}

/// A launcher's three descriptors, and our ends of those that are pipes.
#[derive(Debug)]
pub(crate) struct LauncherStdio {
    /// For the launcher.
    pub(crate) theirs: [OwnedFd; 3],
    /// Pipes that the guard reads after the app was detached and this process is gone.
    pub(crate) pipes: Vec<OwnedFd>,
    /// The output from the pipes, if it is wanted. Must be read or dropped.
    pub(crate) output: Option<OutputStream>,
    /// The descriptors for standard output and error of the app, if requested.
    pub(crate) to: Option<(OwnedFd, OwnedFd)>,
    /// The last part of its standard error.
    pub(crate) words: Words,
}

/// Makes the pipes and starts to read them. `wlm` knows what the launcher's lines mean, `host` is the name of this
/// machine.
///
/// # Errors
/// No descriptors are left.
pub(crate) fn connect(
    app: AppId,
    wlm: &'static dyn Wlm,
    host: &str,
    stdin: Option<File>,
    output: OutputTo,
) -> io::Result<LauncherStdio> {
    let null = || File::options().read(true).write(true).open("/dev/null").map(OwnedFd::from);
    let stdin = stdin.map_or_else(null, |file| Ok(file.into()))?;
    let (pieces, from) = mpsc::unbounded_channel();
    let (open, watched) = watch::channel(0);
    let open = Arc::new(open);
    let said = Arc::<Mutex<Said>>::default();
    let (wait, waits) = watch::channel(None);
    let mut wait = Some(wait);
    let mut pipes = Vec::new();
    let mut pipe = |stream: Stream| -> io::Result<OwnedFd> {
        let (ours, theirs) = io::pipe()?;
        pipes.push(OwnedFd::from(ours.try_clone()?));
        let reader = Reader {
            pipe: Receiver::from_owned_fd(ours.into())?,
            stub: Output {
                app,
                rank: None,
                daemon: None,
                host: host.to_owned(),
                stream,
                data: Data(Vec::new()),
            },
            pieces: Some(pieces.clone()),
            room: Arc::new(Semaphore::new(ROOM_BYTES)),
            lines: wait.take_if(|_| matches!(stream, Stream::Stderr)).map(|wait| Lines {
                wlm,
                begun: Vec::new(),
                said: Arc::clone(&said),
                wait,
            }),
        };
        open.send_modify(|open| *open += 1);
        let open = Arc::clone(&open);
        tokio::spawn(async move {
            reader.read().await;
            open.send_modify(|open| *open -= 1);
        });
        Ok(theirs.into())
    };
    let from = OutputStream { from, backlog: None };
    let (stdout, to, output) = match output {
        OutputTo::Null => (null()?, None, None),
        OutputTo::Fds { stdout, stderr } => (stdout.try_clone()?, Some((stdout, stderr)), Some(from)),
        OutputTo::Stream => (pipe(Stream::Stdout)?, None, Some(from)),
    };
    let theirs = [stdin, stdout, pipe(Stream::Stderr)?];
    let words = Words { said, waits, open: watched };
    Ok(LauncherStdio { theirs, pipes, output, to, words })
}

struct Reader {
    pipe: Receiver,
    stub: Output,
    /// None when the receiver is gone.
    pieces: Option<mpsc::UnboundedSender<Piece>>,
    /// Of [`ROOM_BYTES`], what is left.
    room: Arc<Semaphore>,
    lines: Option<Lines>,
}

/// Examines every line: with thousands of nodes, the line with the reason may be far from the end.
struct Lines {
    wlm: &'static dyn Wlm,
    /// The beginning of an unfinished line, at most [`WORDS_BYTES`].
    begun: Vec<u8>,
    said: Arc<Mutex<Said>>,
    wait: watch::Sender<Option<LauncherWait>>,
}

impl Lines {
    fn take(&mut self, bytes: &[u8]) {
        keep(&mut lock(&self.said).tail, bytes);
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let room = WORDS_BYTES.saturating_sub(self.begun.len());
            self.begun.extend_from_slice(&piece[..piece.len().min(room)]);
            if piece.ends_with(b"\n") {
                let line = String::from_utf8_lossy(&self.begun).into_owned();
                self.begun.clear();
                let found =
                    self.wlm.capabilities().launcher_output.and_then(|output| output.read_cause(&line));
                match self.wlm.capabilities().launcher_waits.and_then(|waits| waits.read_line(&line)) {
                    Some(WaitLine::Begins(wait)) => {
                        if wait.submitted {
                            lock(&self.said).submitted.get_or_insert_with(|| wait.job.clone());
                        }
                        drop(self.wait.send_replace(Some(wait)));
                    }
                    Some(WaitLine::Ends) => drop(self.wait.send_replace(None)),
                    None => {}
                }
                if let Some(found) = found {
                    let mut said = lock(&self.said);
                    said.cause = Some(match said.cause.take() {
                        Some(known) => known.or_better(found),
                        None => found,
                    });
                }
            }
        }
    }
}

impl Reader {
    async fn read(mut self) {
        let mut bytes = vec![0; PIECE_BYTES];
        loop {
            let read = match self.pipe.read(&mut bytes).await {
                Ok(0) | Err(_) => return,
                Ok(read) => &bytes[..read],
            };
            if let Some(lines) = &mut self.lines {
                lines.take(read);
            }
            if let Some(pieces) = &self.pieces {
                let output = Output { data: Data(read.to_vec()), ..self.stub.clone() };
                let cost = FlowId::Output(None).cost_of(read.len());
                // The room is never closed. When the receiver goes, so do the pieces, and there is room.
                let Ok(_taken) = Arc::clone(&self.room).acquire_many_owned(cost).await else { return };
                if pieces.send(Piece { output, _room: Room::Pipe { _taken } }).is_err() {
                    self.pieces = None;
                }
            }
        }
    }
}

/// Keeps the last bytes.
fn keep(tail: &mut Vec<u8>, read: &[u8]) {
    tail.extend_from_slice(read);
    let surplus = tail.len().saturating_sub(WORDS_BYTES);
    tail.drain(..surplus);
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use tokio::time::{sleep, timeout};

    use super::*;

    /// Longer than any test.
    const SOON: Duration = Duration::from_secs(60);

    fn stdio(output: OutputTo) -> LauncherStdio {
        let wlm = gantry_wlm::registry::find("localhost").unwrap();
        connect("abcdefgh".parse().unwrap(), wlm, "here", None, output).unwrap()
    }

    fn outputs() -> [OutputTo; 3] {
        let null = || File::options().write(true).open("/dev/null").unwrap().into();
        [OutputTo::Null, OutputTo::Stream, OutputTo::Fds { stdout: null(), stderr: null() }]
    }

    /// Writes on another thread, because a full pipe makes the writer wait.
    async fn write(mut to: File, bytes: Vec<u8>) -> File {
        let writing = tokio::task::spawn_blocking(move || to.write_all(&bytes).map(|()| to));
        timeout(SOON, writing).await.unwrap().unwrap().unwrap()
    }

    #[tokio::test]
    async fn the_end_of_standard_error_is_kept_and_all_of_it_passed_on() {
        let stdio = stdio(OutputTo::Stream);
        let [_, stdout, stderr] = stdio.theirs;
        let (mut output, mut words) = (stdio.output.unwrap(), stdio.words);
        File::from(stdout).write_all(b"out").unwrap();
        let mut stderr = File::from(stderr);
        stderr.write_all(&vec![b'x'; WORDS_BYTES]).unwrap();
        stderr.write_all(b"why \n").unwrap();
        drop(stderr);
        let mut bytes = 0;
        while let Some(piece) = output.next().await {
            assert_eq!((piece.rank, piece.host.as_str()), (None, "here"));
            bytes += piece.data.0.len();
        }
        assert_eq!(bytes, 3 + WORDS_BYTES + 5);
        words.through().await;
        assert!(words.so_far().ends_with("xwhy") && words.so_far().len() < WORDS_BYTES);
    }

    #[tokio::test]
    async fn a_launcher_is_heard_before_its_output_is_taken() {
        for to in outputs() {
            let stdio = stdio(to);
            let [_, _, stderr] = stdio.theirs;
            let mut stderr = File::from(stderr);
            // One piece for each.
            for line in 0..100 {
                let line = format!("line {line}\n");
                stderr = write(stderr, line.clone().into()).await;
                let heard = async {
                    while !stdio.words.so_far().ends_with(line.trim()) {
                        sleep(Duration::from_millis(1)).await;
                    }
                };
                timeout(SOON, heard).await.unwrap();
            }
            // Much more than a pipe holds.
            drop(write(stderr, vec![b'x'; ROOM_BYTES / 2]).await);
        }
    }

    #[tokio::test]
    async fn a_launcher_waits_while_there_is_no_room_and_goes_on_when_output_is_taken_or_dropped() {
        for is_taken in [true, false] {
            let (ours, theirs) = io::pipe().unwrap();
            let (pieces, from) = mpsc::unbounded_channel();
            let room = Arc::new(Semaphore::new(3 * PIECE_BYTES));
            let (app, data) = ("abcdefgh".parse().unwrap(), Data(Vec::new()));
            let stub =
                Output { app, rank: None, daemon: None, host: String::new(), stream: Stream::Stdout, data };
            let pipe = Receiver::from_owned_fd(ours.into()).unwrap();
            let reader = Reader { pipe, stub, pieces: Some(pieces), room: Arc::clone(&room), lines: None };
            let reading = tokio::spawn(reader.read());
            let all = 32 * PIECE_BYTES;
            let writing = tokio::spawn(write(File::from(OwnedFd::from(theirs)), vec![b'x'; all]));
            let full = async {
                while room.available_permits() > 0 {
                    sleep(Duration::from_millis(1)).await;
                }
            };
            timeout(SOON, full).await.unwrap();
            assert!(!writing.is_finished(), "it has written more than there is room for");
            let mut output = OutputStream { from, backlog: None };
            let mut taken = 0;
            while is_taken && taken < all {
                taken += output.next().await.unwrap().data.0.len();
            }
            drop(output);
            drop(writing.await.unwrap());
            timeout(SOON, reading).await.unwrap().unwrap();
        }
    }
}
