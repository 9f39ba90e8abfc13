//! The OpenSSH client as the way to a host. The user's own ssh configuration handles everything on the way
//! (ProxyJump, Kerberos, certificates, security keys, shared connections).
//!
//! The client never prompts (BatchMode). It logs to standard error (`LogLevel=DEBUG1`); gantry finds its errors and
//! the hosts' keys there. Its messages are in English in every release. Source: ssh(1), ssh_config(5), and recordings
//! of OpenSSH 9.2.

use std::ffi::{OsStr, OsString};

use gantry_types::error::{Failure, Kind};

use super::call::Call;

/// The maximum number of kept lines from a host, apart from the client's own.
const MAX_LINES: usize = 12;

/// The maximum number of kept characters of a line.
const MAX_CHARS: usize = 400;

/// The prefix, after `debug1: `, of the line in which `gantry-ssh` reports why it hands a host over to this client.
pub const TAKEOVER: &str = "gantry-ssh: the OpenSSH client takes over: ";

/// The client's arguments, without its own name.
pub fn build_args(call: &Call) -> Vec<OsString> {
    let seconds = call.connect.as_secs().max(1);
    let options = [
        "BatchMode=yes".to_owned(),
        "LogLevel=DEBUG1".to_owned(),
        format!("ConnectTimeout={seconds}"),
        // gantry decides about retries itself.
        "ConnectionAttempts=1".to_owned(),
        // The user's port forwardings would succeed for the first host and fail for the second one.
        "ClearAllForwardings=yes".to_owned(),
        "ForwardX11=no".to_owned(),
        "PermitLocalCommand=no".to_owned(),
        "RemoteCommand=none".to_owned(),
        // A new master would outlive the app. An existing one is used.
        "ControlMaster=no".to_owned(),
        // The client stops waiting for a lost node. The app does not depend on the client.
        "ServerAliveInterval=15".to_owned(),
        "ServerAliveCountMax=4".to_owned(),
    ];
    let mut args: Vec<OsString> = vec!["-T".into(), "-e".into(), "none".into()];
    for option in options {
        args.extend(["-o".into(), option.into()]);
    }
    if call.accept_new {
        args.extend(["-o".into(), "StrictHostKeyChecking=accept-new".into()]);
    }
    if let Some(login) = &call.login {
        args.extend(["-l".into(), login.into()]);
    }
    args.extend(["--".into(), OsStr::new(call.host.as_str()).into(), call.command.clone()]);
    args
}

/// The facts in the client's messages so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Words {
    /// The host has accepted the login.
    pub(super) authenticated: bool,
    /// The host's key: type and fingerprint.
    host_key: Option<String>,
    /// Why the OpenSSH client replaced another one.
    pub(super) instead: Option<String>,
    /// The login methods that the host accepts.
    methods: Option<String>,
    /// Lines that are not about the client's progress: its errors, and output of the host's programs.
    lines: Vec<String>,
}

impl Words {
    /// Takes a line of the client's standard error.
    pub(super) fn take(&mut self, line: &str) {
        let line = line.trim_end();
        // A host's message before the protocol, for example that it has too many connections.
        let spoken = line.strip_prefix("debug1: kex_exchange_identification: banner line ");
        // The client prints this at its end, and some releases at the beginning.
        if line.starts_with("Transferred: sent ") || line.starts_with("Bytes per second: sent ") {
            return;
        }
        if line.starts_with("Authenticated to ") {
            return self.begin();
        }
        let Some(word) = line.strip_prefix("debug1: ").filter(|_| spoken.is_none()) else {
            // Later lines are more specific than earlier ones; a banner comes first.
            if !line.trim().is_empty() {
                if self.lines.len() == MAX_LINES {
                    self.lines.remove(0);
                }
                let line = spoken.and_then(|line| line.split_once(": ")).map_or(line, |(_, said)| said);
                self.lines.push(line.chars().take(MAX_CHARS).collect());
            }
            return;
        };
        if word.starts_with("Authenticated to ")
            || word.starts_with("mux_client_request_session: ")
            || word == "Entering interactive session."
        {
            self.begin();
        } else if let Some(key) = word.strip_prefix("Server host key: ") {
            self.host_key = Some(key.to_owned());
        } else if let Some(reason) = word.strip_prefix(TAKEOVER) {
            self.instead = Some(reason.to_owned());
        } else if let Some(methods) = word.strip_prefix("Authentications that can continue: ") {
            self.methods = Some(methods.to_owned());
        }
    }

    /// The login succeeded: earlier lines were a banner.
    fn begin(&mut self) {
        self.authenticated = true;
        self.lines.clear();
    }

    /// The last lines that are not about the client's progress.
    pub(super) fn last_lines(&self) -> String {
        self.lines.join("\n")
    }
}

/// The interpretation of a connection that ended before the host could answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Missed {
    /// Why.
    pub(super) failure: Failure,
    /// Whether a retry may succeed: the host has too many connections at the moment, or is starting.
    pub(super) again: Again,
}

/// How often to retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Again {
    /// No retry.
    Never,
    /// Until the timeout.
    Often,
    /// Two retries: the server may be starting.
    Twice,
}

/// Explains why a connection to `host` has ended.
pub(super) fn explain(host: &str, words: &Words) -> Missed {
    let text = words.last_lines();
    let has = |part: &str| text.contains(part);
    let last = words.lines.iter().rev().find(|line| !line.starts_with("@@")).cloned().unwrap_or_default();
    let never = |kind, message: String, hint: String| Missed {
        failure: Failure::new(kind, message).with_hint(hint),
        again: Again::Never,
    };
    let key = words.host_key.as_deref().unwrap_or("one of an unknown kind");
    if has("IDENTIFICATION HAS CHANGED") || has("has changed and you have requested strict checking") {
        let message = format!("the host's key has changed: now it is {key}");
        let hint = format!(
            "this may be an attack; if you know that the key was changed: ssh-keygen -R {host}, then as for a new host"
        );
        return never(Kind::NoAccess, message, hint);
    }
    if has("revoked") {
        return never(
            Kind::NoAccess,
            format!("the host's key is revoked: {key}"),
            "ask the host's administrator".to_owned(),
        );
    }
    if has("Host key verification failed") || has("host key is known for") {
        let message = format!("the host's key is not known: {key}");
        let hint = format!(
            "compare it, then accept it with: ssh {host} true; or accept all new ones with --accept-new-host-keys"
        );
        return never(Kind::NoAccess, message, hint);
    }
    if has("Permission denied") || has("Too many authentication failures") {
        let takes = words.methods.as_deref().map(|it| format!(" (it accepts {it})")).unwrap_or_default();
        let hint = format!(
            "try: ssh -o BatchMode=yes {host} true; a key with a passphrase has to be in your agent (ssh-add), passwords are not asked for"
        );
        return never(Kind::NoAccess, format!("it refuses the login{takes}: {last}"), hint);
    }
    if has("Could not resolve hostname") {
        // If the name of a jump host is wrong, more lines follow.
        let line = words.lines.iter().rev().find(|line| line.contains("Could not resolve hostname"));
        return never(
            Kind::NotFound,
            line.cloned().unwrap_or(last),
            "check the name, or give it an address in ~/.ssh/config".to_owned(),
        );
    }
    let full = has("Exceeded MaxStartups") || has("Not allowed at this time");
    let cut = has("kex_exchange_identification") || has("Connection closed by") || has("Connection reset by");
    if full || cut {
        let message = match full {
            true => "its sshd accepts no more connections at the moment".to_owned(),
            false => format!("its sshd closed the connection: {last}"),
        };
        let failure = Failure::new(Kind::Lost, message)
            .with_hint("raise MaxStartups in its sshd_config, or lower --window");
        return Missed { failure, again: Again::Often };
    }
    if has("Connection refused") {
        let failure = Failure::new(Kind::Lost, last).with_hint("see that sshd runs there, and at that port");
        return Missed { failure, again: Again::Twice };
    }
    if has("during banner exchange") {
        let message = "it accepts connections and sends nothing: it is not an sshd, or it hangs".to_owned();
        return never(
            Kind::TimedOut,
            message,
            "see what listens there; --connect-timeout gives it more time".to_owned(),
        );
    }
    if has("timed out") || has("No route to host") || has("unreachable") {
        return never(
            Kind::Lost,
            last,
            "see that the host is up and that nothing between you filters ssh".to_owned(),
        );
    }
    let message = if last.is_empty() { "ssh ended without a message".to_owned() } else { last };
    never(Kind::LauncherFailed, message, format!("try: ssh -v {host} true"))
}

#[cfg(test)]
mod tests {
    use super::super::command::Reaching;
    use super::*;

    fn read(text: &str) -> Words {
        let mut words = Words::default();
        text.lines().for_each(|line| words.take(line));
        words
    }

    /// Every recording of the client's messages comes with gantry's interpretation.
    #[test]
    fn recorded_words() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/ssh/openssh-9.2p1/client");
        let mut seen = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "expected") {
                continue;
            }
            let words = read(&std::fs::read_to_string(&path).unwrap());
            let Missed { failure, again } = explain("n001", &words);
            let got = format!("{} {again:?} {}", failure.kind(), failure.message());
            let expected = std::fs::read_to_string(path.with_extension("expected")).unwrap();
            assert_eq!(got, expected.trim_end(), "{}", path.display());
            seen += 1;
        }
        assert!(seen >= 6, "{seen} recordings");
    }

    #[test]
    fn a_banner_is_no_error_and_words_are_bounded() {
        let words = read(
            "Welcome\nAuthenticated to n001 ([10.42.1.1]:22) using \"publickey\".\nfish: no such\nTransferred: sent 5, received 3 bytes\n",
        );
        assert!(words.authenticated);
        assert_eq!(words.last_lines(), "fish: no such");
        let many = (0..100).map(|n| format!("{n}\n")).collect::<String>();
        assert_eq!(read(&many).lines.len(), MAX_LINES);
    }

    #[test]
    fn nothing_in_the_arguments_is_of_an_app() {
        let reaching = Reaching { login: Some("me".into()), accept_new: true, ..Reaching::default() };
        let args = build_args(&Call::new(&"n1".parse().unwrap(), &reaching));
        let line = args.join(" ".as_ref()).into_string().unwrap();
        assert!(
            line.contains("BatchMode=yes") && line.contains("accept-new -l me -- n1 exec /bin/sh"),
            "{line}"
        );
        assert!(
            !build_args(&Call::new(&"n1".parse().unwrap(), &Reaching::default()))
                .iter()
                .any(|arg| arg == "StrictHostKeyChecking=accept-new")
        );
    }
}
