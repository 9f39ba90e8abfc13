//! Splits a specification into tokens.

use std::iter::Peekable;
use std::str::Chars;

use super::{Operator, Position, RslError};

/// A token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token {
    /// `+`, `&` or `|` in front of requests.
    Prefix(char),
    /// `(`
    Open,
    /// `)`
    Close,
    /// `$`
    Dollar,
    /// `#`
    Hash,
    Operator(Operator),
    /// A literal; whether it was quoted.
    Literal {
        text: String,
        quoted: bool,
    },
    End,
}

impl Token {
    /// The token's name in error messages.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Prefix(sign) => format!("'{sign}'"),
            Self::Open => "'('".to_owned(),
            Self::Close => "')'".to_owned(),
            Self::Dollar => "'$'".to_owned(),
            Self::Hash => "'#'".to_owned(),
            Self::Operator(operator) => format!("'{operator}'"),
            Self::Literal { text, .. } if text.chars().count() > 20 => "a word".to_owned(),
            Self::Literal { text, .. } => format!("\"{}\"", text.escape_debug()),
            Self::End => "the end".to_owned(),
        }
    }
}

/// A token, its position, and whether it touches the one before it.
#[derive(Debug, Clone)]
pub(super) struct Placed {
    pub(super) token: Token,
    pub(super) at: Position,
    pub(super) touches: bool,
}

/// Reads one token after the other.
#[derive(Debug)]
pub(super) struct Lexer<'a> {
    text: &'a str,
    rest: Peekable<Chars<'a>>,
    at: Position,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, rest: text.chars().peekable(), at: Position { line: 1, column: 1 } }
    }

    pub(super) fn error(&self, at: Position, message: impl Into<String>) -> RslError {
        RslError::new(self.text, at, message)
    }

    /// The next token.
    pub(super) fn next(&mut self) -> Result<Placed, RslError> {
        let mut touches = true;
        loop {
            while self.rest.next_if(|c| is_space(*c)).inspect(|c| self.at.pass(*c)).is_some() {
                touches = false;
            }
            let at = self.at;
            let token = match self.take() {
                None => Token::End,
                Some('(') if self.rest.peek() == Some(&'*') => {
                    self.skip_comment(at)?;
                    touches = false;
                    continue;
                }
                Some('(') => Token::Open,
                Some(')') => Token::Close,
                Some('$') => Token::Dollar,
                Some('#') => Token::Hash,
                Some(sign @ ('+' | '&' | '|')) => Token::Prefix(sign),
                Some('=') => Token::Operator(Operator::Equal),
                Some('<') if self.take_if('=') => Token::Operator(Operator::LessOrEqual),
                Some('<') => Token::Operator(Operator::Less),
                Some('>') if self.take_if('=') => Token::Operator(Operator::GreaterOrEqual),
                Some('>') => Token::Operator(Operator::Greater),
                Some('!') if self.take_if('=') => Token::Operator(Operator::NotEqual),
                Some(quote @ ('"' | '\'')) => self.read_quoted(quote, at)?,
                Some('^') => match self.take() {
                    Some(quote) => self.read_quoted(quote, at)?,
                    None => return Err(self.error(at, "'^' wants a delimiter behind it, as in ^%text%")),
                },
                Some(first) if is_word(first) => self.read_word(first),
                Some(other) => {
                    let message = format!("'{}' has no meaning here: quote it", other.escape_debug());
                    return Err(self.error(at, message));
                }
            };
            return Ok(Placed { token, at, touches });
        }
    }

    fn take(&mut self) -> Option<char> {
        self.rest.next().inspect(|c| self.at.pass(*c))
    }

    fn take_if(&mut self, wanted: char) -> bool {
        self.rest.next_if_eq(&wanted).inspect(|c| self.at.pass(*c)).is_some()
    }

    /// Skips a comment whose `(` has been read.
    fn skip_comment(&mut self, start: Position) -> Result<(), RslError> {
        self.take();
        loop {
            match self.take() {
                Some('*') if self.take_if(')') => return Ok(()),
                Some(_) => {}
                None => return Err(self.error(start, "this comment has no end: *)")),
            }
        }
    }

    fn read_quoted(&mut self, quote: char, start: Position) -> Result<Token, RslError> {
        let mut text = String::new();
        loop {
            match self.take() {
                Some(c) if c == quote && !self.take_if(quote) => {
                    return Ok(Token::Literal { text, quoted: true });
                }
                Some(c) => text.push(c),
                None => {
                    return Err(self.error(start, format!("this quote has no end: {}", quote.escape_debug())));
                }
            }
        }
    }

    fn read_word(&mut self, first: char) -> Token {
        let mut text = String::from(first);
        while let Some(c) = self.rest.next_if(|c| is_word(*c)) {
            self.at.pass(c);
            text.push(c);
        }
        Token::Literal { text, quoted: false }
    }
}

impl Position {
    fn pass(&mut self, c: char) {
        if c == '\n' {
            *self = Self { line: self.line + 1, column: 1 };
        } else {
            self.column += 1;
        }
    }
}

/// Whether `c` separates tokens.
fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r')
}

/// Whether `c` may occur in an unquoted literal. A literal cannot begin with a prefix sign.
pub(super) fn is_word(c: char) -> bool {
    !is_space(c)
        && !matches!(
            c,
            '=' | '<' | '>' | '!' | '(' | ')' | '"' | '\'' | '^' | '*' | '$' | '#' | '?' | '~' | '\0'
        )
}
