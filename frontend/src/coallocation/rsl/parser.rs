//! Turns tokens into specifications: one function per rule of the grammar.

use super::lexer::{Lexer, Placed, Token};
use super::{Attribute, DEEPEST, MOST_BYTES, Position, Reference, Relation, RslError, Specification, Value};

/// Reads a specification.
///
/// # Errors
/// What was expected and what was found, with line and column; text that is too long or nested too deep.
pub fn parse(text: &str) -> Result<Specification, RslError> {
    if text.len() > MOST_BYTES {
        let message = format!("the specification has {} bytes; {MOST_BYTES} are allowed", text.len());
        return Err(RslError::new("", Position { line: 1, column: 1 }, message));
    }
    let mut parser = Parser::new(text)?;
    let specification = parser.specification(0)?;
    match parser.next.token {
        Token::End => Ok(specification),
        _ => Err(parser.unexpected("the end")),
    }
}

struct Parser<'a> {
    lexer: Lexer<'a>,
    next: Placed,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Result<Self, RslError> {
        let mut lexer = Lexer::new(text);
        let next = lexer.next()?;
        Ok(Self { lexer, next })
    }

    /// Takes the next token.
    fn take(&mut self) -> Result<Placed, RslError> {
        let following = self.lexer.next()?;
        Ok(std::mem::replace(&mut self.next, following))
    }

    fn expect(&mut self, token: &Token) -> Result<(), RslError> {
        if self.next.token == *token {
            self.take().map(drop)
        } else {
            Err(self.unexpected(&token.describe()))
        }
    }

    fn unexpected(&self, wanted: &str) -> RslError {
        let found = self.next.token.describe();
        self.lexer.error(self.next.at, format!("expected {wanted}, found {found}"))
    }

    fn check_depth(&self, depth: usize) -> Result<(), RslError> {
        if depth < DEEPEST {
            return Ok(());
        }
        Err(self.lexer.error(self.next.at, format!("nested more than {DEEPEST} times")))
    }

    /// `(+|&|) ( specification )+`, or a relation.
    fn specification(&mut self, depth: usize) -> Result<Specification, RslError> {
        self.check_depth(depth)?;
        let Token::Prefix(sign) = self.next.token else {
            return self.relation(depth).map(Specification::Relation);
        };
        self.take()?;
        let mut parts = Vec::new();
        loop {
            self.expect(&Token::Open)?;
            parts.push(self.specification(depth + 1)?);
            self.expect(&Token::Close)?;
            if self.next.token != Token::Open {
                break;
            }
        }
        Ok(match sign {
            '+' => Specification::Multi(parts),
            '&' => Specification::Conjunction(parts),
            _ => Specification::Disjunction(parts),
        })
    }

    /// `literal operator value+`
    fn relation(&mut self, depth: usize) -> Result<Relation, RslError> {
        if self.next.token == Token::Open {
            return Err(self
                .lexer
                .error(self.next.at, "expected '+', '&' or '|' before '(', or an attribute"));
        }
        let Token::Literal { text, .. } = &self.next.token else {
            return Err(self.unexpected("an attribute"));
        };
        let (text, at) = (text.clone(), self.next.at);
        self.take()?;
        let Token::Operator(operator) = self.next.token else {
            return Err(self.unexpected(&format!("an operator like '=' after \"{}\"", text.escape_debug())));
        };
        self.take()?;
        let values = self.values(depth)?;
        Ok(Relation { attribute: Attribute::new(text), operator, values, at })
    }

    /// `value+`
    fn values(&mut self, depth: usize) -> Result<Vec<Value>, RslError> {
        let mut values = vec![self.value(depth)?];
        while matches!(self.next.token, Token::Open | Token::Dollar | Token::Literal { .. }) {
            values.push(self.value(depth)?);
        }
        Ok(values)
    }

    /// `( value+ )`, or one literal, reference or concatenation.
    fn value(&mut self, depth: usize) -> Result<Value, RslError> {
        if self.next.token != Token::Open {
            return self.concatenation(depth);
        }
        self.check_depth(depth)?;
        self.take()?;
        let values = self.values(depth + 1)?;
        self.expect(&Token::Close)?;
        Ok(Value::Sequence(values))
    }

    /// `simple (# simple)*`. The `#` is optional between a reference and an adjacent unquoted literal or reference.
    fn concatenation(&mut self, depth: usize) -> Result<Value, RslError> {
        let mut parts = Vec::new();
        loop {
            let joins = !matches!(self.next.token, Token::Literal { quoted: true, .. });
            let is_reference = self.next.token == Token::Dollar;
            parts.push(self.simple(depth)?);
            if self.next.token == Token::Hash {
                self.take()?;
                continue;
            }
            let joined = self.next.touches
                && joins
                && match self.next.token {
                    Token::Dollar => true,
                    Token::Literal { quoted, .. } => is_reference && !quoted,
                    _ => false,
                };
            if !joined {
                break;
            }
        }
        match parts.pop() {
            Some(only) if parts.is_empty() => Ok(only),
            last => Ok(Value::Concatenation(parts.into_iter().chain(last).collect())),
        }
    }

    /// A literal, or `$ ( value+ )`.
    fn simple(&mut self, depth: usize) -> Result<Value, RslError> {
        if !matches!(self.next.token, Token::Literal { .. } | Token::Dollar) {
            return Err(self.unexpected("a value"));
        }
        let Placed { token, at, .. } = self.take()?;
        if let Token::Literal { text, .. } = token {
            return Ok(Value::Literal(text));
        }
        self.check_depth(depth)?;
        self.expect(&Token::Open)?;
        let parts = self.values(depth + 1)?;
        self.expect(&Token::Close)?;
        Ok(Value::Reference(Reference { parts, at }))
    }
}
