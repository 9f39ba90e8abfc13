//! Opens a FIFO to read. That waits for a writer; the wait can be cancelled and leaves no thread behind.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use nix::libc::O_NONBLOCK;
use tokio::sync::oneshot;

use crate::lock::lock;

/// Whether opening `path` waits for a writer.
pub(super) fn is_fifo(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.file_type().is_fifo())
}

/// Waits until a writer has opened the FIFO. The writer need not have written yet.
///
/// Until the thread below opens the FIFO there is no reader. A writer that comes early blocks until then, so it is not
/// missed.
pub(super) async fn open(path: &Path) -> io::Result<File> {
    let (done, opened) = oneshot::channel();
    let waker = Waker { path: path.to_owned(), writer: Arc::default() };
    let (path, writer) = (path.to_owned(), Arc::clone(&waker.writer));
    std::thread::Builder::new().name("gantry-fifo".to_owned()).spawn(move || {
        let file = File::open(path);
        // The caller may have cancelled.
        drop(done.send(file));
        drop(writer);
    })?;
    opened.await.unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()))
}

/// Ends the thread's wait when it is dropped: it becomes the writer, until the thread has returned from its open.
#[derive(Debug)]
struct Waker {
    path: PathBuf,
    writer: Arc<Mutex<Option<File>>>,
}

impl Drop for Waker {
    fn drop(&mut self) {
        // The thread has returned already.
        if Arc::strong_count(&self.writer) == 1 {
            return;
        }
        // On Linux, opening a FIFO for reading and writing never waits, and counts as a writer (fifo(7)).
        match OpenOptions::new().read(true).write(true).custom_flags(O_NONBLOCK).open(&self.path) {
            Ok(writer) => *lock(&self.writer) = Some(writer),
            Err(error) => {
                tracing::warn!(%error, path = %self.path.display(), "a thread still waits for a writer")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    fn threads() -> usize {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
        let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
        names.filter(|name| name.trim() == "gantry-fifo").count()
    }

    fn fifo(folder: &tempfile::TempDir) -> PathBuf {
        let path = folder.path().join("fifo");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        path
    }

    #[tokio::test]
    async fn a_wait_for_a_writer_may_be_given_up_and_repeated() {
        let folder = tempfile::tempdir().unwrap();
        let path = fifo(&folder);
        assert!(is_fifo(&path) && !is_fifo(folder.path()) && !is_fifo(&folder.path().join("none")));
        assert!(timeout(Duration::from_millis(100), open(&path)).await.is_err());
        while threads() > 0 {
            tokio::task::yield_now().await;
        }
        for _ in 0..100 {
            let writer = std::thread::spawn({
                let path = path.clone();
                // This writer ends as soon as its open returns.
                move || OpenOptions::new().write(true).open(path)?.write_all(b"words")
            });
            let mut opened = timeout(Duration::from_secs(60), open(&path)).await.unwrap().unwrap();
            writer.join().unwrap().unwrap();
            let mut text = String::new();
            opened.read_to_string(&mut text).unwrap();
            assert_eq!(text, "words");
        }
    }

    #[tokio::test]
    async fn a_writer_that_has_not_written_yet_is_enough() {
        let folder = tempfile::tempdir().unwrap();
        let path = fifo(&folder);
        let writer = std::thread::spawn({
            let path = path.clone();
            move || OpenOptions::new().write(true).open(path)
        });
        timeout(Duration::from_secs(60), open(&path)).await.unwrap().unwrap();
        writer.join().unwrap().unwrap();
    }
}
