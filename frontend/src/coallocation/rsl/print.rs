//! Prints specifications as text that [`parse`](super::parse) reads back as the same.

use std::fmt::{self, Display, Formatter, Write};

use super::lexer::is_word;
use super::{Relation, Specification, Value};

impl Display for Specification {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (sign, parts) = match self {
            Self::Multi(parts) => ('+', parts),
            Self::Conjunction(parts) => ('&', parts),
            Self::Disjunction(parts) => ('|', parts),
            Self::Relation(relation) => return relation.fmt(f),
        };
        f.write_char(sign)?;
        parts.iter().try_for_each(|part| write!(f, "({part})"))
    }
}

impl Display for Relation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write_literal(f, self.attribute.as_str())?;
        f.write_str(self.operator.as_str())?;
        write_all(f, &self.values, " ")
    }
}

impl Display for Value {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Literal(text) => write_literal(f, text),
            Self::Sequence(values) => {
                f.write_char('(')?;
                write_all(f, values, " ")?;
                f.write_char(')')
            }
            Self::Reference(reference) => {
                f.write_str("$(")?;
                write_all(f, &reference.parts, " ")?;
                f.write_char(')')
            }
            Self::Concatenation(parts) => write_all(f, parts, " # "),
        }
    }
}

fn write_all(f: &mut Formatter<'_>, values: &[Value], between: &str) -> fmt::Result {
    values.iter().enumerate().try_for_each(|(n, value)| {
        // Sequences are readable without a space between them.
        let sequences = n > 0 && matches!((&values[n - 1], value), (Value::Sequence(_), Value::Sequence(_)));
        if n > 0 && !sequences {
            f.write_str(between)?;
        }
        value.fmt(f)
    })
}

fn write_literal(f: &mut Formatter<'_>, text: &str) -> fmt::Result {
    if !text.is_empty() && text.chars().all(is_word) && !text.starts_with(['+', '&', '|']) {
        return f.write_str(text);
    }
    write!(f, "\"{}\"", text.replace('"', "\"\""))
}
