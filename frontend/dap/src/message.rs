//! Incoming requests, and outgoing responses and events.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// The maximum length of a text in our own messages.
pub const MAX_TEXT_BYTES: usize = 64 << 10;

/// A message from an editor.
#[derive(Debug, Clone, Deserialize)]
pub struct Incoming {
    /// The sequence number.
    #[serde(default)]
    pub seq: i64,
    /// `request` or `response`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The command. In a response: the command that it answers.
    #[serde(default)]
    pub command: String,
    /// The arguments.
    #[serde(default)]
    pub arguments: Value,
    /// In a response: whether the command succeeded.
    #[serde(default)]
    pub success: bool,
    /// In a response: the error message.
    #[serde(default)]
    pub message: Option<String>,
}

/// The addressee of a response: the editor and its request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ticket {
    /// The editor that sent the request.
    pub client: Client,
    /// The number of the request.
    pub seq: i64,
    /// The command of the request.
    pub command: String,
}

/// An editor's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Client(pub u64);

impl Incoming {
    /// Parses a message.
    ///
    /// # Errors
    /// The bytes are not a message. The error carries the sequence number if that was readable, else 0.
    pub fn parse(body: &[u8]) -> Result<Self, (i64, String)> {
        let value: Value =
            serde_json::from_slice(body).map_err(|error| (0, format!("this is no JSON: {error}")))?;
        let seq = value.get("seq").and_then(Value::as_i64).unwrap_or_default();
        serde_json::from_value(value).map_err(|error| (seq, format!("this is no message: {error}")))
    }

    /// Parses the arguments.
    ///
    /// # Errors
    /// The arguments do not fit the command.
    pub fn args<T: DeserializeOwned>(&self) -> Result<T, String> {
        let arguments = match &self.arguments {
            Value::Null => json!({}),
            some => some.clone(),
        };
        serde_json::from_value(arguments).map_err(|error| format!("arguments of '{}': {error}", self.command))
    }
}

/// Builds a success response. The sender fills in its sequence number.
#[must_use]
pub fn response(ticket: &Ticket, body: Value) -> Value {
    json!({
        "type": "response", "request_seq": ticket.seq, "command": ticket.command, "success": true, "body": body,
    })
}

/// Builds an error response.
#[must_use]
pub fn refusal(seq: i64, command: &str, why: &str) -> Value {
    let why = short(why, MAX_TEXT_BYTES);
    json!({
        "type": "response", "request_seq": seq, "command": command, "success": false, "message": why,
        "body": { "error": { "id": 1, "format": "{why}", "variables": { "why": why }, "showUser": true } },
    })
}

/// Builds an event.
#[must_use]
pub fn event(name: &str, body: Value) -> Value {
    json!({ "type": "event", "event": name, "body": body })
}

/// Builds an event that prints our own text in the console.
#[must_use]
pub fn console(text: &str) -> Value {
    event("output", json!({ "category": "console", "output": format!("{}\n", short(text, MAX_TEXT_BYTES)) }))
}

/// Truncates a text and marks that it was longer.
#[must_use]
pub fn short(text: &str, most: usize) -> String {
    match gantry_gdb::answer::cut(text, most) {
        (text, 0) => text.to_owned(),
        (begin, _) => format!("{begin}..."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_message_is_told_with_its_number() {
        assert_eq!(Incoming::parse(b"{\"seq\":3,\"type\":7}").unwrap_err().0, 3);
        assert_eq!(Incoming::parse(b"[1]").unwrap_err().0, 0);
        assert!(Incoming::parse(b"\xff").unwrap_err().1.contains("no JSON"));
        let good = Incoming::parse(b"{\"seq\":3,\"type\":\"request\",\"command\":\"threads\"}").unwrap();
        assert_eq!((good.seq, good.command.as_str()), (3, "threads"));
    }

    #[test]
    fn long_texts_are_cut() {
        assert_eq!(short("abcd", 3), "abc...");
        assert_eq!(short("abc", 3), "abc");
    }
}
