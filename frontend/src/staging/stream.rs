//! The archive of what nodes lack: a tar stream that is made from the files while it is sent, and never exists as a whole.
//!
//! A thread reads the files into a pipe of a few pieces; who sends takes them from its other end. Every file is looked at before and after it is
//! read: one that is not what the nodes were asked for ends the stream with an error, and then no node has anything of it.

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
/// What ends an archive: two empty blocks.
const END_BYTES: u64 = 2 * BLOCK_BYTES;
/// One piece in the pipe.
const PIECE_BYTES: usize = 128 * 1024;
/// Pieces in the pipe.
const PIECES: usize = 4;

/// What is to be sent.
#[derive(Debug)]
pub(crate) struct Archive {
    members: Vec<Member>,
    bytes: u64,
    copied_bytes: u64,
}

#[derive(Debug)]
struct Member {
    want: Want,
    /// The member before it that has its content.
    original: Option<u32>,
}

impl Archive {
    /// An archive of these files, each under its place's directory and its name. Of several with one content, only the first is in it as a file;
    /// the others are hard links to it, which nodes make files of their own.
    ///
    /// # Errors
    /// A name that no archive can have.
    pub(crate) fn new(members: Vec<Want>) -> Result<Self> {
        let members = find_originals(members)?;
        let (mut bytes, mut copied_bytes) = (END_BYTES, 0);
        for member in &members {
            let source = &member.want.source;
            // It is made again when it is sent: all headers together would take more memory than all the rest.
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

    /// How many bytes nodes copy, because they are in it once and wanted under several names.
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

    /// What a try says of how small it can be made. Blocks.
    pub(crate) fn sample(&self) -> squeeze::Sample {
        let files = self.members.iter().filter(|member| member.original.is_none());
        let files = files.map(|member| (&*member.want.source.path, member.want.source.facts.state.size));
        squeeze::sample(&files.collect::<Vec<_>>())
    }

    /// Starts a thread that makes it, and tells `progress` how many bytes of it are made. The thread ends when the reader is dropped. Must be
    /// called within a tokio runtime.
    pub(crate) fn start(self, packed: bool, progress: impl FnMut(u64) + Send + 'static) -> ArchiveReader {
        let (to, pieces) = mpsc::channel(PIECES);
        tokio::task::spawn_blocking(move || {
            let pipe = Pipe { to: to.clone(), piece: Vec::with_capacity(PIECE_BYTES) };
            let last = match self.write(pipe, packed, progress) {
                Ok(()) => Piece::End,
                Err(error) => Piece::Failed(error),
            };
            // Nobody may be there to read it any more.
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

/// Sees which members have the content of one before them. Where there is none, nothing is saved.
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
        // Reading it was enough to know it, and its state says that it is the same.
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
    // A change within a clock tick leaves no other trace.
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

/// Owner, group and special bits are nobody's business elsewhere. The time is: Python compares it with what it has compiled.
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
    // Both put a header for a long name before it where one is needed; the second trusts that as many bytes follow as the header says.
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

/// Where something is below a session's root.
fn build_path(place: Place, name: &OsStr) -> PathBuf {
    match place {
        Place::Bin => Path::new(BIN_DIR).join(name),
        Place::Lib => Path::new(LIB_DIR).join(name),
        Place::Loader => Path::new(LOADER_DIR).join(name),
        Place::Root => PathBuf::from(name),
    }
}

/// Tells how many bytes went through.
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
    /// All is there. A thread that panics does not say so.
    End,
    Failed(Error),
}

/// The end of the pipe that the thread writes to. It waits while the pipe is full.
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

/// The end of the pipe that is read, with what there is to know afterwards.
#[derive(Debug)]
pub(crate) struct ArchiveReader {
    pieces: mpsc::Receiver<Piece>,
    piece: Vec<u8>,
    at: usize,
    sent: Arc<Mutex<Sent>>,
    over: bool,
}

/// What became of an archive.
#[derive(Debug, Default)]
pub(crate) struct Sent {
    /// Bytes that were read, compressed if they were.
    pub(crate) bytes: u64,
    /// Why it could not be made.
    pub(crate) failure: Option<Error>,
}

impl ArchiveReader {
    /// What became of it, for when the reader is gone.
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
