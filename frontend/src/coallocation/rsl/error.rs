//! What is wrong with a specification, and where.

use super::Position;

/// Most characters of a line that are shown.
const SHOWN: usize = 76;

/// What is wrong with a specification. Its text is one line; [`RslError::picture`] points to the place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {}, column {}: {message}", position.line, position.column)]
pub struct RslError {
    position: Position,
    message: String,
    picture: String,
}

impl RslError {
    pub(in crate::coallocation) fn new(text: &str, position: Position, message: impl Into<String>) -> Self {
        Self { position, message: message.into(), picture: draw(text, position) }
    }

    /// Where it is.
    #[must_use]
    pub fn position(&self) -> Position {
        self.position
    }

    /// What is wrong, without the place.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The line, and below it a caret at the error. Long lines are cut around it.
    #[must_use]
    pub fn picture(&self) -> &str {
        &self.picture
    }
}

fn draw(text: &str, position: Position) -> String {
    let line = text.split('\n').nth(position.line.saturating_sub(1) as usize).unwrap_or("");
    let column = position.column.saturating_sub(1) as usize;
    let start = column.saturating_sub(SHOWN / 2);
    // A control character would shift the caret.
    let shown: String =
        line.chars().skip(start).take(SHOWN).map(|c| if c.is_control() { ' ' } else { c }).collect();
    format!("{}\n{}^", shown.trim_end(), " ".repeat(column - start))
}
