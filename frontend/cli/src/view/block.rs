//! A few lines below all other output of a terminal. Output makes them move.
//!
//! The cursor stays where the next output goes, above the block. To hide the block, clear the screen below the
//! cursor. So the position of the cursor need not be known. Echoed keys, a new window size or a shell's prompt spoil
//! one drawing at most, and no output. The block is shown only when the output is at the beginning of a line. An open
//! line stays as its writer made it, even if it fills the terminal's last column.

use super::page::Line;

/// Clear from the cursor to the end of the screen.
const CLEAR_BELOW: &[u8] = b"\x1b[J";
/// One line down in the same column; at the bottom the screen scrolls.
const DOWN: &[u8] = b"\x1bD";
/// Save the cursor and its colours; reset the colours; cut long lines instead of wrapping them.
const BEGIN: &[u8] = b"\x1b7\x1b[m\x1b[?7l";
/// The reverse of it.
const END: &[u8] = b"\x1b[?7h\x1b8";

/// The block, and the state of the terminal that it needs.
#[derive(Debug)]
pub(super) struct Block {
    lines: Vec<Line>,
    shown: bool,
    /// The last output ended its line.
    line_start: bool,
}

impl Default for Block {
    fn default() -> Self {
        Self { lines: Vec::new(), shown: false, line_start: true }
    }
}

impl Block {
    /// Puts foreign output onto the page unchanged.
    pub(super) fn pass(&mut self, page: &mut Vec<u8>, bytes: &[u8]) {
        self.hide(page);
        page.extend_from_slice(bytes);
        if let Some(last) = bytes.last() {
            self.line_start = *last == b'\n';
        }
    }

    /// Puts whole lines of gantry onto the page, never into an open line of foreign output.
    pub(super) fn add_lines(&mut self, page: &mut Vec<u8>, bytes: &[u8]) {
        self.hide(page);
        if !self.line_start && !bytes.is_empty() {
            page.push(b'\n');
        }
        self.pass(page, bytes);
    }

    /// Replaces the lines.
    pub(super) fn change(&mut self, page: &mut Vec<u8>, lines: Vec<Line>) {
        if lines != self.lines {
            self.hide(page);
            self.lines = lines;
        }
    }

    /// Hides the block if it is on the screen.
    pub(super) fn hide(&mut self, page: &mut Vec<u8>) {
        if std::mem::take(&mut self.shown) {
            page.extend_from_slice(CLEAR_BELOW);
        }
    }

    /// Shows the block on a screen of `rows` lines, if it fits and is not shown yet.
    pub(super) fn show(&mut self, page: &mut Vec<u8>, rows: usize) {
        let count = self.lines.len().min(rows.saturating_sub(1));
        if self.shown || !self.line_start || count == 0 {
            return;
        }
        // Make room first: scrolling while the cursor is saved would restore it to the wrong line.
        (0..count).for_each(|_| page.extend_from_slice(DOWN));
        page.extend_from_slice(format!("\x1b[{count}A").as_bytes());
        page.extend_from_slice(BEGIN);
        for line in &self.lines[..count] {
            page.extend_from_slice(b"\r\n");
            page.extend_from_slice(line.as_bytes());
        }
        page.extend_from_slice(END);
        self.shown = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ab() -> Vec<Line> {
        ["a", "b"].map(|line| Line::cut(line, 9)).to_vec()
    }

    const AB: &str = "\x1bD\x1bD\x1b[2A\x1b7\x1b[m\x1b[?7l\r\na\r\nb\x1b[?7h\x1b8";

    /// Applies `steps` to a block of two lines, and compares the output of the last step.
    fn check(steps: &[fn(&mut Block, &mut Vec<u8>)], expected: &str) {
        let mut block = Block::default();
        block.change(&mut Vec::new(), ab());
        let mut page = Vec::new();
        for step in steps {
            page.clear();
            step(&mut block, &mut page);
        }
        assert_eq!(String::from_utf8(page).unwrap(), expected);
    }

    #[test]
    fn it_makes_room_for_output_and_comes_back_at_the_end_of_a_line() {
        let show: fn(&mut Block, &mut Vec<u8>) = |block, page| block.show(page, 24);
        check(&[show], AB);
        check(&[show, show], "");
        check(&[show, |block, page| block.pass(page, b"x\n")], "\x1b[Jx\n");
        check(&[show, |block, page| block.pass(page, b"x\n"), show], AB);
        check(&[show, |block, page| block.pass(page, b"x"), show], "");
        check(&[|block, page| block.pass(page, b"x"), |block, page| block.add_lines(page, b"y\n")], "\ny\n");
        check(&[|block, page| block.pass(page, b"x"), |block, page| block.add_lines(page, b"y\n"), show], AB);
        check(&[show, |block, page| block.hide(page)], "\x1b[J");
        check(&[show, |block, page| block.change(page, ab())], "");
        check(&[show, |block, page| block.change(page, Vec::new()), show], "");
    }

    #[test]
    fn it_leaves_a_line_of_a_low_terminal_free() {
        check(&[|block, page| block.show(page, 2)], "\x1bD\x1b[1A\x1b7\x1b[m\x1b[?7l\r\na\x1b[?7h\x1b8");
        check(&[|block, page| block.show(page, 1)], "");
    }
}
