//! How a rank stands, and what its gdb has said: the key under which ranks with the same answer travel together.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The most bytes of what gdb says to one command. The rest is in its [`Words`].
pub const MAX_SAID_BYTES: usize = 48 << 10;

/// The most bytes of one piece of what a gdb has written.
pub const MAX_PIECE_BYTES: usize = 48 << 10;

/// What is told of a rank.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Answer {
    /// How it stands.
    pub state: State,
    /// What its gdb has said to the order. None: it was not asked, or is not done yet.
    pub reply: Option<Reply>,
}

/// How a rank stands.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum State {
    /// No gdb is there, and the rank is held before its first instruction.
    Held,
    /// No gdb is there, and the rank does what it does.
    Free,
    /// Its gdb is being started.
    Coming,
    /// Its gdb has it, and it goes on.
    Running,
    /// Its gdb has it, and it stands.
    Stopped(Stop),
    /// It has ended, in these words.
    Ended(String),
}

/// Where a rank stands, and why.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Stop {
    /// Why, in gdb's words: `breakpoint-hit`, `signal SIGSEGV`. Empty: it was taken there.
    pub why: String,
    /// The function; empty where gdb knows none.
    pub function: String,
    /// The source file; empty where gdb knows none.
    pub file: String,
    /// Its line; 0 where gdb knows none.
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

/// What a gdb has said to one command.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Reply {
    /// Its words, lines and all. Of [`What::Ask`](crate::order::What::Ask): a line for each command.
    pub said: String,
    /// Why it could not do it.
    pub error: Option<String>,
    /// What can be done about that.
    pub hint: Option<String>,
}

impl Answer {
    /// The key of ranks with this answer.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        // It has no part that can fail.
        postcard::to_stdvec(self).unwrap_or_default()
    }

    /// None: it is no such key.
    #[must_use]
    pub fn decode(key: &[u8]) -> Option<Self> {
        postcard::from_bytes(key).ok()
    }
}

/// A piece of what a gdb has written and was told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Words {
    /// The first byte of the piece. Later than what was asked for: the beginning is forgotten.
    pub from: u64,
    /// Where all of it ends.
    pub end: u64,
    /// The piece.
    pub text: Vec<u8>,
}

impl Words {
    /// The key under which it travels.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        // It has no part that can fail.
        postcard::to_stdvec(self).unwrap_or_default()
    }

    /// None: it is no such key.
    #[must_use]
    pub fn decode(key: &[u8]) -> Option<Self> {
        postcard::from_bytes(key).ok()
    }
}

/// The beginning of a text that has no more than so many bytes, and how many bytes are missing.
#[must_use]
pub fn cut(text: &str, most: usize) -> (&str, usize) {
    let end = (0..=most.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
    (&text[..end], text.len() - end)
}

#[cfg(test)]
mod tests {
    use super::*;

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
            assert_eq!(Answer::decode(&answer.encode()), Some(answer));
        }
        assert_eq!(Stop::default().to_string(), "??");
        let words = Words { from: 3, end: 9, text: b"abc".to_vec() };
        assert_eq!(Words::decode(&words.encode()), Some(words));
        assert_eq!(Answer::decode(b"\xff"), None);
    }

    #[test]
    fn long_texts_are_cut_between_letters() {
        assert_eq!(cut("abc", 5), ("abc", 0));
        assert_eq!(cut("aäb", 2), ("a", 3));
    }
}
