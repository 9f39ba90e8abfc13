//! The Resource Specification Language, RSL 1.0, in which co-allocated jobs are asked for.
//!
//! ```text
//! +(&(resourceManagerContact=RM1)(count=3)(executable=solver))
//!  (&(resourceManagerContact="RM2:2119")(count=2)(executable=$(HOME)/viewer)(environment=(LEVEL 3)))
//! ```
//!
//! `+` is a multi-request, `&` a conjunction, `|` a disjunction; inside stand relations between an attribute and values. Reading never runs
//! anything and is bounded: text of [`MOST_BYTES`], nested [`DEEPEST`] times.
//!
//! | module | what is there |
//! | --- | --- |
//! | [`parse`] | text to [`Specification`] |
//! | [`Specification`]'s `Display` | and back |
//! | [`Specification::substitute`] | references like `$(HOME)` replaced by what `rsl_substitution` says |
//!
//! Source: the grammar of the Globus Toolkit's RSL. What it leaves open is answered as its own reader does, with four exceptions. That one refuses
//! a reference's default where it would be used, takes a character without meaning for the end of the text, loses a quoted value that the text ends with, and
//! reads a carriage return as part of a word. Here a default is used, the character is an error, nothing is lost, and a carriage return is white space.

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

/// How deep requests and sequences may stand in each other.
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
    /// Where its first attribute stands.
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

/// An attribute and what is asked of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relation {
    /// The attribute.
    pub attribute: Attribute,
    /// How it is related to the values.
    pub operator: Operator,
    /// At least one.
    pub values: Vec<Value>,
    /// Where the attribute stands.
    pub at: Position,
}

/// The name of an attribute. Case and underscores make no difference: `max_wall_time` is `maxWallTime`.
#[derive(Debug, Clone)]
pub struct Attribute(String);

impl Attribute {
    /// An attribute as somebody wrote it.
    pub fn new(name: impl Into<String>) -> Self {
        Self(name.into())
    }

    /// As it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The one form of all its spellings: lower case, without underscores.
    #[must_use]
    pub fn canonical(&self) -> String {
        canonical(&self.0).collect()
    }

    /// Whether it is the attribute `name`, in whatever spelling.
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

/// How an attribute is related to its values.
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
    /// As it is written.
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
    /// The text, if it is nothing but that: true of every value that is no sequence once references are replaced.
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
    /// The name, and perhaps a default. More can be written, and mean nothing.
    pub parts: Vec<Value>,
    /// Where it stands.
    pub at: Position,
}

/// A place in a text. Where something stands is no part of what it is: all positions are equal to each other.
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
