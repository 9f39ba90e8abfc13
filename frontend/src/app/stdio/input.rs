//! Carries standard input from the tool's descriptor to rank 0.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex};

use gantry_shared::wire::flow::{FlowId, OUTPUT_WINDOW_BYTES, Word};
use gantry_types::id::{NodeId, Rank};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tokio::sync::{Semaphore, mpsc};

use crate::lock::lock;
use crate::overlay::Overlay;

/// Most bytes in one piece.
const PIECE_BYTES: usize = 32 * 1024;

/// Feeds a rank's standard input as fast as the rank reads. Does nothing before [`InputFeed::start`].
#[derive(Debug)]
pub(crate) struct InputFeed {
    window: Arc<Semaphore>,
    /// Dropping it wakes the reading thread and ends it.
    stop: Mutex<Option<OwnedFd>>,
}

impl Default for InputFeed {
    fn default() -> Self {
        Self { window: Arc::new(Semaphore::new(OUTPUT_WINDOW_BYTES as usize)), stop: Mutex::default() }
    }
}

impl InputFeed {
    /// Starts reading `from` for `rank` on `node`.
    ///
    /// # Errors
    /// No pipe or no thread can be made.
    pub(crate) fn start(&self, from: OwnedFd, rank: Rank, node: NodeId, overlay: Overlay) -> io::Result<()> {
        let (stopped, stop) = io::pipe()?;
        *lock(&self.stop) = Some(stop.into());
        let (pieces, mut read) = mpsc::channel::<Vec<u8>>(1);
        let thread = std::thread::Builder::new().name("gantry-input".to_owned());
        thread.spawn(move || read_pieces(File::from(from), &stopped.into(), &pieces))?;
        let window = Arc::clone(&self.window);
        tokio::spawn(async move {
            let flow = FlowId::Input(rank);
            while let Some(piece) = read.recv().await {
                let length = u32::try_from(piece.len()).unwrap_or(u32::MAX);
                match window.acquire_many(length).await {
                    Ok(permit) => permit.forget(),
                    Err(_) => return,
                }
                overlay.say(node, flow, Word::data(piece));
            }
            overlay.say(node, flow, Word::End);
        });
        Ok(())
    }

    /// Handles a message of the flow from the rank's node.
    pub(crate) fn hear(&self, word: &Word) {
        match word {
            Word::Credit(bytes) => self.window.add_permits(*bytes as usize),
            Word::End => self.close(),
            Word::Open(_) | Word::Data { .. } | Word::Drain => {}
        }
    }

    /// Stops reading.
    pub(crate) fn close(&self) {
        lock(&self.stop).take();
        self.window.close();
    }
}

/// Reads until the end of `from`, until the receiver of `pieces` is gone, or until the other end of `stop` is closed.
fn read_pieces(mut from: File, stop: &OwnedFd, pieces: &mpsc::Sender<Vec<u8>>) {
    loop {
        let mut fds =
            [PollFd::new(from.as_fd(), PollFlags::POLLIN), PollFd::new(stop.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, PollTimeout::NONE) {
            Err(nix::errno::Errno::EINTR) => continue,
            Err(_) => return,
            Ok(_) if fds[1].any().unwrap_or(true) => return,
            Ok(_) => {}
        }
        let mut piece = vec![0; PIECE_BYTES];
        match from.read(&mut piece) {
            Ok(0) => return,
            Ok(n) => {
                piece.truncate(n);
                if pieces.blocking_send(piece).is_err() {
                    return;
                }
            }
            Err(e) if matches!(e.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {}
            Err(_) => return,
        }
    }
}
