//! The Resource Specification Language, RSL 1.0: the language of requests for co-allocated jobs.
//!
//! ```text
//! +(&(resourceManagerContact=RM1)(count=3)(executable=solver))
//!  (&(resourceManagerContact="RM2:2119")(count=2)(executable=$(HOME)/viewer)(environment=(LEVEL 3)))
//! ```
//!
//! `+` is a multi-request, `&` a conjunction, `|` a disjunction. Inside are relations between an attribute and values.
//! Reading never executes anything and is bounded: text of at most [`MOST_BYTES`], nested at most [`DEEPEST`] times.
//!
//! | module | content |
//! | --- | --- |
//! | [`parse`] | reads text as a [`Specification`] |
//! | [`Specification`]'s `Display` | writes it as text |
//! | [`Specification::substitute`] | replaces references like `$(HOME)` with their values from `rsl_substitution` |
//!
//! Source: the grammar of the Globus Toolkit's RSL. Where the grammar is ambiguous, this reader behaves like the
//! toolkit's, with four exceptions. The toolkit's reader refuses a reference's default where it would be used; this one
//! uses the default. It takes a meaningless character for the end of the text; here that is an error. It loses a quoted
//! value at the end of the text; here nothing is lost. It reads a carriage return as part of a word; here it is white
//! space.

mod error;
mod lexer;
mod parser;
mod print;
mod substitute;
#[cfg(test)]
mod tests;

use std::fmt;

pub use error::RslError;
pub use parser::parse;

/// Longest text that is read, in bytes.
pub const MOST_BYTES: usize = 1 << 20;

/// Deepest nesting of requests and sequences.
pub const DEEPEST: usize = 100;

/// A specification: a boolean combination of specifications, or a relation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Specification {
    /// `+(..)(..)`: several requests at once.
    Multi(Vec<Specification>),
    /// `&(..)(..)`: all of them.
    Conjunction(Vec<Specification>),
    /// `|(..)(..)`: one of them.
    Disjunction(Vec<Specification>),
    /// `attribute = values`.
    Relation(Relation),
}

impl Specification {
    /// Position of its first attribute.
    #[must_use]
    pub fn position(&self) -> Option<Position> {
        match self {
            Self::Multi(parts) | Self::Conjunction(parts) | Self::Disjunction(parts) => {
                parts.first()?.position()
            }
            Self::Relation(relation) => Some(relation.at),
        }
    }
}

/// An attribute and its requested values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relation {
    /// The attribute.
    pub attribute: Attribute,
    /// The relation to the values.
    pub operator: Operator,
    /// At least one.
    pub values: Vec<Value>,
    /// Position of the attribute.
    pub at: Position,
}

/// The name of an attribute. Case and underscores make no difference: `max_wall_time` is `maxWallTime`.
#[derive(Debug, Clone)]
pub struct Attribute(String);

impl Attribute {
    /// Makes an attribute from any spelling.
    pub fn new(name: impl Into<String>) -> Self {
        Self(name.into())
    }

    /// The original spelling.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The canonical form of all its spellings: lower case, without underscores.
    #[must_use]
    pub fn canonical(&self) -> String {
        canonical(&self.0).collect()
    }

    /// Whether it is the attribute `name`, in any spelling.
    #[must_use]
    pub fn is(&self, name: &str) -> bool {
        canonical(&self.0).eq(canonical(name))
    }
}

impl PartialEq for Attribute {
    fn eq(&self, other: &Self) -> bool {
        self.is(&other.0)
    }
}

impl Eq for Attribute {}

fn canonical(name: &str) -> impl Iterator<Item = char> {
    name.chars().filter(|c| *c != '_').map(|c| c.to_ascii_lowercase())
}

/// The relation between an attribute and its values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    /// `=`
    Equal,
    /// `!=`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
}

impl Operator {
    /// The operator's sign.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Equal => "=",
            Self::NotEqual => "!=",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
        }
    }
}

impl fmt::Display for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A value of a relation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A text, quoted or not.
    Literal(String),
    /// `(value value ..)`: at least one.
    Sequence(Vec<Value>),
    /// `$(NAME)`, `$(NAME default)`.
    Reference(Reference),
    /// At least two values, literals or references, that become one text: `a # b`, or `a$(B)` written without a space.
    Concatenation(Vec<Value>),
}

impl Value {
    /// The text, if the value is only text. True of every value but a sequence, once references are replaced.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Literal(text) => Some(text),
            _ => None,
        }
    }
}

/// A reference to a name that `rsl_substitution` defines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    /// The name, and optionally a default. Further parts are allowed and ignored.
    pub parts: Vec<Value>,
    /// Position of the reference.
    pub at: Position,
}

/// A position in a text. All positions compare as equal, so they do not affect comparisons of specifications.
#[derive(Debug, Clone, Copy, Default)]
pub struct Position {
    /// From 1.
    pub line: u32,
    /// In characters, from 1.
    pub column: u32,
}

impl PartialEq for Position {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Position {}
