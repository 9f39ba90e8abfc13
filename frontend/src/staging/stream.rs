//! The archive for the nodes: a tar stream that is built from the files while it is sent, and never exists as a
//! whole.
//!
//! A thread reads the files into a short queue; the sender takes the pieces from it. Every file is checked before and
//! after it is read. A file that differs from the nodes' request ends the stream with an error, and then no node has
//! anything of it.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};

use gantry_shared::file_state::FileState;
use gantry_shared::storage::LOADER_DIR;
use gantry_shared::wire::staging::{Content, Mark, Place};
use gantry_types::session_dirs::{BIN_DIR, LIB_DIR};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::mpsc;

use super::content::open_regular;
use super::squeeze;
use super::want::Want;
use crate::error::{Error, Result};
use crate::lock::lock;

/// tar counts in blocks of this.
const BLOCK_BYTES: u64 = 512;
/// The end of an archive: two empty blocks.
const END_BYTES: u64 = 2 * BLOCK_BYTES;
/// The size of a piece in the queue.
const PIECE_BYTES: usize = 128 * 1024;
/// The number of pieces in the queue.
const PIECES: usize = 4;

/// The archive to send.
#[derive(Debug)]
pub(crate) struct Archive {
    members: Vec<Member>,
    bytes: u64,
    copied_bytes: u64,
}

#[derive(Debug)]
struct Member {
    want: Want,
    /// The index of an earlier member with the same content.
    original: Option<u32>,
}

impl Archive {
    /// An archive of these files, each under its place's directory and its name. Of several files with one content,
    /// only the first is a file in it. The others are hard links to it, which nodes turn into files of their own.
    ///
    /// # Errors
    /// A name that is not possible in an archive.
    pub(crate) fn new(members: Vec<Want>) -> Result<Self> {
        let members = find_originals(members)?;
        let (mut bytes, mut copied_bytes) = (END_BYTES, 0);
        for member in &members {
            let source = &member.want.source;
            // The header is built again when it is sent: all headers together would take more memory than the rest.
            let header = build_header(member, &members)
                .map_err(|error| Error::io(format!("cannot pack {}", source.path.display()), error))?;
            let size = source.facts.state.size;
            bytes += header.len() as u64;
            match member.original {
                None => bytes += size.next_multiple_of(BLOCK_BYTES),
                Some(_) => copied_bytes += size,
            }
        }
        Ok(Self { members, bytes, copied_bytes })
    }

    /// How many bytes nodes copy, since one member is wanted under several names.
    pub(crate) fn copied_bytes(&self) -> u64 {
        self.copied_bytes
    }

    /// Its length, uncompressed.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many files are in it.
    pub(crate) fn files(&self) -> usize {
        self.members.len()
    }

    /// Compresses a sample of it. Blocks.
    pub(crate) fn sample(&self) -> squeeze::Sample {
        let files = self.members.iter().filter(|member| member.original.is_none());
        let files = files.map(|member| (&*member.want.source.path, member.want.source.facts.state.size));
        squeeze::sample(&files.collect::<Vec<_>>())
    }

    /// Starts a thread that builds it, and reports to `progress` how many bytes are built. The thread ends when the
    /// reader is dropped. Must be called within a tokio runtime.
    pub(crate) fn start(self, packed: bool, progress: impl FnMut(u64) + Send + 'static) -> ArchiveReader {
        let (to, pieces) = mpsc::channel(PIECES);
        tokio::task::spawn_blocking(move || {
            let pipe = Pipe { to: to.clone(), piece: Vec::with_capacity(PIECE_BYTES) };
            let last = match self.write(pipe, packed, progress) {
                Ok(()) => Piece::End,
                Err(error) => Piece::Failed(error),
            };
            // The reader may be gone.
            drop(to.blocking_send(last));
        });
        ArchiveReader { pieces, piece: Vec::new(), at: 0, sent: Arc::default(), over: false }
    }

    fn write(self, pipe: Pipe, packed: bool, progress: impl FnMut(u64)) -> Result<()> {
        let cannot = |error| Error::io("cannot make an archive", error);
        if !packed {
            let mut pipe = self.write_all(pipe, progress)?;
            return pipe.flush().map_err(cannot);
        }
        let encoder = squeeze::encoder(pipe).map_err(cannot)?;
        let mut pipe = self.write_all(encoder, progress)?.finish().map_err(cannot)?;
        pipe.flush().map_err(cannot)
    }

    fn write_all<W: Write>(self, to: W, progress: impl FnMut(u64)) -> Result<W> {
        let mut out = Counted { to, bytes: 0, progress };
        for member in &self.members {
            write_member(member, &self.members, &mut out).map_err(|error| {
                Error::io(format!("cannot send {}", member.want.source.path.display()), error)
            })?;
        }
        io::copy(&mut io::repeat(0).take(END_BYTES), &mut out)
            .map_err(|error| Error::io("cannot make an archive", error))?;
        Ok(out.to)
    }
}

/// Finds members with the content of an earlier one.
fn find_originals(wants: Vec<Want>) -> Result<Vec<Member>> {
    let mut first: HashMap<&Content, u32> = HashMap::new();
    let mut originals = Vec::with_capacity(wants.len());
    for (index, want) in wants.iter().enumerate() {
        let content = &want.source.facts.content;
        let index = u32::try_from(index).map_err(|_| Error::invalid("too many files for one manifest"))?;
        let known = if content.size == 0 { index } else { *first.entry(content).or_insert(index) };
        originals.push((known != index).then_some(known));
    }
    Ok(wants.into_iter().zip(originals).map(|(want, original)| Member { want, original }).collect())
}

fn write_member(member: &Member, all: &[Member], out: &mut impl Write) -> io::Result<()> {
    if member.original.is_some() {
        return out.write_all(&build_header(member, all)?);
    }
    let source = &member.want.source;
    let facts = &source.facts;
    let (size, mark) = (facts.content.size, &facts.content.mark);
    let check_unchanged = |file: &File| match FileState::of(&file.metadata()?) == facts.state {
        true => Ok(()),
        false => Err(changed()),
    };
    let mut file = open_regular(&source.path)?;
    check_unchanged(&file)?;
    out.write_all(&build_header(member, all)?)?;
    let mut hasher = match mark {
        Mark::Blake3(_) => Some(blake3::Hasher::new()),
        // The file's state shows that it is unchanged since its build id was read.
        Mark::BuildId(_) => None,
    };
    let most = usize::try_from(size).unwrap_or(usize::MAX).min(PIECE_BYTES);
    let mut buffer = vec![0; most];
    let mut left = size;
    while left > 0 {
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        let read = match file.read(&mut buffer[..most]) {
            Ok(0) => return Err(changed()),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if let Some(hasher) = &mut hasher {
            hasher.update(&buffer[..read]);
        }
        out.write_all(&buffer[..read])?;
        left -= read as u64;
    }
    check_unchanged(&file)?;
    // Only the hash reveals a change within one clock tick.
    if let (Some(hasher), Mark::Blake3(hash)) = (hasher, mark)
        && hasher.finalize().as_bytes() != hash
    {
        return Err(changed());
    }
    let padding = size.next_multiple_of(BLOCK_BYTES) - size;
    io::copy(&mut io::repeat(0).take(padding), out).map(drop)
}

fn changed() -> io::Error {
    io::Error::other("it changed while it was being sent")
}

/// The header leaves out owner, group and special bits, which have no meaning on other machines. It includes the
/// time: Python compares it with its compiled files.
fn build_header(member: &Member, all: &[Member]) -> io::Result<Vec<u8>> {
    let mut header = tar::Header::new_gnu();
    let want = &member.want;
    let facts = &want.source.facts;
    header.set_mode(if facts.executable { 0o700 } else { 0o600 });
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(facts.modified());
    let mut builder = tar::Builder::new(Vec::new());
    let path = build_path(want.place, &want.name);
    let original = member.original.and_then(|index| all.get(usize::try_from(index).ok()?));
    // Both functions insert a header for a long name if necessary. The second one assumes that exactly the announced
    // number of bytes follows.
    if let Some(Member { want: original, .. }) = original {
        header.set_entry_type(tar::EntryType::Link);
        header.set_size(0);
        builder.append_link(&mut header, path, build_path(original.place, &original.name))?;
    } else {
        header.set_entry_type(tar::EntryType::Regular);
        header.set_size(facts.state.size);
        builder.append_data(&mut header, path, io::empty())?;
    }
    Ok(builder.get_ref().clone())
}

/// The path of a file below a session's root.
fn build_path(place: Place, name: &OsStr) -> PathBuf {
    match place {
        Place::Bin => Path::new(BIN_DIR).join(name),
        Place::Lib => Path::new(LIB_DIR).join(name),
        Place::Loader => Path::new(LOADER_DIR).join(name),
        Place::Root => PathBuf::from(name),
    }
}

/// Counts the bytes that pass through.
struct Counted<W, F> {
    to: W,
    bytes: u64,
    progress: F,
}

impl<W: Write, F: FnMut(u64)> Write for Counted<W, F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.to.write(bytes)?;
        self.bytes += written as u64;
        (self.progress)(self.bytes);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

#[derive(Debug)]
enum Piece {
    Bytes(Vec<u8>),
    /// The stream is complete. A thread that panics does not send this.
    End,
    Failed(Error),
}

/// The write end of the queue. Writing waits while it is full.
struct Pipe {
    to: mpsc::Sender<Piece>,
    piece: Vec<u8>,
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let most = bytes.len().min(PIECE_BYTES - self.piece.len());
        self.piece.extend_from_slice(&bytes[..most]);
        if self.piece.len() == PIECE_BYTES {
            self.flush()?;
        }
        Ok(most)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.piece.is_empty() {
            return Ok(());
        }
        let piece = std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE_BYTES));
        self.to.blocking_send(Piece::Bytes(piece)).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

/// The read end of the queue, with the result afterwards.
#[derive(Debug)]
pub(crate) struct ArchiveReader {
    pieces: mpsc::Receiver<Piece>,
    piece: Vec<u8>,
    at: usize,
    sent: Arc<Mutex<Sent>>,
    over: bool,
}

/// The result of sending an archive.
#[derive(Debug, Default)]
pub(crate) struct Sent {
    /// Bytes that were read, after compression.
    pub(crate) bytes: u64,
    /// Why it could not be built.
    pub(crate) failure: Option<Error>,
}

impl ArchiveReader {
    /// The result, for after the reader is gone.
    pub(crate) fn watch(&self) -> Arc<Mutex<Sent>> {
        Arc::clone(&self.sent)
    }
}

impl AsyncRead for ArchiveReader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        onto: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.at == self.piece.len() {
            if self.over {
                return Poll::Ready(Ok(()));
            }
            match ready!(self.pieces.poll_recv(cx)) {
                Some(Piece::Bytes(piece)) => (self.piece, self.at) = (piece, 0),
                Some(Piece::End) => self.over = true,
                Some(Piece::Failed(error)) => {
                    let told = io::Error::other(error.to_string());
                    lock(&self.sent).failure = Some(error);
                    return Poll::Ready(Err(told));
                }
                None => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
            }
        }
        let most = onto.remaining().min(self.piece.len() - self.at);
        let end = self.at + most;
        onto.put_slice(&self.piece[self.at..end]);
        self.at = end;
        lock(&self.sent).bytes += most as u64;
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests;
