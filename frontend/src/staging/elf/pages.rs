//! Reads pieces of a file, each once, within a budget: a library may be hundreds of megabytes, its names a few bytes here
//! and there, and what it says of itself may be a lie.

use std::borrow::Cow;
use std::ffi::{CStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;

use super::Unfit;

/// Something that can be read at any place.
pub trait ReadAt {
    /// Reads up to a buffer's length; 0 at the end.
    ///
    /// # Errors
    /// As the system says.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
}

impl ReadAt for File {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(self, buffer, offset)
    }
}

impl ReadAt for [u8] {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let rest = usize::try_from(offset).ok().and_then(|at| self.get(at..)).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }
}

/// Pieces begin at multiples of this.
const PAGE: usize = 4096;
/// The first piece: a small library's names are in it with its header, so that one question gets most of it.
const HEAD_PAGES: u64 = 2;
/// Most bytes that one file may cost. Real files need some ten kilobytes, the largest a few hundred.
const BUDGET: usize = 16 << 20;
/// Most bytes of one name or path.
const MAX_STRING: usize = 1 << 20;
/// Room that is kept for the next file.
const MAX_KEPT: usize = 256 << 10;

/// Room for pieces of a file, which serves one file after the other.
#[derive(Debug, Default)]
pub struct Scratch {
    /// All that was ever read into it; never shorter than what is in use.
    bytes: Vec<u8>,
    used: usize,
    /// What of the file is in it, ascending.
    pieces: Vec<Piece>,
}

#[derive(Debug, Clone, Copy)]
struct Piece {
    /// In pages of the file.
    begin: u64,
    /// Also what is behind the end of the file.
    pages: u64,
    at: usize,
    length: usize,
}

impl Piece {
    fn has(&self, page: u64) -> bool {
        page.checked_sub(self.begin).is_some_and(|inside| inside < self.pages)
    }
}

impl Scratch {
    fn clear(&mut self) {
        if self.bytes.len() > MAX_KEPT {
            *self = Self::default();
        }
        self.used = 0;
        self.pieces.clear();
    }
}

#[derive(Debug)]
pub(super) struct Pages<'a, R: ?Sized> {
    source: &'a R,
    scratch: &'a mut Scratch,
    /// Which piece was asked for last: the next question is mostly about the same one.
    last: usize,
    /// What may still be read, or handed out.
    left: usize,
}

impl<'a, R: ReadAt + ?Sized> Pages<'a, R> {
    /// What is in `scratch` is forgotten.
    pub(super) fn new(source: &'a R, scratch: &'a mut Scratch) -> Self {
        scratch.clear();
        Self { source, scratch, last: 0, left: BUDGET }
    }

    /// Exactly `N` bytes.
    pub(super) fn record<const N: usize>(&mut self, offset: u64) -> Result<[u8; N], Unfit> {
        if let Some(record) = self.from(offset)?.first_chunk() {
            let record = *record;
            self.spend(N)?;
            return Ok(record);
        }
        // It goes on in the next piece.
        let mut record = [0; N];
        record.copy_from_slice(&self.bytes(offset, N as u64)?);
        Ok(record)
    }

    /// Exactly so many bytes; where they lie if they are in one piece.
    pub(super) fn bytes(&mut self, offset: u64, length: u64) -> Result<Cow<'_, [u8]>, Unfit> {
        let length = usize::try_from(length).map_err(|_| Unfit::TooLarge)?;
        self.spend(length)?;
        if self.from(offset)?.len() >= length {
            return Ok(Cow::Borrowed(self.from(offset)?.get(..length).unwrap_or_default()));
        }
        let mut found = Vec::with_capacity(length.min(PAGE));
        while found.len() < length {
            let at = offset.checked_add(found.len() as u64).ok_or(Unfit::TooShort)?;
            let piece = self.from(at)?;
            let piece = &piece[..piece.len().min(length - found.len())];
            if piece.is_empty() {
                return Err(Unfit::TooShort);
            }
            found.extend_from_slice(piece);
        }
        Ok(Cow::Owned(found))
    }

    /// A text up to its NUL, which has to be within `limit` bytes if that is given.
    pub(super) fn string(&mut self, offset: u64, limit: Option<u64>) -> Result<OsString, Unfit> {
        let mut found = Vec::new();
        self.append_string(offset, limit, &mut found)?;
        Ok(OsString::from_vec(found))
    }

    /// As [`Pages::string`], behind what is in `onto`.
    pub(super) fn append_string(
        &mut self,
        offset: u64,
        limit: Option<u64>,
        onto: &mut Vec<u8>,
    ) -> Result<(), Unfit> {
        let limit = limit.and_then(|it| usize::try_from(it).ok()).unwrap_or(MAX_STRING).min(MAX_STRING);
        let mut length = 0;
        while length < limit {
            let at = offset.checked_add(length as u64).ok_or(Unfit::Broken("string"))?;
            let piece = self.from(at)?;
            let piece = &piece[..piece.len().min(limit - length)];
            if piece.is_empty() {
                break;
            }
            // The standard library's search is the fast one.
            let end = CStr::from_bytes_until_nul(piece).ok().map(CStr::count_bytes);
            let text = &piece[..end.unwrap_or(piece.len())];
            onto.extend_from_slice(text);
            length += text.len();
            if end.is_some() {
                return self.spend(length);
            }
        }
        Err(Unfit::Broken("string"))
    }

    /// What is in the file from there to the end of its piece; empty behind the end.
    fn from(&mut self, offset: u64) -> Result<&[u8], Unfit> {
        let page = offset / PAGE as u64;
        if self.scratch.pieces.get(self.last).is_none_or(|piece| !piece.has(page)) {
            let behind = self.scratch.pieces.partition_point(|piece| piece.begin <= page);
            self.last = match behind.checked_sub(1).filter(|at| self.scratch.pieces[*at].has(page)) {
                Some(at) => at,
                None => {
                    self.read(page, behind)?;
                    behind
                }
            };
        }
        let Some(piece) = self.scratch.pieces.get(self.last) else { return Ok(&[]) };
        let inside = usize::try_from(offset - piece.begin * PAGE as u64).unwrap_or(usize::MAX);
        let bytes = self.scratch.bytes.get(piece.at..piece.at + piece.length);
        Ok(bytes.and_then(|bytes| bytes.get(inside..)).unwrap_or_default())
    }

    /// Reads a piece that begins with this page, before the piece at `place`.
    fn read(&mut self, page: u64, place: usize) -> Result<(), Unfit> {
        let pages = if page == 0 { HEAD_PAGES } else { 1 };
        let room = self.scratch.pieces.get(place).map_or(u64::MAX, |next| next.begin - page);
        let pages = pages.min(room);
        let most = usize::try_from(pages).unwrap_or(1) * PAGE;
        self.spend(most)?;
        let Scratch { bytes, used, pieces } = &mut *self.scratch;
        let at = *used;
        if bytes.len() < at + most {
            bytes.resize((at + most).max(16 * PAGE), 0);
        }
        let length = fill(self.source, &mut bytes[at..at + most], page * PAGE as u64)?;
        *used += length;
        pieces.insert(place, Piece { begin: page, pages, at, length });
        Ok(())
    }

    fn spend(&mut self, bytes: usize) -> Result<(), Unfit> {
        self.left = self.left.checked_sub(bytes).ok_or(Unfit::TooLarge)?;
        Ok(())
    }
}

/// How much of the buffer is filled: less only at the end of the file.
fn fill(source: &(impl ReadAt + ?Sized), buffer: &mut [u8], offset: u64) -> Result<usize, Unfit> {
    let mut filled = 0;
    while filled < buffer.len() {
        match source.read_at(&mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            // Offsets past what the system can count are behind the end of any file.
            Err(e) if e.kind() == io::ErrorKind::InvalidInput => break,
            Err(e) => return Err(Unfit::Read(e.to_string())),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cross_pages_and_end_with_the_file() {
        let mut text = vec![b'a'; PAGE + 10];
        text.push(0);
        let mut scratch = Scratch::default();
        let mut pages = Pages::new(text.as_slice(), &mut scratch);
        assert_eq!(*pages.bytes(PAGE as u64 - 2, 4).unwrap(), *b"aaaa");
        assert_eq!(*pages.bytes(2 * PAGE as u64, 0).unwrap(), *b"");
        assert_eq!(pages.string(PAGE as u64 - 1, None).unwrap().len(), 11);
        assert_eq!(pages.string(PAGE as u64 - 1, Some(5)), Err(Unfit::Broken("string")));
        assert_eq!(pages.bytes(PAGE as u64 + 10, 2), Err(Unfit::TooShort));
        assert_eq!(pages.bytes(u64::MAX, 2), Err(Unfit::TooShort));
        assert_eq!(pages.string(1 << 40, None), Err(Unfit::Broken("string")));
        assert_eq!(pages.record(1), Ok([b'a'; 8]));
        assert_eq!(pages.record(PAGE as u64 - 2), Ok([b'a'; 8]));
        assert_eq!(pages.record::<4>(PAGE as u64 + 8), Err(Unfit::TooShort));
        assert_eq!(pages.record::<4>(1 << 40), Err(Unfit::TooShort));
        assert_eq!(pages.bytes(0, u64::MAX), Err(Unfit::TooLarge));
    }

    #[test]
    fn a_file_that_says_the_same_again_and_again_comes_to_the_end_of_its_budget() {
        let mut text = vec![b'a'; MAX_STRING - 1];
        text.push(0);
        let mut scratch = Scratch::default();
        let mut pages = Pages::new(text.as_slice(), &mut scratch);
        let told = (0..100).find_map(|_| pages.string(0, None).err());
        assert_eq!(told, Some(Unfit::TooLarge));
    }
}
