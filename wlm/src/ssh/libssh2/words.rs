//! Prints the OpenSSH client's messages for the events here, limited to those that gantry's parser understands. Source:
//! recordings of OpenSSH 9.2.

use std::fmt;
use std::io;

use nix::errno::Errno;
use ssh2::ErrorCode;

use crate::End;
use crate::config::{Config, Strict};
use crate::keys::short_name;
use crate::known_hosts::Entry;

/// libssh2's error numbers for a broken socket: LIBSSH2_ERROR_SOCKET_SEND, _SOCKET_DISCONNECT, _SOCKET_TIMEOUT,
/// _SOCKET_RECV, _BAD_SOCKET.
const CUT: [i32; 5] = [-7, -13, -30, -43, -45];

/// The peer of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) address: String,
    pub(crate) port: u16,
}

impl Peer {
    /// The peer behind a command that carries the stream.
    pub(crate) fn behind_a_proxy() -> Self {
        Self { address: "UNKNOWN".to_owned(), port: 65535 }
    }

    /// The peer closed the connection.
    pub(crate) fn closed(&self, how: &str) -> String {
        format!("Connection {how} {} port {}", self.address, self.port)
    }

    /// The peer did not answer within the timeout.
    pub(crate) fn timed_out(&self) -> String {
        format!("Connection to {} port {} timed out", self.address, self.port)
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}]:{}", self.address, self.port)
    }
}

/// An error in the system's wording.
pub(crate) fn system(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(number) => Errno::from_raw(number).desc().to_owned(),
        None if error.kind() == io::ErrorKind::TimedOut => "Connection timed out".to_owned(),
        // The standard library puts the attempted step first.
        None => {
            let text = error.to_string();
            text.rsplit_once(": ").map_or(text.clone(), |(_, why)| why.to_owned())
        }
    }
}

pub(crate) fn not_resolved(hostname: &str, why: &str) -> Vec<String> {
    vec![format!("ssh: Could not resolve hostname {hostname}: {why}")]
}

pub(crate) fn not_connected(hostname: &str, port: u16, why: &str) -> Vec<String> {
    vec![format!("ssh: connect to host {hostname} port {port}: {why}")]
}

/// The peer closed the connection before it identified itself.
pub(crate) fn closed_early(peer: &Peer, error: Option<&io::Error>) -> Vec<String> {
    let (what, how) = match error {
        None => ("Connection closed by remote host".to_owned(), "closed by"),
        Some(error) => (format!("read: {}", system(error)), "reset by"),
    };
    vec![format!("kex_exchange_identification: {what}"), peer.closed(how)]
}

/// Whether the connection is broken.
pub(crate) fn is_cut(error: &ssh2::Error) -> bool {
    matches!(error.code(), ErrorCode::Session(number) if CUT.contains(&number))
}

/// Explains a failed key exchange.
pub(crate) fn explain_handshake(error: &ssh2::Error, peer: &Peer) -> End {
    match is_cut(error) {
        true => End::Failed(closed_early(peer, None)),
        // Another client may support what libssh2 does not.
        false => End::Openssh(format!("libssh2 and the host do not agree: {}", error.message())),
    }
}

/// Explains a failure after the login.
pub(crate) fn explain_lost(error: &ssh2::Error, host: &str) -> End {
    let words = match is_cut(error) {
        true => format!("Connection to {host} closed by remote host."),
        false => format!("{host} does not run the command: {}", error.message()),
    };
    End::Failed(vec![words])
}

const VERIFICATION: &str = "Host key verification failed.";

pub(crate) fn changed(config: &Config, key_type: &str, fingerprint: &str, entry: &Entry) -> Vec<String> {
    let name = short_name(key_type);
    vec![
        "@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @".to_owned(),
        format!("The fingerprint for the {name} key sent by the remote host is {fingerprint}."),
        format!("Offending {name} key in {}:{}", entry.file.display(), entry.line),
        format!("Host key for {} has changed and you have requested strict checking.", config.known_as),
        VERIFICATION.to_owned(),
    ]
}

pub(crate) fn revoked(config: &Config, key_type: &str) -> Vec<String> {
    let name = short_name(key_type);
    vec![
        "@       WARNING: REVOKED HOST KEY DETECTED!               @".to_owned(),
        format!("The {name} host key for {} is marked as revoked.", config.known_as),
        VERIFICATION.to_owned(),
    ]
}

pub(crate) fn unknown(config: &Config, key_type: &str) -> Vec<String> {
    let name = short_name(key_type);
    let strict = || {
        format!("No {name} host key is known for {} and you have requested strict checking.", config.known_as)
    };
    let first = (config.strict == Strict::Yes).then(strict);
    first.into_iter().chain([VERIFICATION.to_owned()]).collect()
}

pub(crate) fn denied(config: &Config, methods: &str) -> Vec<String> {
    vec![format!("{}@{}: Permission denied ({methods}).", config.user, config.hostname)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_in_the_systems_words() {
        let check = |error: &io::Error, expected: &str| assert_eq!(system(error), expected);
        check(&io::Error::from_raw_os_error(111), "Connection refused");
        check(&io::ErrorKind::TimedOut.into(), "Connection timed out");
        let lookup = io::Error::other("failed to lookup address information: Name or service not known");
        check(&lookup, "Name or service not known");
    }

    #[test]
    fn words_are_those_that_were_recorded() {
        let recorded = |name: &str| {
            let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/ssh/openssh-9.2p1/client");
            std::fs::read_to_string(format!("{folder}/{name}.stderr")).unwrap()
        };
        let check = |name: &str, words: Vec<String>| {
            let recorded = recorded(name);
            let lines: Vec<&str> = recorded.lines().collect();
            for word in words {
                assert!(lines.contains(&word.as_str()), "{name}: '{word}'");
            }
        };
        let peer = Peer { address: "10.42.0.1".to_owned(), port: 2223 };
        check("closed", closed_early(&peer, None));
        check("no-such-host", not_resolved("n009", "Name or service not known"));
        check("refused", not_connected("n001", 23, "Connection refused"));
        check("no-route", not_connected("10.42.3.77", 22, "Connection timed out"));
        check("silent", vec![Peer { port: 2222, ..peer }.timed_out()]);
    }
}
