//! JSON for scripts.

use serde::Serialize;

/// One value as one line.
pub(crate) fn line(value: &impl Serialize) -> String {
    // Our own types have string keys and no failing parts.
    let mut text = serde_json::to_string(value).unwrap_or_default();
    text.push('\n');
    text
}
