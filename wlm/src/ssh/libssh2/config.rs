//! The output of `ssh -G`: the user's configuration for one host, with all `Host`, `Match` and `Include` resolved by
//! ssh itself. Source: ssh_config(5), and a recording of OpenSSH 9.2.

use std::path::PathBuf;

use gantry_shared::glob::is_match;
use gantry_wlm::Host;

use crate::tokens::{Tokens, expand_home};

/// How to handle an unknown key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Strict {
    /// Refuse it: this program cannot ask the user.
    Ask,
    /// Refuse it.
    Yes,
    /// Accept and remember it.
    AcceptNew,
    /// Accept everything.
    No,
}

/// The configuration for one host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Config {
    /// The host as the user named it.
    pub(crate) host: String,
    pub(crate) hostname: String,
    pub(crate) port: u16,
    pub(crate) user: String,
    pub(crate) address_family: String,
    /// The command that carries the stream, with its tokens replaced.
    pub(crate) proxy_command: Option<String>,
    pub(crate) proxy_jump: Option<String>,
    /// The name under which the host's keys are known.
    pub(crate) known_as: String,
    pub(crate) known_hosts_files: Vec<PathBuf>,
    pub(crate) strict: Strict,
    /// The caller accepts keys of unknown hosts.
    pub(crate) accept_new: bool,
    /// The socket of the user's agent. None: there is none, or it must not be used.
    pub(crate) agent: Option<PathBuf>,
    pub(crate) identity_files: Vec<PathBuf>,
    pub(crate) identities_only: bool,
    pub(crate) public_keys: bool,
    pub(crate) certificate_files: Vec<PathBuf>,
    pub(crate) gssapi: bool,
    pub(crate) host_based: bool,
    pub(crate) pkcs11: Option<String>,
    pub(crate) control_path: Option<PathBuf>,
    pub(crate) kex: Vec<String>,
    pub(crate) ciphers: Vec<String>,
    pub(crate) macs: Vec<String>,
    pub(crate) host_key_algorithms: Vec<String>,
    pub(crate) public_key_algorithms: Vec<String>,
    send_env: Vec<String>,
    set_env: Vec<(String, String)>,
    /// Settings that libssh2 does not support.
    foreign: Vec<String>,
}

/// Settings that change the peer or the trust in it, and that only the OpenSSH client supports. With their default
/// values.
const FOREIGN: [(&str, &[&str]); 8] = [
    ("bindaddress", &["none"]),
    ("bindinterface", &["none"]),
    ("knownhostscommand", &["none"]),
    ("revokedhostkeys", &["none"]),
    ("verifyhostkeydns", &["false", "no"]),
    ("nohostauthenticationforlocalhost", &["no", "false"]),
    ("proxyusefdpass", &["no", "false"]),
    ("canonicalizehostname", &["false", "no"]),
];

/// The lines of `ssh -G`: a name in lower case and a value.
#[derive(Debug, Clone, Copy)]
struct Said<'a>(&'a str);

impl<'a> Said<'a> {
    fn all(self, name: &str) -> Vec<&'a str> {
        let pairs = self.0.lines().filter_map(|line| line.split_once(' '));
        pairs.filter(|(key, _)| *key == name).map(|(_, value)| value.trim()).collect()
    }

    fn one(self, name: &str) -> Option<&'a str> {
        self.all(name).first().copied().filter(|value| !value.eq_ignore_ascii_case("none"))
    }

    fn yes(self, name: &str) -> bool {
        self.one(name).is_some_and(|value| value == "yes" || value == "true")
    }

    fn list(self, name: &str) -> Vec<String> {
        self.one(name).map(|names| names.split(',').map(str::to_owned).collect()).unwrap_or_default()
    }

    fn foreign(self) -> Vec<String> {
        let set = FOREIGN.iter().filter_map(|(name, unset)| {
            let value = *self.all(name).first()?;
            (!unset.contains(&value)).then(|| format!("{name} {value}"))
        });
        set.collect()
    }
}

impl Strict {
    fn parse(said: Option<&str>) -> Self {
        match said {
            Some("accept-new") => Self::AcceptNew,
            Some("no" | "off" | "false") => Self::No,
            Some("ask") => Self::Ask,
            _ => Self::Yes,
        }
    }
}

fn parse_variable(pair: &str) -> Option<(String, String)> {
    let (name, value) = pair.split_once('=')?;
    Some((name.to_owned(), value.trim_matches('"').to_owned()))
}

impl Config {
    /// Parses the output of `ssh -G` for `host`.
    ///
    /// # Errors
    /// Why only the OpenSSH client supports the configuration.
    pub(crate) fn parse(host: &str, text: &str, machine: &dyn Host) -> Result<Self, String> {
        let said = Said(text);
        let text_of = |name: &'static str| said.one(name).ok_or(format!("ssh -G says no {name}"));
        let hostname = text_of("hostname")?.to_owned();
        let port = text_of("port")?.parse().map_err(|_| "the port is not a number".to_owned())?;
        let user = text_of("user")?.to_owned();
        let alias = said.one("hostkeyalias");
        let known_as = match (alias, port) {
            (Some(alias), _) => alias.to_owned(),
            (None, 22) => hostname.clone(),
            (None, port) => format!("[{hostname}]:{port}"),
        };
        let tokens = Tokens {
            host,
            hostname: &hostname,
            port,
            user: &user,
            known_as: alias.unwrap_or(&hostname),
            machine,
        };
        let paths = |name: &str| -> Result<Vec<PathBuf>, String> {
            let values = said.all(name).into_iter().filter(|value| *value != "none");
            values.map(|value| tokens.expand_path(value)).collect()
        };
        let mut known_hosts_files = Vec::new();
        for name in ["userknownhostsfile", "globalknownhostsfile"] {
            let files = said.all(name).into_iter().flat_map(str::split_whitespace);
            for file in files.filter(|file| *file != "none") {
                known_hosts_files.push(tokens.expand_path(file)?);
            }
        }
        Ok(Self {
            host: host.to_owned(),
            proxy_command: said.one("proxycommand").map(|command| tokens.expand(command)).transpose()?,
            proxy_jump: said.one("proxyjump").map(str::to_owned),
            address_family: said.one("addressfamily").unwrap_or("any").to_owned(),
            known_hosts_files,
            strict: Strict::parse(said.one("stricthostkeychecking")),
            accept_new: false,
            agent: find_agent(said.all("identityagent").first().copied(), &tokens)?,
            identity_files: paths("identityfile")?,
            identities_only: said.yes("identitiesonly"),
            // Newer releases name a restriction here that concerns only agents' signatures.
            public_keys: !matches!(said.one("pubkeyauthentication"), Some("no" | "false")),
            certificate_files: paths("certificatefile")?,
            gssapi: said.yes("gssapiauthentication"),
            host_based: said.yes("hostbasedauthentication"),
            pkcs11: said.one("pkcs11provider").map(str::to_owned),
            control_path: said.one("controlpath").map(|path| expand_home(path, machine)).transpose()?,
            kex: said.list("kexalgorithms"),
            ciphers: said.list("ciphers"),
            macs: said.list("macs"),
            host_key_algorithms: said.list("hostkeyalgorithms"),
            public_key_algorithms: said.list("pubkeyacceptedalgorithms"),
            send_env: said.all("sendenv").into_iter().map(str::to_owned).collect(),
            set_env: said.all("setenv").into_iter().filter_map(parse_variable).collect(),
            foreign: said.foreign(),
            known_as,
            hostname,
            port,
            user,
        })
    }

    /// Why only the OpenSSH client can handle this configuration, if so.
    pub(crate) fn lacks(&self) -> Option<String> {
        let shared = self.control_path.as_ref().filter(|path| {
            // A socket without a listener is left over from a killed master.
            std::os::unix::net::UnixStream::connect(path).is_ok()
        });
        if shared.is_some() {
            return Some("a shared connection is open (ControlPath)".to_owned());
        }
        self.foreign.first().map(|setting| format!("libssh2 does not have '{setting}'"))
    }

    /// Whether keys of unknown hosts are accepted.
    pub(crate) fn accepts_new(&self) -> bool {
        self.accept_new || matches!(self.strict, Strict::AcceptNew | Strict::No)
    }

    /// The variables to send to the host.
    pub(crate) fn variables(&self, machine: &dyn Host) -> Vec<(String, String)> {
        let sent = machine.environment().into_iter().filter_map(|(name, value)| {
            let (name, value) = (name.into_string().ok()?, value.into_string().ok()?);
            self.send_env.iter().any(|it| is_match(it.as_bytes(), name.as_bytes())).then_some((name, value))
        });
        self.set_env.iter().cloned().chain(sent).collect()
    }
}

/// The agent's socket: the configured one, else that of the environment.
fn find_agent(said: Option<&str>, tokens: &Tokens<'_>) -> Result<Option<PathBuf>, String> {
    let variable = |name: &str| tokens.machine.env(name).map(PathBuf::from);
    Ok(match said {
        None | Some("SSH_AUTH_SOCK") => variable("SSH_AUTH_SOCK"),
        Some("none") => None,
        Some(said) => match said.strip_prefix('$') {
            Some(name) => variable(name.trim_matches(['{', '}'])),
            None => Some(tokens.expand_path(said)?),
        },
    })
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
