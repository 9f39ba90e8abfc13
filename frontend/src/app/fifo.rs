//! Opening a FIFO to read, which waits until somebody writes: so that it neither blocks the runtime nor outlives who has given it up.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use nix::libc::O_NONBLOCK;
use tokio::sync::oneshot;

use crate::lock::lock;

/// Whether opening it waits for somebody else.
pub(super) fn is_fifo(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.file_type().is_fifo())
}

/// Opens it as soon as somebody has opened it to write.
pub(super) async fn open(path: &Path) -> io::Result<File> {
    let (done, opened) = oneshot::channel();
    let waker = Waker::new(path)?;
    let (path, writer) = (path.to_owned(), Arc::clone(&waker.writer));
    std::thread::Builder::new().name("gantry-fifo".to_owned()).spawn(move || {
        let file = File::open(path);
        // Whoever asked may have given up.
        drop(done.send(file));
        drop(writer);
    })?;
    opened.await.unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()))
}

/// Wakes the thread that waits when nobody wants to hear of it any more: by being the writer. That one stays until the thread is awake, whenever it comes to wait.
#[derive(Debug)]
struct Waker {
    path: PathBuf,
    writer: Arc<Mutex<Option<File>>>,
    /// Without a reader there could be no writer that does not wait itself.
    _reader: File,
}

impl Waker {
    fn new(path: &Path) -> io::Result<Self> {
        let _reader = OpenOptions::new().read(true).custom_flags(O_NONBLOCK).open(path)?;
        Ok(Self { path: path.to_owned(), writer: Arc::default(), _reader })
    }
}

impl Drop for Waker {
    fn drop(&mut self) {
        // The thread is awake already.
        if Arc::strong_count(&self.writer) == 1 {
            return;
        }
        match OpenOptions::new().write(true).custom_flags(O_NONBLOCK).open(&self.path) {
            Ok(writer) => *lock(&self.writer) = Some(writer),
            Err(error) => {
                tracing::warn!(%error, path = %self.path.display(), "a thread still waits for somebody to write")
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

    #[tokio::test]
    async fn it_is_waited_for_and_may_be_given_up() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fifo");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(is_fifo(&path) && !is_fifo(folder.path()) && !is_fifo(&folder.path().join("none")));
        assert!(timeout(Duration::from_millis(100), open(&path)).await.is_err());
        while threads() > 0 {
            tokio::task::yield_now().await;
        }
        let (opened, ()) = tokio::join!(open(&path), async {
            let write = |path: PathBuf| OpenOptions::new().write(true).open(path)?.write_all(b"words");
            let path = path.clone();
            tokio::task::spawn_blocking(move || write(path)).await.unwrap().unwrap();
        });
        let mut text = String::new();
        opened.unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "words");
    }
}
