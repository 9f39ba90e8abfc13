//! Bounded lines of JSON over a socket.

use std::io;

use serde::Serialize;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Reads lines of at most `max_bytes`.
#[derive(Debug)]
pub(super) struct Lines<R> {
    from: R,
    buffer: Vec<u8>,
    /// How many bytes of the buffer are known to have no line end.
    searched: usize,
    max_bytes: usize,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(super) fn new(from: R, max_bytes: usize) -> Self {
        Self { from, buffer: Vec::new(), searched: 0, max_bytes }
    }

    /// The next line without its end; none at the end of the stream. An unfinished last line is dropped: its writer
    /// died. Cancel-safe.
    ///
    /// # Errors
    /// The system's; `InvalidData` for a line that is too long, after which nothing more can be read.
    pub(super) async fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            let found = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n');
            match found.map(|at| self.searched + at) {
                Some(end) if end <= self.max_bytes => {
                    let rest = self.buffer.split_off(end + 1);
                    let mut line = std::mem::replace(&mut self.buffer, rest);
                    line.truncate(end);
                    self.searched = 0;
                    return Ok(Some(line));
                }
                None if self.buffer.len() <= self.max_bytes => self.searched = self.buffer.len(),
                _ => {
                    let text = format!("a line has more than {} bytes", self.max_bytes);
                    return Err(io::Error::new(io::ErrorKind::InvalidData, text));
                }
            }
            if self.fill().await? == 0 {
                return Ok(None);
            }
        }
    }

    /// Waits for the end of the stream. Keeps lines before it for [`Lines::next`]. Cancel-safe.
    ///
    /// # Errors
    /// The system's.
    pub(super) async fn ended(&mut self) -> io::Result<()> {
        while self.buffer.len() <= self.max_bytes {
            if self.fill().await? == 0 {
                return Ok(());
            }
        }
        std::future::pending().await
    }

    async fn fill(&mut self) -> io::Result<usize> {
        self.buffer.reserve(16 * 1024);
        self.from.read_buf(&mut self.buffer).await
    }
}

/// Writes `value` as one line.
///
/// # Errors
/// The system's.
pub(super) async fn write(to: &mut (impl AsyncWrite + Unpin), value: &impl Serialize) -> io::Result<()> {
    to.write_all(&build(value)?).await
}

/// `value` as one line, with its end.
///
/// # Errors
/// It has no form in JSON.
pub(super) fn build(value: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn check(input: &[u8], max_bytes: usize, expected: &[&str], ends_well: bool) {
        let mut lines = Lines::new(input, max_bytes);
        for line in expected {
            assert_eq!(lines.next().await.unwrap().as_deref(), Some(line.as_bytes()));
        }
        assert_eq!(lines.next().await.is_ok_and(|end| end.is_none()), ends_well);
    }

    #[tokio::test]
    async fn lines_are_split_and_bounded() {
        check(b"", 4, &[], true).await;
        check(b"ab\n\nabcd\n", 4, &["ab", "", "abcd"], true).await;
        check(b"ab\nrest", 4, &["ab"], true).await;
        check(b"ab\nabcde\n", 4, &["ab"], false).await;
        check(b"ab\nabcdefgh", 4, &["ab"], false).await;
    }

    #[tokio::test]
    async fn an_endless_line_takes_bounded_memory() {
        let mut lines = Lines::new(tokio::io::repeat(b'x'), 1 << 20);
        assert_eq!(lines.next().await.unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert!(lines.buffer.capacity() < 4 << 20);
    }
}
