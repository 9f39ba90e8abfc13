//! Reads the entries of a tar archive, one after the other, as its bytes arrive.

use std::fs::File;
use std::io::{self, BufRead, Write};

use gantry_types::error::{Failure, Kind};

use super::header::{Announced, BLOCK, Header, parse_header};
use super::name::parse_parts;
use super::{INCOMING_PREFIX, damaged, refused};

/// Most bytes of an extension, which is a name.
const MAX_EXTENSION_BYTES: usize = 16 * 1024;

/// An entry that may be unpacked.
#[derive(Debug)]
pub(super) struct Entry {
    /// A relative name that has been checked.
    pub(super) name: Vec<u8>,
    pub(super) executable: bool,
    /// Seconds since 1970.
    pub(super) modified: u64,
    pub(super) content: EntryContent,
}

/// Where the content of a file comes from.
#[derive(Debug)]
pub(super) enum EntryContent {
    /// The next bytes of the archive, this many.
    Here(u64),
    /// The earlier file of this name.
    Copy(Vec<u8>),
}

/// An archive that is being read.
pub(super) struct Archive<R> {
    inner: R,
    /// Bytes that may still arrive.
    left: u64,
}

/// Extensions that precede an entry.
#[derive(Default)]
struct Extensions {
    name: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
}

impl<R: BufRead> Archive<R> {
    /// An archive of at most that many bytes.
    pub(super) fn new(inner: R, bytes: u64) -> Self {
        Self { inner, left: bytes }
    }

    /// The next entry; `None` at the end, after which no bytes may follow. Call it only after the content of the last
    /// entry was copied.
    pub(super) fn next_entry(&mut self) -> Result<Option<Entry>, Failure> {
        let mut extensions = Extensions::default();
        loop {
            let block = self.read_block()?;
            if block == [0; BLOCK] {
                if extensions.name.is_some() || extensions.link.is_some() {
                    return Err(damaged("it ends between an extension and its entry"));
                }
                self.read_end()?;
                return Ok(None);
            }
            let header = parse_header(&block).map_err(damaged)?;
            if header.size > self.left {
                return Err(refused(
                    &header.name,
                    "is larger than the rest of the archive was announced to be",
                ));
            }
            let twice = match header.announced {
                Announced::LongName => extensions.name.replace(self.read_text(&header)?).is_some(),
                Announced::LongLink => extensions.link.replace(self.read_text(&header)?).is_some(),
                _ => return build_entry(header, extensions).map(Some),
            };
            if twice {
                return Err(refused(&header.name, "has an extension twice"));
            }
        }
    }

    /// Copies the content of the last entry.
    pub(super) fn copy(&mut self, size: u64, to: &mut File) -> Result<(), CopyError> {
        let mut rest = size;
        while rest > 0 {
            let here = self.look().map_err(CopyError::Read)?;
            if here.is_empty() {
                return Err(CopyError::Read(damaged("it ends too early")));
            }
            let length = usize::try_from(rest).unwrap_or(usize::MAX).min(here.len());
            to.write_all(&here[..length]).map_err(CopyError::Write)?;
            self.take(length).map_err(CopyError::Read)?;
            rest -= length as u64;
        }
        self.read_padding(size).map_err(CopyError::Read)
    }

    fn read_text(&mut self, header: &Header) -> Result<Vec<u8>, Failure> {
        let length = usize::try_from(header.size).ok().filter(|length| *length <= MAX_EXTENSION_BYTES);
        let length = length.ok_or_else(|| refused(&header.name, "has an extension that is too long"))?;
        let mut bytes = vec![0; length];
        self.fill(&mut bytes)?;
        self.read_padding(header.size)?;
        // The writer adds a NUL.
        bytes.pop_if(|last| *last == 0);
        Ok(bytes)
    }

    /// Reads the padding of a content's last block.
    fn read_padding(&mut self, size: u64) -> Result<(), Failure> {
        let used = usize::try_from(size % BLOCK as u64).unwrap_or(0);
        let padding = (BLOCK - used) % BLOCK;
        self.fill(&mut [0; BLOCK][..padding])
    }

    fn read_block(&mut self) -> Result<[u8; BLOCK], Failure> {
        let mut block = [0; BLOCK];
        self.fill(&mut block)?;
        Ok(block)
    }

    /// After the first block of zeros: reads one more, and then nothing but zeros to the end.
    fn read_end(&mut self) -> Result<(), Failure> {
        if self.read_block()? != [0; BLOCK] {
            return Err(damaged("there is data after its end"));
        }
        loop {
            let here = self.look()?;
            if here.is_empty() {
                return Ok(());
            }
            if here.iter().any(|byte| *byte != 0) {
                return Err(damaged("there is data after its end"));
            }
            let length = here.len();
            self.take(length)?;
        }
    }

    fn fill(&mut self, mut buffer: &mut [u8]) -> Result<(), Failure> {
        while !buffer.is_empty() {
            let here = self.look()?;
            if here.is_empty() {
                return Err(damaged("it ends too early"));
            }
            let length = here.len().min(buffer.len());
            buffer[..length].copy_from_slice(&here[..length]);
            self.take(length)?;
            buffer = &mut buffer[length..];
        }
        Ok(())
    }

    /// The next bytes; none at the end.
    fn look(&mut self) -> Result<&[u8], Failure> {
        // What a loop borrows cannot leave it. So the reader is asked again, and has the bytes ready.
        while let Err(error) = self.inner.fill_buf() {
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(read_failure(&error));
            }
        }
        self.inner.fill_buf().map_err(|error| read_failure(&error))
    }

    /// Counts bytes that [`Archive::look`] has returned as read.
    fn take(&mut self, bytes: usize) -> Result<(), Failure> {
        self.inner.consume(bytes);
        let left = self.left.checked_sub(bytes as u64);
        self.left = left.ok_or_else(|| damaged("it has more bytes than were announced"))?;
        Ok(())
    }
}

/// Why a content was not copied.
#[derive(Debug)]
pub(super) enum CopyError {
    /// The archive caused it.
    Read(Failure),
    /// The file caused it.
    Write(io::Error),
}

/// A decompression error is a fault of the archive; any other error is a fault of its transport.
fn read_failure(error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof | io::ErrorKind::Other => {
            damaged(format_args!("it cannot be decompressed: {error}"))
        }
        io::ErrorKind::ConnectionAborted => Failure::new(Kind::Gone, format!("unpack an archive: {error}")),
        _ => Failure::new(Kind::Lost, format!("unpack an archive: {error}")),
    }
}

/// Checks the fields of an entry.
fn build_entry(header: Header, extensions: Extensions) -> Result<Entry, Failure> {
    let Header { announced, executable, modified, size, .. } = header;
    let name = extensions.name.unwrap_or(header.name);
    let parts = parse_parts(&name).map_err(|why| refused(&name, format_args!("the name {why}")))?;
    if parts.first().is_some_and(|first| first.as_encoded_bytes().starts_with(INCOMING_PREFIX.as_bytes())) {
        return Err(refused(&name, "such names are gantry's own"));
    }
    let content = match announced {
        Announced::File if extensions.link.is_some() => {
            return Err(refused(&name, "has a link's target and is not a link"));
        }
        Announced::File => EntryContent::Here(size),
        Announced::Again if size > 0 => return Err(refused(&name, "has content and is not a file")),
        Announced::Again => {
            let of = extensions.link.unwrap_or(header.link);
            parse_parts(&of)
                .map_err(|why| refused(&name, format_args!("is a hard link to a name that {why}")))?;
            EntryContent::Copy(of)
        }
        Announced::Unwanted(why) => return Err(refused(&name, why)),
        Announced::LongName | Announced::LongLink => {
            return Err(damaged("an extension takes the place of an entry"));
        }
    };
    Ok(Entry { name, executable, modified, content })
}
