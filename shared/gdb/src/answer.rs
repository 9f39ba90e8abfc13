//! The state of a rank, and its gdb's reply. This is the key that groups ranks with the same answer.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The most bytes of gdb's reply to one command. The rest is in its [`Words`].
pub const MAX_SAID_BYTES: usize = 48 << 10;

/// The most bytes of one piece of a gdb's output.
pub const MAX_PIECE_BYTES: usize = 48 << 10;

/// A daemon's answer for a rank.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Answer {
    /// Its state.
    pub state: State,
    /// Its gdb's reply to the order. `None`: the order does not ask it, or it is not done yet.
    pub reply: Option<Reply>,
}

/// The state of a rank.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum State {
    /// It has no gdb, and is held before its first instruction.
    Held,
    /// It has no gdb, and runs freely.
    Free,
    /// Its gdb is being started.
    Coming,
    /// Its gdb is attached, and the rank runs.
    Running,
    /// Its gdb is attached, and the rank is stopped.
    Stopped(Stop),
    /// It has ended, with this description.
    Ended(String),
    /// Its daemon has ended, so it cannot be asked any more. The text says how it goes on. Only the tool sets this.
    Away(String),
}

/// Where a rank is stopped, and why.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Stop {
    /// The reason in gdb's words: `breakpoint-hit`, `signal SIGSEGV`. Empty: gdb attached there.
    pub why: String,
    /// The function; empty if gdb knows none.
    pub function: String,
    /// The source file; empty if gdb knows none.
    pub file: String,
    /// The source line; 0 if gdb knows none.
    pub line: u32,
    /// The number of the breakpoint that it has hit; 0: none.
    pub breakpoint: u32,
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let function = if self.function.is_empty() { "??" } else { &self.function };
        f.write_str(function)?;
        let file = self.file.rsplit('/').next().unwrap_or_default();
        if !file.is_empty() {
            write!(f, " at {file}:{}", self.line)?;
        }
        if self.why.is_empty() { Ok(()) } else { write!(f, " ({})", self.why) }
    }
}

/// A gdb's reply to one command.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Reply {
    /// The text of the reply, with all its lines. For [`What::Ask`](crate::order::What::Ask): one line per command.
    pub said: String,
    /// Why the command failed, if it did.
    pub error: Option<String>,
    /// A remedy for the failure.
    pub hint: Option<String>,
}

/// A piece of a gdb's input and output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Words {
    /// Offset of the piece's first byte. It is later than requested if the beginning was dropped.
    pub from: u64,
    /// Offset of the end of all output.
    pub end: u64,
    /// The piece.
    pub text: Vec<u8>,
}

/// A program for which a node has no debug information.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Program {
    /// Its build id.
    pub build_id: Vec<u8>,
    /// Its path as its ranks see it.
    pub path: String,
}

/// What gdb does not find on a rank's node.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Lack {
    /// The rank's program, if its debug information is not there.
    pub program: Option<Program>,
    /// Shared libraries that the rank has loaded, and that were deleted or replaced since. The first few of them.
    pub deleted: Vec<String>,
}

/// The beginning of a text, of at most `most` bytes, and the number of omitted bytes.
#[must_use]
pub fn cut(text: &str, most: usize) -> (&str, usize) {
    let end = (0..=most.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
    (&text[..end], text.len() - end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{decode, encode};

    #[test]
    fn answers_arrive_as_they_were_given() {
        let stop = Stop {
            why: "breakpoint-hit".to_owned(),
            function: "main".to_owned(),
            file: "/a/b.c".to_owned(),
            line: 7,
            breakpoint: 2,
        };
        assert_eq!(stop.to_string(), "main at b.c:7 (breakpoint-hit)");
        let reply = Reply { said: "x\n".to_owned(), error: Some("no".to_owned()), hint: None };
        for state in
            [State::Held, State::Free, State::Running, State::Stopped(stop), State::Ended("0".to_owned())]
        {
            let answer = Answer { state, reply: Some(reply.clone()) };
            assert_eq!(decode(&encode(&answer)), Some(answer));
        }
        assert_eq!(Stop::default().to_string(), "??");
        let words = Words { from: 3, end: 9, text: b"abc".to_vec() };
        assert_eq!(decode(&encode(&words)), Some(words));
        let program = Program { build_id: vec![1, 2], path: "/opt/app".to_owned() };
        assert_eq!(decode(&encode(&program)), Some(program.clone()));
        let lack = Lack { program: Some(program), deleted: vec!["/opt/liba.so".to_owned()] };
        assert_eq!(decode(&encode(&lack)), Some(lack));
        assert_eq!(decode::<Answer>(b"\xff"), None);
    }

    #[test]
    fn long_texts_are_cut_between_letters() {
        assert_eq!(cut("abc", 5), ("abc", 0));
        assert_eq!(cut("aäb", 2), ("a", 3));
    }
}
