//! Reads pieces of a file, each once, within a budget. A library may have hundreds of megabytes, with a few bytes of
//! names here and there, and its tables may be wrong.

use std::borrow::Cow;
use std::ffi::{CStr, OsString};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;

use super::unfit::Unfit;

/// A source that can be read at any offset.
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

/// Pieces begin at multiples of this size, and have this size unless more bytes are known to be needed. It holds a
/// file's header and all that follows it. Copying more unneeded bytes takes longer than another read.
const PAGE: usize = 1024;
const PAGE_BYTES: u64 = PAGE as u64;
/// The most pages that one read covers, to connect needed parts.
const MAX_AHEAD_PAGES: u64 = 7;
/// Enough room for most files.
const USUAL_PAGES: usize = 16;
/// The most bytes that one file may cost. Real files need some ten kilobytes, the largest a few hundred.
const BUDGET: usize = 16 << 20;
/// Most bytes of one name or path.
const MAX_STRING: usize = 1 << 20;
/// The most room that is kept for the next file.
const MAX_KEPT: usize = 256 << 10;

/// A buffer for pieces, reused from file to file.
#[derive(Debug, Default)]
pub struct Scratch {
    /// The buffer; never shorter than the part in use.
    bytes: Vec<u8>,
    used: usize,
    /// The pieces of the file in it, ascending.
    pieces: Vec<Piece>,
}

#[derive(Debug, Clone, Copy)]
struct Piece {
    /// Its offset in the file.
    begin: u64,
    /// The covered bytes of the file, including those beyond its end.
    covers: u64,
    at: usize,
    length: usize,
}

impl Piece {
    /// An empty piece.
    const NONE: Self = Self { begin: 0, covers: 0, at: 0, length: 0 };

    fn has(&self, offset: u64) -> bool {
        offset.wrapping_sub(self.begin) < self.covers
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
    /// The piece of the last access: the next one is mostly in the same piece.
    last: Piece,
    /// The remaining budget, for reading and for handing out.
    left: usize,
}

impl<'a, R: ReadAt + ?Sized> Pages<'a, R> {
    /// Clears `scratch` and starts on a file.
    pub(super) fn new(source: &'a R, scratch: &'a mut Scratch) -> Self {
        scratch.clear();
        Self { source, scratch, last: Piece::NONE, left: BUDGET }
    }

    /// Announces accesses near both ends of `range`, in bytes. True: the range is read now, in one operation, or is
    /// there; false: it is too long for that.
    ///
    /// # Errors
    /// It cannot be read, or the budget is used up.
    pub(super) fn expect(&mut self, range: Range<u64>) -> Result<bool, Unfit> {
        let mut begin = range.start - range.start % PAGE_BYTES;
        let pieces = &self.scratch.pieces;
        let place = pieces.partition_point(|piece| piece.begin <= begin);
        if let Some(before) = place.checked_sub(1).and_then(|at| pieces.get(at)) {
            begin = begin.max(before.begin.saturating_add(before.covers));
        }
        let pages = range.end.saturating_sub(begin).div_ceil(PAGE_BYTES);
        match pages {
            0 => Ok(true),
            1..=MAX_AHEAD_PAGES => self.read(begin, pages, place).map(|()| true),
            _ => Ok(false),
        }
    }

    /// Exactly `N` bytes.
    pub(super) fn record<const N: usize>(&mut self, offset: u64) -> Result<[u8; N], Unfit> {
        if let Some(record) = self.from(offset)?.first_chunk() {
            let record = *record;
            self.spend(N)?;
            return Ok(record);
        }
        // The record continues in the next piece.
        let mut record = [0; N];
        record.copy_from_slice(&self.bytes(offset, N as u64)?);
        Ok(record)
    }

    /// Exactly this many bytes; borrowed if they are in one piece.
    pub(super) fn bytes(&mut self, offset: u64, length: u64) -> Result<Cow<'_, [u8]>, Unfit> {
        let length = usize::try_from(length).map_err(|_| Unfit::TooLarge)?;
        self.spend(length)?;
        self.expect(offset..offset.saturating_add(length as u64))?;
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

    /// A text up to its NUL, which must be within `limit` bytes if given.
    pub(super) fn string(&mut self, offset: u64, limit: Option<u64>) -> Result<OsString, Unfit> {
        let mut found = Vec::new();
        self.append_string(offset, limit, &mut found)?;
        Ok(OsString::from_vec(found))
    }

    /// As [`Pages::string`], appended to `onto`.
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
            // The standard library's search is fast.
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

    /// The bytes from an offset to the end of its piece; empty beyond the end of the file.
    #[inline]
    fn from(&mut self, offset: u64) -> Result<&[u8], Unfit> {
        if !self.last.has(offset) {
            self.turn_to(offset)?;
        }
        let Piece { begin, at, length, .. } = self.last;
        let inside = usize::try_from(offset - begin).unwrap_or(usize::MAX);
        let bytes = self.scratch.bytes.get(at..at + length);
        Ok(bytes.and_then(|bytes| bytes.get(inside..)).unwrap_or_default())
    }

    /// Finds or reads the piece with an offset.
    fn turn_to(&mut self, offset: u64) -> Result<(), Unfit> {
        let pieces = &self.scratch.pieces;
        let behind = pieces.partition_point(|piece| piece.begin <= offset);
        match behind.checked_sub(1).and_then(|at| pieces.get(at)).filter(|piece| piece.has(offset)) {
            Some(piece) => self.last = *piece,
            None => {
                let begin = offset - offset % PAGE_BYTES;
                self.read(begin, 1, behind)?;
            }
        }
        Ok(())
    }

    /// Reads a piece, and inserts it at index `place`.
    fn read(&mut self, begin: u64, pages: u64, place: usize) -> Result<(), Unfit> {
        let room = self.scratch.pieces.get(place).map_or(u64::MAX, |next| next.begin - begin);
        let covers = (pages * PAGE_BYTES).min(room);
        let most = usize::try_from(covers).map_err(|_| Unfit::TooLarge)?;
        if most == 0 {
            return Ok(());
        }
        self.spend(most)?;
        let Scratch { bytes, used, pieces } = &mut *self.scratch;
        let at = *used;
        if bytes.is_empty() {
            // A new allocation is zeroed for free.
            *bytes = vec![0; most.max(USUAL_PAGES * PAGE)];
        } else if bytes.len() < at + most {
            bytes.resize((at + most).max(2 * bytes.len()), 0);
        }
        let length = fill(self.source, &mut bytes[at..at + most], begin)?;
        *used += length;
        self.last = Piece { begin, covers, at, length };
        pieces.insert(place, self.last);
        Ok(())
    }

    fn spend(&mut self, bytes: usize) -> Result<(), Unfit> {
        self.left = self.left.checked_sub(bytes).ok_or(Unfit::TooLarge)?;
        Ok(())
    }
}

/// Fills the buffer. Returns less than its length only at the end of the file.
fn fill(source: &(impl ReadAt + ?Sized), buffer: &mut [u8], offset: u64) -> Result<usize, Unfit> {
    let mut filled = 0;
    while filled < buffer.len() {
        match source.read_at(&mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            // Offsets beyond the system's range are beyond the end of any file.
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

    /// Records the length of each read.
    struct Asked<'a>(&'a [u8], std::cell::RefCell<Vec<usize>>);

    impl ReadAt for Asked<'_> {
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
            self.1.borrow_mut().push(buffer.len());
            self.0.read_at(buffer, offset)
        }
    }

    #[test]
    fn an_announced_range_is_read_at_once_if_it_is_short() {
        let bytes: Vec<u8> = (0..=u8::MAX).cycle().skip(7).take(100 * PAGE).collect();
        let file = Asked(&bytes, std::cell::RefCell::default());
        let mut scratch = Scratch::default();
        let mut pages = Pages::new(&file, &mut scratch);
        let mut check = |range: Range<usize>, is_read, asked: &[usize]| {
            let (begin, end) = (range.start as u64, range.end as u64);
            assert_eq!(pages.expect(begin..end), Ok(is_read), "{range:?}");
            if is_read {
                assert_eq!(*pages.bytes(begin, end - begin).unwrap(), bytes[range.clone()], "{range:?}");
            }
            assert_eq!(file.1.take(), asked, "{range:?}");
        };
        check(10..20, true, &[PAGE]);
        check(100..3 * PAGE, true, &[2 * PAGE]);
        check(0..3 * PAGE, true, &[]);
        check(5 * PAGE - 1..5 * PAGE + 1, true, &[2 * PAGE]);
        // Only up to the part that is there already.
        check(3 * PAGE..5 * PAGE, true, &[PAGE]);
        check(10 * PAGE..90 * PAGE, false, &[]);
        for (begin, end, is_read) in
            [(u64::MAX - 5, u64::MAX, true), (u64::MAX - 5, 0, true), (0, u64::MAX, false)]
        {
            assert_eq!(pages.expect(begin..end), Ok(is_read));
        }
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
