//! Interprets terminal output, as far as the programs under test use it. Anything else appears on the screen as
//! `<?...>`.

/// A screen, and the lines that have scrolled out of it.
#[derive(Debug, Clone)]
pub struct Vt {
    columns: usize,
    rows: usize,
    /// All lines that ever were; the last `rows` of them are the screen.
    lines: Vec<Vec<char>>,
    /// The cursor's place on the screen.
    row: usize,
    column: usize,
    saved: (usize, usize),
    wraps: bool,
    /// The screen and the cursor before a program switched to the alternate screen.
    before: Option<(Vec<Vec<char>>, usize, usize)>,
    /// Bytes that are no whole letter or sequence yet.
    open: Vec<u8>,
}

impl Vt {
    /// An empty screen.
    #[must_use]
    pub fn new(columns: usize, rows: usize) -> Self {
        let lines = vec![Vec::new(); rows];
        Self {
            columns,
            rows,
            lines,
            row: 0,
            column: 0,
            saved: (0, 0),
            wraps: true,
            before: None,
            open: Vec::new(),
        }
    }

    /// Takes a program's output.
    pub fn take(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.open.push(*byte);
            let open = std::mem::take(&mut self.open);
            if !self.take_one(&open) {
                self.open = open;
            }
        }
    }

    /// All lines, without blanks and empty lines at their ends.
    #[must_use]
    pub fn text(&self) -> String {
        let lines =
            self.lines.iter().map(|line| line.iter().collect::<String>().trim_end().to_owned() + "\n");
        lines.collect::<String>().trim_end().to_owned()
    }

    /// Long lines are cut and new lines are empty; no line is wrapped again. The cursor stays in its line.
    pub fn resize(&mut self, columns: usize, rows: usize) {
        let at = self.lines.len() - self.rows + self.row;
        let below = self.lines.len() - 1 - at;
        // A lower screen first loses the lines below the cursor.
        self.lines.truncate(self.lines.len() - below.min(self.rows.saturating_sub(rows)));
        while self.lines.len() < rows {
            self.lines.push(Vec::new());
        }
        (self.columns, self.rows) = (columns, rows);
        self.row = (at + rows).saturating_sub(self.lines.len()).min(rows - 1);
        self.column = self.column.min(columns - 1);
    }

    /// Processes one character or sequence. False: it is incomplete.
    fn take_one(&mut self, open: &[u8]) -> bool {
        match open {
            [b'\r'] => self.column = 0,
            [b'\n'] => self.down(),
            [8] => self.column = self.column.saturating_sub(1),
            [7] => {}
            [0x1b] | [0x1b, b'['] => return false,
            [0x1b, b'7'] => self.saved = (self.row, self.column),
            [0x1b, b'8'] => (self.row, self.column) = self.saved,
            [0x1b, b'D'] => self.down(),
            [0x1b, b'[', rest @ .., last] if last.is_ascii_alphabetic() => self.control(rest, *last),
            [0x1b, b'[', ..] => return false,
            [0x1b, ..] => self.put_all(&format!("<?{}>", open.escape_ascii())),
            letter => match std::str::from_utf8(letter) {
                Ok(letter) => self.put_all(letter),
                Err(error) if error.error_len().is_none() => return false,
                Err(_) => self.put_all("<?>"),
            },
        }
        true
    }

    fn control(&mut self, parameters: &[u8], last: u8) {
        match (parameters, last) {
            (_, b'm') => {}
            (b"?7", b'h') => self.wraps = true,
            (b"?7", b'l') => self.wraps = false,
            (b"?25" | b"?2004" | b"?2026", b'h' | b'l') => {}
            (b"?1049", b'h') => {
                let screen = vec![Vec::new(); self.rows];
                self.before = Some((std::mem::replace(&mut self.lines, screen), self.row, self.column));
            }
            (b"?1049", b'l') => {
                if let Some((lines, row, column)) = self.before.take() {
                    (self.lines, self.row, self.column) = (lines, row, column);
                    self.lines.resize(self.lines.len().max(self.rows), Vec::new());
                }
            }
            (place, b'H') => {
                let mut numbers = place.split(|byte| *byte == b';').map(number);
                let mut next = |most: usize| numbers.next().flatten().unwrap_or(1).clamp(1, most) - 1;
                (self.row, self.column) = (next(self.rows), next(self.columns));
            }
            (b"", b'J') => {
                let at = self.lines.len() - self.rows + self.row;
                self.lines[at].truncate(self.column);
                self.lines[at + 1..].iter_mut().for_each(Vec::clear);
            }
            (b"" | b"0", b'K') => {
                let at = self.lines.len() - self.rows + self.row;
                self.lines[at].truncate(self.column);
            }
            (count, b'A') if number(count).is_some() => {
                self.row = self.row.saturating_sub(number(count).unwrap_or(1));
            }
            (count, b'C') => self.column = (self.column + number(count).unwrap_or(1)).min(self.columns - 1),
            (count, b'D') => self.column = self.column.saturating_sub(number(count).unwrap_or(1)),
            _ => self.put_all(&format!("<?{}{}>", parameters.escape_ascii(), char::from(last))),
        }
    }

    fn down(&mut self) {
        match self.row + 1 == self.rows {
            true => self.lines.push(Vec::new()),
            false => self.row += 1,
        }
    }

    fn put_all(&mut self, letters: &str) {
        for letter in letters.chars() {
            if self.column == self.columns {
                match self.wraps {
                    true => {
                        self.column = 0;
                        self.down();
                    }
                    false => self.column -= 1,
                }
            }
            let at = self.lines.len() - self.rows + self.row;
            let line = &mut self.lines[at];
            line.resize(line.len().max(self.column + 1), ' ');
            line[self.column] = letter;
            self.column += 1;
        }
    }
}

/// A parameter of a sequence.
fn number(digits: &[u8]) -> Option<usize> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &str, expected: &str) {
        let mut vt = Vt::new(4, 3);
        vt.take(bytes.as_bytes());
        assert_eq!(vt.text(), expected, "{bytes:?}");
    }

    #[test]
    fn bytes_become_lines() {
        check("ab\r\nc", "ab\nc");
        check("ab\rc", "cb");
        check("abcdef", "abcd\nef");
        check("\x1b[?7labcdef\x1b[?7h", "abcf");
        check("1\r\n2\r\n3\r\n4", "1\n2\n3\n4");
        check("ab\r\ncd\x1b[1A\x1b[Jx", "abx");
        check("a\x1bDb\x1b7\r\nc\x1b8d", "a\n bd\nc");
        check("\x1b[1mé\x1b[m", "é");
        check("ab\x1b[?1049h\x1b[2;3Hx\x1b[Hyz\x1b[1;1H", "yz\n  x");
        check("ab\x1b[?1049h\x1b[?25lxyz\x1b[?1049l\x1b[?25hc", "abc");
        check("\x1b[9q", "<?9q\n>");
    }
}
