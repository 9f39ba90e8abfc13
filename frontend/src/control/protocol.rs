//! Every app of a live tool has a socket, `APP.sock` in the runtime directory of its user. `gantry ps`, `gantry release` and the other
//! commands are its clients. Your tool can be one too.
//!
//! Client and frontend exchange lines. Each is a JSON object in UTF-8. The client asks:
//!
//! ```json
//! {"version":1,"do":"signal","signal":"SIGUSR1","ranks":"0-3,7"}
//! ```
//!
//! The answer is a line `{"ok":...}` or `{"error":{"kind":...,"message":...,"hint":...}}`. A connection may carry several requests. Their answers come in order.
//!
//! `wait`, `events` and `daemon` are the last request of a connection. After `{"ok":...}`, the frontend sends events until the app, or the daemon, has ended.
//! A client leaves by closing its sending side.
//!
//! A request may have `timeout_ms`, the time that the frontend may take. The default is a minute. `version` may be missing; now it is 1.
//!
//! | `do` | more keys | `ok` |
//! | --- | --- | --- |
//! | `info` | | the app |
//! | `group` | | the app as a [process group](../guide/process-groups.md) |
//! | `forget` | | `null`; only of a group that has ended and is kept |
//! | `release` | | `null` |
//! | `signal` | `signal`, `ranks` | `null` |
//! | `kill` | | the end of the app, as the event `exited` has it |
//! | `wait` | | `null`; then the event `exited` or `detached` |
//! | `events` | | `null`; then the current state, then every event |
//! | `daemon` | see below | `{"daemon":NUMBER}`, with `leave_out` also the names `left_out`; then `daemon_started`, `output`, `daemon_exited` of that daemon. With `progress` the events `staging` and `staged` of its files come before the `ok` |
//! | `channel` | as `daemon` | as `daemon`; from then on the connection carries `broadcast` and `reduce` only, and the daemon ends with it |
//! | `broadcast` | `tag`, `bytes` | `null`; a message to all processes of the daemon, its bytes in hexadecimal digits |
//! | `reduce` | `tag`, `filter` | `bytes`, `contributed`, `missing`: one contribution of each process, merged by a filter such as `prefix_tree` |

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::time::Duration;

use gantry_types::error::{Failure, Kind};
use gantry_types::filter::Filter;
use gantry_types::id::{DaemonId, NodeId};
use gantry_types::rank_set::RankSet;
use gantry_types::signal::Signal;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Version of the requests and answers of this module.
pub(crate) const VERSION: u32 = 1;

/// The longest line of a client, in bytes; a longer one ends the connection.
pub(crate) const MAX_REQUEST_BYTES: usize = 1 << 20;

/// The longest line of a frontend, in bytes: the state of an app with a million ranks fits.
pub(crate) const MAX_ANSWER_BYTES: usize = 1 << 28;

/// How long a frontend may take if the request has no timeout.
pub(crate) const DEFAULT_PATIENCE: Duration = Duration::from_secs(60);

/// One line of a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Request {
    /// Must be [`VERSION`]; may be left out.
    #[serde(default = "current_version")]
    pub version: u32,
    /// How long the frontend may take, in milliseconds. Default: [`DEFAULT_PATIENCE`].
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub timeout_ms: Option<u64>,
    /// The request.
    #[serde(flatten)]
    pub ask: Ask,
}

/// A client's request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
#[non_exhaustive]
pub(crate) enum Ask {
    /// Return the state of the app.
    Info,
    /// Return the state of the app as a process group.
    Group,
    /// Forget a group that has ended.
    Forget,
    /// Release held ranks.
    Release,
    /// Send a signal to ranks. SIGKILL is the only one that a held rank gets.
    Signal {
        /// The signal's name or number, as a string.
        #[serde(with = "crate::as_text")]
        signal: Signal,
        /// Which ranks, as `0-3,7`. Default: all.
        #[serde(skip_serializing_if = "Option::is_none", default, with = "crate::as_text::optional")]
        ranks: Option<RankSet>,
    },
    /// End all ranks by SIGKILL; answer when they have ended.
    Kill,
    /// Wait for the app's end.
    Wait,
    /// Follow the app.
    Events,
    /// Start a tool daemon.
    Daemon(DaemonOrder),
    /// Start a tool daemon, and open its channel on this connection.
    Channel(DaemonOrder),
    /// On a daemon's connection: a message to all processes of the daemon.
    Broadcast {
        /// The tag of the message.
        tag: u32,
        /// The message.
        bytes: Hex,
    },
    /// On a daemon's connection: collect the contributions of the daemon's processes, merged on their way.
    Reduce {
        /// The tag of the contributions.
        tag: u32,
        /// The filter that merges them.
        filter: Filter,
    },
}

/// A tool daemon to start in a session of its own. Paths are the frontend's: make them absolute.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DaemonOrder {
    /// Path of the program, or a name that the frontend looks up in its PATH.
    pub program: Text,
    /// Arguments after the program's name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<Text>,
    /// Variables that are set in addition to the frontend's environment.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<(Text, Text)>,
    /// Names of its nodes. Default: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hosts: Option<Vec<String>>,
    /// Files put in the session's directory.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<Text>,
    /// Programs put in the session's `bin`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub binaries: Vec<Text>,
    /// Libraries put in the session's `lib`: paths, or names that the frontend searches for as the loader does.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub libraries: Vec<Text>,
    /// Directories put in the session's `lib`, with all that is in them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub directories: Vec<Text>,
    /// Programs and libraries come without the libraries that they need.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub without_dependencies: bool,
    /// A missing library is no error.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub allow_missing: bool,
    /// Nodes that give no sign of life are left out. The answer names them.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub leave_out: bool,
    /// Send the events `staging` and `staged` before the answer.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub progress: bool,
    /// `true`: its output comes as `output` events, and it ends when the client leaves. `false`: its output is dropped,
    /// and it continues without the client.
    pub forward: bool,
}

/// The `ok` of [`Ask::Daemon`] and [`Ask::Channel`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DaemonNumber {
    /// The daemon's number in the app.
    pub daemon: DaemonId,
    /// The names of the nodes that were left out.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub left_out: Vec<String>,
}

/// The `ok` of [`Ask::Reduce`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ReducedAnswer {
    /// The result.
    pub bytes: Hex,
    /// How many processes have contributed.
    pub contributed: u64,
    /// The processes that did not contribute.
    pub missing: Vec<MissingAnswer>,
}

/// A process of a daemon that did not contribute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MissingAnswer {
    /// The number of its node.
    pub node: NodeId,
    /// Its daemon.
    pub daemon: DaemonId,
    /// The node's name.
    pub host: String,
    /// Why.
    pub why: Failure,
}

/// Bytes, as hexadecimal digits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Hex(pub(crate) Vec<u8>);

impl Serialize for Hex {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let digits = self.0.iter().flat_map(|byte| [byte >> 4, byte & 15]);
        serializer
            .collect_str(&digits.map(|digit| char::from(DIGITS[usize::from(digit)])).collect::<String>())
    }
}

impl<'de> Deserialize<'de> for Hex {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let digit = |letter: &u8| char::from(*letter).to_digit(16).and_then(|it| u8::try_from(it).ok());
        let byte = |pair: &[u8]| match pair {
            [high, low] => Some(digit(high)? << 4 | digit(low)?),
            _ => None,
        };
        let bytes: Option<Vec<u8>> = text.as_bytes().chunks(2).map(byte).collect();
        bytes.map(Self).ok_or_else(|| serde::de::Error::custom("bytes are not pairs of hexadecimal digits"))
    }
}

/// One line of a frontend that is not an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer<T> {
    /// Success.
    Ok(T),
    /// Failure.
    Error(Failure),
}

impl Request {
    /// A request of this version. The frontend may take `patience`.
    pub(crate) fn new(ask: Ask, patience: Option<Duration>) -> Self {
        let timeout_ms = patience.map(|it| u64::try_from(it.as_millis()).unwrap_or(u64::MAX));
        Self { version: VERSION, timeout_ms, ask }
    }

    /// How long the frontend may take.
    pub(crate) fn patience(&self) -> Duration {
        self.timeout_ms.map_or(DEFAULT_PATIENCE, Duration::from_millis)
    }
}

/// Reads a client's line.
///
/// # Errors
/// The line is malformed, or has another version.
pub(crate) fn parse_request(line: &[u8]) -> Result<Request, Failure> {
    #[derive(Deserialize)]
    struct Versioned {
        #[serde(default = "current_version")]
        version: u32,
    }
    let bad = |e: serde_json::Error| Failure::new(Kind::Protocol, format!("not a request: {e}"));
    // Parse the version alone first: a later one may have requests that are unknown here.
    let Versioned { version } = serde_json::from_slice(line).map_err(bad)?;
    if version != VERSION {
        let message = format!("version {version} of the control protocol is not spoken here");
        return Err(Failure::new(Kind::Protocol, message).with_hint(format!("ask in version {VERSION}")));
    }
    serde_json::from_slice(line).map_err(bad)
}

/// Text of the operating system: a JSON string, or a list of bytes if it is not UTF-8.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Text(pub OsString);

impl<T: Into<OsString>> From<T> for Text {
    fn from(text: T) -> Self {
        Self(text.into())
    }
}

impl AsRef<OsStr> for Text {
    fn as_ref(&self) -> &OsStr {
        &self.0
    }
}

impl Serialize for Text {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.to_str() {
            Some(text) => serializer.serialize_str(text),
            None => self.0.as_bytes().serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "a string, or a list of bytes")]
        enum Form {
            Utf8(String),
            Bytes(Vec<u8>),
        }
        let text = match Form::deserialize(deserializer)? {
            Form::Utf8(text) => OsString::from(text),
            Form::Bytes(bytes) => OsString::from_vec(bytes),
        };
        // Arguments, variables and paths cannot contain NUL. The system would refuse it much later and less clearly.
        if text.as_bytes().contains(&0) {
            return Err(serde::de::Error::custom("a NUL byte in a text of the system"));
        }
        Ok(Self(text))
    }
}

const fn current_version() -> u32 {
    VERSION
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: Result<Ask, &str>) {
        match (parse_request(line.as_bytes()), expected) {
            (Ok(request), expected) => assert_eq!(Ok(request.ask), expected, "{line}"),
            (Err(failure), Err(part)) => assert!(failure.message().contains(part), "{line}: {failure}"),
            (Err(failure), Ok(_)) => panic!("{line}: {failure}"),
        }
    }

    #[test]
    fn requests_as_people_write_them() {
        check(r#"{"do":"info"}"#, Ok(Ask::Info));
        check(r#"{"version":1,"do":"kill","timeout_ms":5}"#, Ok(Ask::Kill));
        let ranks = Some("0-3,7".parse().unwrap());
        check(
            r#"{"do":"signal","signal":"TERM","ranks":"7,0-3"}"#,
            Ok(Ask::Signal { signal: Signal::TERM, ranks }),
        );
        check(r#"{"do":"signal","signal":"15"}"#, Ok(Ask::Signal { signal: Signal::TERM, ranks: None }));
        let order =
            DaemonOrder { program: "d".into(), args: vec!["-x".into()], forward: true, ..Default::default() };
        check(r#"{"do":"daemon","program":"d","args":["-x"],"forward":true}"#, Ok(Ask::Daemon(order)));
    }

    #[test]
    fn a_malformed_request_is_refused_with_the_reason() {
        check("", Err("not a request"));
        check("[]", Err("not a request"));
        check("{}", Err("missing field `do`"));
        check(r#"{"do":"dance"}"#, Err("unknown variant `dance`"));
        check(r#"{"do":"signal","signal":"SIGNONE"}"#, Err("SIGNONE"));
        check(r#"{"do":"signal","signal":"TERM","ranks":"3-1"}"#, Err("3-1"));
        check(r#"{"do":"dance","version":2}"#, Err("version 2"));
        check(r#"{"do":"daemon","program":"a\u0000b"}"#, Err("NUL"));
        check(r#"{"do":"broadcast","tag":1,"bytes":"abc"}"#, Err("hexadecimal"));
        check(r#"{"do":"broadcast","tag":1,"bytes":"0g"}"#, Err("hexadecimal"));
        check(r#"{"do":"reduce","tag":1,"filter":"none"}"#, Err("unknown variant `none`"));
    }

    #[test]
    fn text_that_is_not_utf8_travels_as_bytes() {
        let text = Text(OsString::from_vec(vec![b'a', 0xff]));
        let json = serde_json::to_string(&text).unwrap();
        assert_eq!(json, "[97,255]");
        assert_eq!(serde_json::from_str::<Text>(&json).unwrap(), text);
        assert_eq!(serde_json::to_string(&Text::from("ä")).unwrap(), "\"ä\"");
    }

    #[test]
    fn every_request_reads_back() {
        let order = DaemonOrder {
            program: "/bin/d".into(),
            args: vec!["a b".into()],
            env: vec![("N".into(), "v=1".into())],
            hosts: Some(vec!["n1".to_owned()]),
            files: vec!["/f".into()],
            binaries: vec!["/b".into()],
            libraries: vec!["/l".into()],
            directories: vec!["/d".into()],
            without_dependencies: true,
            allow_missing: true,
            leave_out: true,
            progress: true,
            forward: true,
        };
        let signal = Ask::Signal { signal: Signal::KILL, ranks: Some("1".parse().unwrap()) };
        for ask in [
            Ask::Info,
            Ask::Group,
            Ask::Forget,
            Ask::Release,
            signal,
            Ask::Kill,
            Ask::Wait,
            Ask::Events,
            Ask::Daemon(order.clone()),
            Ask::Channel(order),
            Ask::Broadcast { tag: 3, bytes: Hex(vec![0, 0x1f, 0xff]) },
            Ask::Reduce { tag: 4, filter: Filter::PrefixTree },
        ] {
            let request = Request::new(ask, Some(Duration::from_secs(3)));
            let line = serde_json::to_vec(&request).unwrap();
            assert_eq!(parse_request(&line).unwrap(), request);
        }
    }

    #[test]
    fn answers_have_one_key() {
        let json = |answer: &Answer<()>| serde_json::to_string(answer).unwrap();
        assert_eq!(json(&Answer::Ok(())), r#"{"ok":null}"#);
        let failure = Failure::new(Kind::Gone, "app is gone");
        assert_eq!(
            json(&Answer::Error(failure)),
            r#"{"error":{"kind":"gone","message":"app is gone","hint":null}}"#
        );
    }
}
