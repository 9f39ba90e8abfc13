//! Requests as they come, and responses and events as they go.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// The longest text that stands in a message of ours.
pub const MAX_TEXT_BYTES: usize = 64 << 10;

/// What an editor has sent.
#[derive(Debug, Clone, Deserialize)]
pub struct Incoming {
    /// Its number.
    #[serde(default)]
    pub seq: i64,
    /// `request` or `response`.
    #[serde(rename = "type")]
    pub kind: String,
    /// What is wanted; of a response: what was.
    #[serde(default)]
    pub command: String,
    /// How it is wanted.
    #[serde(default)]
    pub arguments: Value,
    /// Of a response: whether it was done.
    #[serde(default)]
    pub success: bool,
    /// Of a response: why not.
    #[serde(default)]
    pub message: Option<String>,
}

/// Whom a response is for, and to what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ticket {
    /// Who has asked.
    pub client: Client,
    /// The number of the request.
    pub seq: i64,
    /// What was wanted.
    pub command: String,
}

/// An editor's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Client(pub u64);

impl Incoming {
    /// Reads a message.
    ///
    /// # Errors
    /// It is none. With the number that it has, where that can be read.
    pub fn parse(body: &[u8]) -> Result<Self, (i64, String)> {
        let value: Value =
            serde_json::from_slice(body).map_err(|error| (0, format!("this is no JSON: {error}")))?;
        let seq = value.get("seq").and_then(Value::as_i64).unwrap_or_default();
        serde_json::from_value(value).map_err(|error| (seq, format!("this is no message: {error}")))
    }

    /// The arguments.
    ///
    /// # Errors
    /// They are others than the command has.
    pub fn args<T: DeserializeOwned>(&self) -> Result<T, String> {
        let arguments = match &self.arguments {
            Value::Null => json!({}),
            some => some.clone(),
        };
        serde_json::from_value(arguments).map_err(|error| format!("arguments of '{}': {error}", self.command))
    }
}

/// A response that says it is done. Its own number is given when it is sent.
#[must_use]
pub fn response(ticket: &Ticket, body: Value) -> Value {
    json!({
        "type": "response", "request_seq": ticket.seq, "command": ticket.command, "success": true, "body": body,
    })
}

/// A response that says why it cannot be done.
#[must_use]
pub fn refusal(seq: i64, command: &str, why: &str) -> Value {
    let why = short(why, MAX_TEXT_BYTES);
    json!({
        "type": "response", "request_seq": seq, "command": command, "success": false, "message": why,
        "body": { "error": { "id": 1, "format": "{why}", "variables": { "why": why }, "showUser": true } },
    })
}

/// An event.
#[must_use]
pub fn event(name: &str, body: Value) -> Value {
    json!({ "type": "event", "event": name, "body": body })
}

/// Words of ours for the console.
#[must_use]
pub fn console(text: &str) -> Value {
    event("output", json!({ "category": "console", "output": format!("{}\n", short(text, MAX_TEXT_BYTES)) }))
}

/// The beginning of a text; that it was longer is shown.
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
