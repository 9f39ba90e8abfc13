//! Chooses the ssh client: the user's OpenSSH client, or `gantry-ssh`, gantry's program with libssh2, if it is
//! installed next to the agent.
//!
//! Both are programs: neither libssh2 nor its OpenSSL is ever loaded into a tool's process. They take the same call and
//! print the same messages (`openssh`).

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::call::Call;
use super::openssh;
use crate::host::Host;
use crate::{Error, Result};

/// The variable that chooses the client.
const GANTRY_SSH: &str = "GANTRY_SSH";

/// File name of the client on libssh2.
const OWN: &str = "gantry-ssh";

/// A client that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Client {
    kind: Kind,
    program: Arc<Path>,
    why: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    OpenSsh,
    Libssh2,
}

impl Client {
    /// Its executable.
    pub(super) fn program(&self) -> &Path {
        &self.program
    }

    /// Its arguments, without its own name.
    pub(super) fn build_args(&self, call: &Call) -> Vec<OsString> {
        match self.kind {
            Kind::OpenSsh => openssh::build_args(call),
            Kind::Libssh2 => call.to_args(),
        }
    }
}

/// The environment of a client: without the variables by which it could ask in a window. BatchMode does not reach the
/// client that ssh starts itself for a jump host, and that one has no terminal. Before OpenSSH 8.4, only the absence of
/// a display keeps it from asking. Source: ssh(1), `SSH_ASKPASS_REQUIRE`.
pub(crate) fn build_environment(host: &dyn Host) -> Vec<(OsString, OsString)> {
    const ASKING: [&str; 4] = ["DISPLAY", "WAYLAND_DISPLAY", "SSH_ASKPASS", "SSH_ASKPASS_REQUIRE"];
    let mut env = host.environment();
    env.retain(|(name, _)| !ASKING.iter().any(|asking| name == asking));
    env.push(("SSH_ASKPASS_REQUIRE".into(), "never".into()));
    env
}

/// The client, and why it was chosen, for people.
impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.kind {
            Kind::OpenSsh => "the OpenSSH client",
            Kind::Libssh2 => "libssh2",
        };
        write!(f, "{name} ({}), because {}", self.program.display(), self.why)
    }
}

/// Chooses the client. `agent` is the agent's path on this machine.
///
/// # Errors
/// There is no OpenSSH client, which both clients need. The variable names an unknown client, or one that is not
/// installed.
pub(super) fn find_client(host: &dyn Host, agent: &Path) -> Result<Client> {
    let openssh = host.find_in_path("ssh").ok_or_else(|| {
        Error::not_found("there is no ssh in PATH", "install the OpenSSH client, or add its folder to PATH")
    })?;
    let own = agent.with_file_name(OWN);
    let is_there = host.is_executable(&own);
    let client = |kind, program: PathBuf, why: String| Client { kind, program: program.into(), why };
    let asked = host.env(GANTRY_SSH);
    match asked.as_ref().map(|name| name.to_string_lossy()).as_deref() {
        None if is_there => Ok(client(Kind::Libssh2, own, format!("{OWN} is installed"))),
        None => Ok(client(Kind::OpenSsh, openssh, format!("there is no {}", own.display()))),
        Some("openssh") => Ok(client(Kind::OpenSsh, openssh, format!("{GANTRY_SSH} says so"))),
        Some("libssh2") if is_there => Ok(client(Kind::Libssh2, own, format!("{GANTRY_SSH} says so"))),
        Some("libssh2") => Err(Error::not_found(
            format!("{GANTRY_SSH} asks for libssh2, and there is no {}", own.display()),
            "install it with: cargo xtask install --with-ssh (needs libssl-dev and pkg-config)",
        )),
        Some(other) => Err(Error::invalid_with(
            format!("{GANTRY_SSH} is '{other}', which is not an ssh client"),
            "it may be 'openssh' or 'libssh2', or unset",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::fake::FakeHost;

    fn find(asked: &str, own: bool) -> std::result::Result<String, String> {
        let host = FakeHost::default().with_env("PATH", "/bin").with_file("/bin/ssh", "");
        let host = if asked.is_empty() { host } else { host.with_env(GANTRY_SSH, asked) };
        let host = if own { host.with_file("/g/gantry-ssh", "") } else { host };
        find_client(&host, Path::new("/g/gantry-agent"))
            .map(|client| client.to_string())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn the_variable_decides_and_otherwise_the_installation() {
        let check = |asked, own, expected: &str| {
            let found = find(asked, own).unwrap_or_else(|error| format!("error: {error}"));
            assert_eq!(found, expected, "{asked} {own}");
        };
        check("", false, "the OpenSSH client (/bin/ssh), because there is no /g/gantry-ssh");
        check("", true, "libssh2 (/g/gantry-ssh), because gantry-ssh is installed");
        check("openssh", true, "the OpenSSH client (/bin/ssh), because GANTRY_SSH says so");
        check("libssh2", true, "libssh2 (/g/gantry-ssh), because GANTRY_SSH says so");
        check("libssh2", false, "error: GANTRY_SSH asks for libssh2, and there is no /g/gantry-ssh");
        check("putty", true, "error: GANTRY_SSH is 'putty', which is not an ssh client");
    }

    #[test]
    fn a_client_has_no_window_to_ask_in() {
        let host = FakeHost::default().with_env("DISPLAY", ":0").with_env("WAYLAND_DISPLAY", "wayland-0");
        let host = host.with_env("SSH_ASKPASS", "/x").with_env("SSH_ASKPASS_REQUIRE", "force");
        let host = host.with_env("HOME", "/h").with_env("SSH_AUTH_SOCK", "/s");
        let env = build_environment(&host);
        let env = env.iter().map(|(name, value)| (name.to_str().unwrap(), value.to_str().unwrap()));
        let expected = [("HOME", "/h"), ("SSH_AUTH_SOCK", "/s"), ("SSH_ASKPASS_REQUIRE", "never")];
        assert_eq!(env.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn each_is_told_in_its_own_words() {
        let call = Call::new(&"n1".parse().unwrap(), &super::super::command::Reaching::default());
        let of =
            |kind| Client { kind, program: Path::new("/x").into(), why: String::new() }.build_args(&call);
        assert_eq!(Call::parse_args(of(Kind::Libssh2)).unwrap(), call);
        assert_eq!(of(Kind::OpenSsh)[0], "-T");
    }
}
