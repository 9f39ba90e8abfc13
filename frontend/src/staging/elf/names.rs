//! Names of a file, in one block of text.

use std::ops::Range;

use super::pages::{Pages, ReadAt};
use super::unfit::Unfit;

/// A name, as a range in the file's block of names; [`Dynamic::text`](super::Dynamic::text) returns it. A program and
/// its libraries have thousands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Text {
    begin: u32,
    end: u32,
}

impl Text {
    pub(super) fn new(range: Range<usize>) -> Option<Self> {
        Some(Self { begin: u32::try_from(range.start).ok()?, end: u32::try_from(range.end).ok()? })
    }

    pub(super) fn range(self) -> Range<usize> {
        // The values came from `usize`.
        usize::try_from(self.begin).unwrap_or(usize::MAX)..usize::try_from(self.end).unwrap_or(usize::MAX)
    }
}

/// Names by their offset in the string table.
#[derive(Debug)]
pub(super) struct Names<'p, 'a, R: ?Sized> {
    pub(super) pages: &'p mut Pages<'a, R>,
    pub(super) strings: u64,
    pub(super) texts: Vec<u8>,
}

impl<R: ReadAt + ?Sized> Names<'_, '_, R> {
    /// Reads a name and adds it to the block.
    pub(super) fn keep(&mut self, offset: u64) -> Result<Text, Unfit> {
        let at = self.strings.checked_add(offset).ok_or(Unfit::Broken("string"))?;
        let begin = self.texts.len();
        self.pages.append_string(at, None, &mut self.texts)?;
        Text::new(begin..self.texts.len()).ok_or(Unfit::TooLarge)
    }
}
