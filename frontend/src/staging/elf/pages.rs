//! Reads pieces of a file, page by page, each once, within a budget: a library may be hundreds of megabytes, its names a few bytes here
//! and there, and what it says of itself may be a lie.

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

const PAGE: usize = 4096;
/// Most bytes that one file may cost. Real files need some ten kilobytes, the largest a few hundred.
const BUDGET: usize = 16 << 20;
/// Most bytes of one name or path.
const MAX_STRING: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct Pages<'a, R: ?Sized> {
    source: &'a R,
    /// Pages by their number, ascending.
    pages: Vec<(u64, Vec<u8>)>,
    /// Where the page is that was asked for last: the next question is mostly about the same one.
    last: usize,
    /// What may still be read, or handed out.
    left: usize,
}

impl<'a, R: ReadAt + ?Sized> Pages<'a, R> {
    pub(super) fn new(source: &'a R) -> Self {
        Self { source, pages: Vec::new(), last: 0, left: BUDGET }
    }

    /// Exactly `N` bytes.
    pub(super) fn record<const N: usize>(&mut self, offset: u64) -> Result<[u8; N], Unfit> {
        if let Some(record) = self.from(offset)?.first_chunk() {
            let record = *record;
            self.spend(N)?;
            return Ok(record);
        }
        // It goes on in the next page.
        let mut record = [0; N];
        record.copy_from_slice(&self.bytes(offset, N as u64)?);
        Ok(record)
    }

    /// Exactly so many bytes.
    pub(super) fn bytes(&mut self, offset: u64, length: u64) -> Result<Vec<u8>, Unfit> {
        let length = usize::try_from(length).map_err(|_| Unfit::TooLarge)?;
        self.spend(length)?;
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
        Ok(found)
    }

    /// A text up to its NUL, which has to be within `limit` bytes if that is given.
    pub(super) fn string(&mut self, offset: u64, limit: Option<u64>) -> Result<OsString, Unfit> {
        let limit = limit.and_then(|it| usize::try_from(it).ok()).unwrap_or(MAX_STRING).min(MAX_STRING);
        let mut found = Vec::new();
        while found.len() < limit {
            let at = offset.checked_add(found.len() as u64).ok_or(Unfit::Broken("string"))?;
            let piece = self.from(at)?;
            let piece = &piece[..piece.len().min(limit - found.len())];
            if piece.is_empty() {
                break;
            }
            // The standard library's search is the fast one.
            let end = CStr::from_bytes_until_nul(piece).ok().map(CStr::count_bytes);
            found.extend_from_slice(&piece[..end.unwrap_or(piece.len())]);
            if end.is_some() {
                self.spend(found.len())?;
                return Ok(OsString::from_vec(found));
            }
        }
        Err(Unfit::Broken("string"))
    }

    /// What is in the file from there to the end of its page; empty behind the end.
    fn from(&mut self, offset: u64) -> Result<&[u8], Unfit> {
        let number = offset / PAGE as u64;
        if self.pages.get(self.last).is_none_or(|page| page.0 != number) {
            self.last = match self.pages.binary_search_by_key(&number, |page| page.0) {
                Ok(at) => at,
                Err(at) => {
                    self.spend(PAGE)?;
                    let page = read_page(self.source, number * PAGE as u64)?;
                    self.pages.insert(at, (number, page));
                    at
                }
            };
        }
        // The remainder is less than a page.
        let inside = usize::try_from(offset % PAGE as u64).unwrap_or(0);
        Ok(self.pages.get(self.last).and_then(|(_, page)| page.get(inside..)).unwrap_or_default())
    }

    fn spend(&mut self, bytes: usize) -> Result<(), Unfit> {
        self.left = self.left.checked_sub(bytes).ok_or(Unfit::TooLarge)?;
        Ok(())
    }
}

fn read_page(source: &(impl ReadAt + ?Sized), offset: u64) -> Result<Vec<u8>, Unfit> {
    let mut page = vec![0; PAGE];
    let mut filled = 0;
    while filled < PAGE {
        match source.read_at(&mut page[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            // Offsets past what the system can count are behind the end of any file.
            Err(e) if e.kind() == io::ErrorKind::InvalidInput => break,
            Err(e) => return Err(Unfit::Read(e.to_string())),
        }
    }
    page.truncate(filled);
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cross_pages_and_end_with_the_file() {
        let mut text = vec![b'a'; PAGE + 10];
        text.push(0);
        let mut pages = Pages::new(text.as_slice());
        assert_eq!(pages.bytes(PAGE as u64 - 2, 4).unwrap(), b"aaaa");
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
        let mut pages = Pages::new(text.as_slice());
        let told = (0..100).find_map(|_| pages.string(0, None).err());
        assert_eq!(told, Some(Unfit::TooLarge));
    }
}
