//! Parses gdb's output for a program that drives it (GDB/MI, version 3). A state machine without input and output.
//!
//! It takes bytes and returns records. The length of a line and the depth of its values are bounded, because gdb prints
//! data of programs that may be hostile. Source: "GDB/MI Output Syntax" in gdb's manual.

use std::fmt;

/// The longest line that is read. The rest of a longer one is dropped.
pub const MAX_LINE_BYTES: usize = 1 << 20;

/// The deepest value that is read.
const MAX_DEPTH: u32 = 32;

/// One line of gdb.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// `1^done,...`: the result of a command.
    Done {
        /// The command's number.
        token: Option<u64>,
        /// `done`, `running`, `error` or another.
        class: String,
        /// Its values.
        results: Fields,
    },
    /// `*stopped,...`: the program has changed its state.
    Exec {
        /// `stopped` or `running`.
        class: String,
        /// Its values.
        results: Fields,
    },
    /// `=thread-created,...` and `+download,...`: another change.
    Notice {
        /// The kind of change.
        class: String,
        /// Its values.
        results: Fields,
    },
    /// `~"..."`: output for a user at a terminal.
    Console(String),
    /// `&"..."`: gdb's log, for example errors.
    Log(String),
    /// `@"..."`: output of the program.
    Target(String),
    /// `(gdb)`: gdb waits for a command.
    Prompt,
    /// Any other line.
    Other(String),
}

/// Named values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fields(pub Vec<(String, Value)>);

/// A value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// Text.
    Text(String),
    /// Named values, in braces.
    Tuple(Fields),
    /// Values in brackets; they may have names.
    List(Fields),
}

impl Fields {
    /// The value of that name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(it, _)| it == name).map(|(_, value)| value)
    }

    /// The text of that name.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.get(name)? {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The named values of that name.
    #[must_use]
    pub fn tuple(&self, name: &str) -> Option<&Self> {
        match self.get(name)? {
            Value::Tuple(fields) => Some(fields),
            _ => None,
        }
    }
}

impl Fields {
    /// The values of that name, with their own names.
    #[must_use]
    pub fn list(&self, name: &str) -> &[(String, Value)] {
        match self.get(name) {
            Some(Value::List(fields)) => &fields.0,
            _ => &[],
        }
    }

    /// Removes values of these names, at any depth.
    pub fn leave_out(&mut self, names: &[String]) {
        self.0.retain(|(name, _)| !names.contains(name));
        for (_, value) in &mut self.0 {
            match value {
                Value::Tuple(fields) | Value::List(fields) => fields.leave_out(names),
                Value::Text(_) => {}
            }
        }
    }
}

impl fmt::Display for Fields {
    /// In gdb's format.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (name, value)) in self.0.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            let equals = if name.is_empty() { "" } else { "=" };
            write!(f, "{comma}{name}{equals}{value}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Value {
    /// In gdb's format.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(&quote(text)),
            Self::Tuple(fields) => write!(f, "{{{fields}}}"),
            Self::List(fields) => write!(f, "[{fields}]"),
        }
    }
}

/// A text as a quoted argument of a command.
#[must_use]
pub fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for sign in text.chars() {
        match sign {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            '\0'..='\u{1f}' | '\u{7f}' => quoted.push_str(&format!("\\{:03o}", u32::from(sign))),
            sign => quoted.push(sign),
        }
    }
    quoted.push('"');
    quoted
}

/// Splits bytes into records.
#[derive(Debug, Default)]
pub struct Parser {
    line: Vec<u8>,
}

impl Parser {
    /// Takes the next bytes, and passes each complete record to `take`.
    pub fn push(&mut self, mut bytes: &[u8], mut take: impl FnMut(Record)) {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            self.keep(&bytes[..end]);
            take(parse_line(&self.line));
            self.line.clear();
            bytes = &bytes[end + 1..];
        }
        self.keep(bytes);
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = MAX_LINE_BYTES - self.line.len();
        self.line.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }
}

/// Reads one line, without its end.
#[must_use]
pub fn parse_line(line: &[u8]) -> Record {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let other = || Record::Other(String::from_utf8_lossy(line).into_owned());
    if line.trim_ascii_end() == b"(gdb)" {
        return Record::Prompt;
    }
    let digits = line.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (token, rest) = line.split_at(digits);
    let Some((kind, rest)) = rest.split_first() else { return other() };
    let mut cursor = Cursor { rest };
    let parsed = match kind {
        b'~' if digits == 0 => cursor.text().map(Record::Console),
        b'&' if digits == 0 => cursor.text().map(Record::Log),
        b'@' if digits == 0 => cursor.text().map(Record::Target),
        b'^' => cursor.class().map(|(class, results)| {
            let token = std::str::from_utf8(token).ok().and_then(|token| token.parse().ok());
            Record::Done { token, class, results }
        }),
        b'*' => cursor.class().map(|(class, results)| Record::Exec { class, results }),
        b'=' | b'+' => cursor.class().map(|(class, results)| Record::Notice { class, results }),
        _ => None,
    };
    parsed.unwrap_or_else(other)
}

/// The rest of the line.
struct Cursor<'l> {
    rest: &'l [u8],
}

impl Cursor<'_> {
    fn eat(&mut self, byte: u8) -> bool {
        let rest = self.rest.strip_prefix(&[byte]);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn name(&mut self) -> Option<String> {
        let is_part = |byte: &&u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        let length = self.rest.iter().take_while(is_part).count();
        let (name, rest) = self.rest.split_at(length);
        self.rest = rest;
        (length > 0).then(|| String::from_utf8_lossy(name).into_owned())
    }

    fn class(&mut self) -> Option<(String, Fields)> {
        let class = self.name()?;
        let mut fields = Fields::default();
        while self.eat(b',') {
            // A field that cannot be parsed ends the list: the fields before it are still useful.
            let Some(field) = self.field(0) else { break };
            fields.0.push(field);
        }
        Some((class, fields))
    }

    fn field(&mut self, depth: u32) -> Option<(String, Value)> {
        let name = self.name()?;
        self.eat(b'=').then_some(())?;
        Some((name, self.value(depth)?))
    }

    fn value(&mut self, depth: u32) -> Option<Value> {
        if depth > MAX_DEPTH {
            return None;
        }
        match self.rest.first()? {
            b'"' => self.text().map(Value::Text),
            b'{' => self.members(b'{', b'}', depth).map(Value::Tuple),
            b'[' => self.members(b'[', b']', depth).map(Value::List),
            _ => None,
        }
    }

    fn members(&mut self, open: u8, close: u8, depth: u32) -> Option<Fields> {
        self.eat(open).then_some(())?;
        let mut fields = Fields::default();
        if self.eat(close) {
            return Some(fields);
        }
        loop {
            let is_bare = matches!(self.rest.first()?, b'"' | b'{' | b'[');
            fields.0.push(match is_bare {
                true => (String::new(), self.value(depth + 1)?),
                false => self.field(depth + 1)?,
            });
            if self.eat(close) {
                return Some(fields);
            }
            self.eat(b',').then_some(())?;
        }
    }

    /// A quoted C string.
    fn text(&mut self) -> Option<String> {
        self.eat(b'"').then_some(())?;
        let mut bytes = Vec::new();
        loop {
            let (byte, rest) = self.rest.split_first()?;
            self.rest = rest;
            match byte {
                b'"' => return Some(String::from_utf8_lossy(&bytes).into_owned()),
                b'\\' => bytes.push(self.escaped()?),
                byte => bytes.push(*byte),
            }
        }
    }

    /// The character after a backslash.
    fn escaped(&mut self) -> Option<u8> {
        let (byte, rest) = self.rest.split_first()?;
        let octal = self.rest.iter().take(3).take_while(|byte| (b'0'..=b'7').contains(*byte)).count();
        if octal > 0 {
            let (digits, rest) = self.rest.split_at(octal);
            self.rest = rest;
            // Three digits may exceed a byte.
            return Some(
                digits.iter().fold(0_u8, |sum, digit| sum.wrapping_mul(8).wrapping_add(digit - b'0')),
            );
        }
        self.rest = rest;
        Some(match byte {
            b'n' => b'\n',
            b't' => b'\t',
            b'r' => b'\r',
            b'a' => 7,
            b'b' => 8,
            b'f' => 12,
            b'v' => 11,
            b'e' => 27,
            byte => *byte,
        })
    }
}

/// A console command in the format of gdb's machine interface.
#[must_use]
pub fn build_console(line: &str) -> String {
    format!("-interpreter-exec console {}", quote(line))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(value: &str) -> Value {
        Value::Text(value.to_owned())
    }

    #[track_caller]
    fn one(line: &str) -> Record {
        parse_line(line.as_bytes())
    }

    #[test]
    fn every_kind_of_line_is_read() {
        let done = |token, class: &str, fields: &[(&str, Value)]| Record::Done {
            token,
            class: class.to_owned(),
            results: Fields(fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()),
        };
        assert_eq!(one("12^done"), done(Some(12), "done", &[]));
        assert_eq!(one("^error,msg=\"No \\\"x\\\".\""), done(None, "error", &[("msg", text("No \"x\"."))]));
        assert_eq!(one("~\"a\\tb\\n\""), Record::Console("a\tb\n".to_owned()));
        assert_eq!(one("&\"\\303\\244\""), Record::Log("ä".to_owned()));
        assert_eq!(one("@\"out\""), Record::Target("out".to_owned()));
        assert_eq!(one("(gdb) "), Record::Prompt);
        for other in ["", "hello", "~", "~\"no end", "5~\"x\"", "^", "*", "\u{1b}[2J"] {
            assert_eq!(one(other), Record::Other(other.to_owned()), "{other:?}");
        }
    }

    #[test]
    fn a_stop_has_its_frame() {
        let line = "*stopped,reason=\"breakpoint-hit\",disp=\"keep\",bkptno=\"1\",frame={addr=\"0x1139\",func=\"main\",args=[{name=\"argc\",value=\"1\"},{name=\"argv\",value=\"0x7f\"}],file=\"a.c\",line=\"5\",arch=\"i386:x86-64\"},thread-id=\"1\",stopped-threads=\"all\",core=\"1\"";
        let Record::Exec { class, results } = one(line) else { panic!("not a stop") };
        assert_eq!((class.as_str(), results.text("reason")), ("stopped", Some("breakpoint-hit")));
        let frame = results.tuple("frame").unwrap();
        assert_eq!((frame.text("func"), frame.text("line")), (Some("main"), Some("5")));
        let Some(Value::List(args)) = frame.get("args") else { panic!("no list") };
        assert_eq!(args.0.len(), 2);
        assert_eq!(results.text("core"), Some("1"));
    }

    #[test]
    fn lists_have_values_with_and_without_names() {
        let Record::Notice { results, .. } = one("=x,a=[\"1\",{b=\"2\"},[]],c=[d=\"3\"],e={}") else {
            panic!("no notice")
        };
        let Some(Value::List(a)) = results.get("a") else { panic!("no list") };
        assert_eq!(a.0.len(), 3);
        assert_eq!(results.get("c"), Some(&Value::List(Fields(vec![("d".to_owned(), text("3"))]))));
        assert_eq!(results.get("e"), Some(&Value::Tuple(Fields::default())));
    }

    #[test]
    fn what_is_too_long_or_too_deep_is_bounded() {
        let deep = format!("*stopped,a=\"1\",b={}", "[".repeat(100_000));
        let Record::Exec { results, .. } = one(&deep) else { panic!("not a stop") };
        assert_eq!(results.0, [("a".to_owned(), text("1"))]);
        let mut parser = Parser::default();
        let mut records = Vec::new();
        for _ in 0..3 {
            parser.push(&vec![b'x'; MAX_LINE_BYTES], |record| records.push(record));
        }
        parser.push(b"\n^done\n", |record| records.push(record));
        let Record::Other(long) = &records[0] else { panic!("{records:?}") };
        assert_eq!((long.len(), records.len()), (MAX_LINE_BYTES, 2));
    }

    #[test]
    fn values_are_written_as_they_were_read() {
        let line = "^done,a=\"x\\n\\\"\",b=[\"1\",{c=\"2\",d=[]}],e={f=\"\\033\"}";
        let Record::Done { class, mut results, .. } = one(line) else { panic!("not an answer") };
        assert_eq!(format!("^{class},{results}"), line);
        results.leave_out(&["c".to_owned(), "a".to_owned()]);
        assert_eq!(results.to_string(), "b=[\"1\",{d=[]}],e={f=\"\\033\"}");
        assert_eq!((results.list("b").len(), results.list("e").len(), results.list("x").len()), (2, 0, 0));
    }

    #[test]
    fn lines_come_in_pieces() {
        let mut parser = Parser::default();
        let mut records = Vec::new();
        for byte in b"1^done\r\n~\"x\"\n(gdb) \n^ru" {
            parser.push(&[*byte], |record| records.push(record));
        }
        assert_eq!(records.len(), 3);
        assert_eq!(records[1], Record::Console("x".to_owned()));
    }

    #[test]
    fn a_command_is_one_line_whatever_it_has() {
        assert_eq!(build_console("p \"a\\n\""), "-interpreter-exec console \"p \\\"a\\\\n\\\"\"");
        assert!(!build_console("a\r\x07b\nc").contains(char::is_control));
    }

    proptest! {
        #[test]
        fn nothing_that_is_written_makes_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let mut parser = Parser::default();
            parser.push(&bytes, |_| {});
            drop(parse_line(&bytes));
        }

        #[test]
        fn quoted_text_is_one_line_that_means_the_same(said in ".{0,40}") {
            let quoted = quote(&said);
            prop_assert!(!quoted.contains('\n'));
            prop_assert_eq!(parse_line(format!("~{quoted}").as_bytes()), Record::Console(said));
        }
    }
}
