//! Keeps a launcher's last output on standard error, for the error about a failed launch. All output is passed on to
//! its destination.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// How much is kept.
const KEPT_BYTES: usize = 4096;

#[derive(Debug, Default)]
struct Kept {
    tail: VecDeque<u8>,
    ended: bool,
}

/// The kept end of the output.
#[derive(Debug)]
pub(super) struct Words {
    kept: Arc<(Mutex<Kept>, Condvar)>,
}

impl Words {
    /// Starts a thread that passes on to `to` all output to the returned descriptor, as long as a process has it open.
    ///
    /// # Errors
    /// A pipe or a thread cannot be created.
    pub(super) fn pass_on(to: OwnedFd) -> io::Result<(OwnedFd, Self)> {
        let (reader, writer): (PipeReader, PipeWriter) = io::pipe()?;
        let kept = Arc::new((Mutex::new(Kept::default()), Condvar::new()));
        let shared = Arc::clone(&kept);
        std::thread::Builder::new()
            .name("launcher-words".to_owned())
            .spawn(move || pump(reader, File::from(to), &shared))?;
        Ok((writer.into(), Self { kept }))
    }

    /// The kept output. Waits until all writers have ended, `patience` at most.
    pub(super) fn last(&self, patience: Duration) -> String {
        let (kept, changed) = &*self.kept;
        let kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = changed.wait_timeout_while(kept, patience, |kept| !kept.ended);
        let mut kept = waited.unwrap_or_else(PoisonError::into_inner).0;
        String::from_utf8_lossy(kept.tail.make_contiguous()).trim().to_owned()
    }
}

fn pump(mut reader: PipeReader, to: File, kept: &(Mutex<Kept>, Condvar)) {
    let mut to = Some(to);
    let mut bytes = [0; 4096];
    loop {
        let count = match reader.read(&mut bytes) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => break,
        };
        {
            let mut kept = kept.0.lock().unwrap_or_else(PoisonError::into_inner);
            kept.tail.extend(&bytes[..count]);
            let excess = kept.tail.len().saturating_sub(KEPT_BYTES);
            kept.tail.drain(..excess);
        }
        // If the reader has closed the stream, the launcher must still be able to write.
        to = to.take().filter(|to| (&mut &*to).write_all(&bytes[..count]).is_ok());
    }
    kept.0.lock().unwrap_or_else(PoisonError::into_inner).ended = true;
    kept.1.notify_all();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_handed_on_and_the_end_is_kept() {
        let (mut out, to) = io::pipe().unwrap();
        let (from, words) = Words::pass_on(to.into()).unwrap();
        let text = "0123456789\n".repeat(1000);
        File::from(from).write_all(text.as_bytes()).unwrap();
        let last = words.last(Duration::from_secs(10));
        assert!(last.len() <= KEPT_BYTES && text.trim().ends_with(&last), "{last}");
        let mut got = String::new();
        out.read_to_string(&mut got).unwrap();
        assert_eq!(got, text);
    }

    #[test]
    fn a_reader_that_is_gone_stops_nobody() {
        let (out, to) = io::pipe().unwrap();
        drop(out);
        let (from, words) = Words::pass_on(to.into()).unwrap();
        let mut from = File::from(from);
        from.write_all(&[b'x'; 200_000]).unwrap();
        from.write_all(b" end").unwrap();
        drop(from);
        assert!(words.last(Duration::from_secs(10)).ends_with("x end"));
    }
}
