//! Authenticates the user: by keys of the user's agent, then by keys in files. Never prompts.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use ssh2::{Agent, ErrorCode, PublicKey, Session};

use crate::config::Config;
use crate::keys::{
    KeyFile, MAX_KEY_FILE_BYTES, is_foreign, parse_private, parse_public, type_of, type_of_algorithm,
};
use crate::words::{self, Peer};
use crate::{End, Way, say};

/// libssh2's errors when the host does not accept a key: LIBSSH2_ERROR_AUTHENTICATION_FAILED, _PUBLICKEY_UNVERIFIED.
const NOT_TAKEN: [i32; 2] = [-18, -19];

/// Logs in, and returns the method.
///
/// # Errors
/// The host refuses, or the host may accept a method that only the OpenSSH client has.
pub(crate) fn log_in(session: &Session, config: &Config, peer: &Peer) -> Way<&'static str> {
    let methods = match session.auth_methods(&config.user) {
        Ok(methods) => methods.to_owned(),
        Err(_) if session.authenticated() => return Ok("none"),
        Err(error) => return Err(lost(&error, peer)),
    };
    if let Ok(Some(banner)) = session.userauth_banner() {
        banner.lines().for_each(say);
    }
    say(&format!("debug1: Authentications that can continue: {methods}"));
    let offers = |method: &str| methods.split(',').any(|name| name == method);
    // Other methods that might succeed.
    let mut others = Vec::new();
    if offers("gssapi-with-mic") && config.gssapi {
        others.push("the host accepts GSSAPI".to_owned());
    }
    if offers("hostbased") && config.host_based {
        others.push("the host may trust this one (HostbasedAuthentication)".to_owned());
    }
    if offers("publickey") && config.public_keys {
        let mut keys = Keys { session, config, peer, others: &mut others };
        if keys.try_all()? {
            return Ok("publickey");
        }
    }
    match others.is_empty() {
        true => Err(End::Failed(words::denied(config, &methods))),
        false => Err(End::Openssh(others.join("; "))),
    }
}

fn lost(error: &ssh2::Error, peer: &Peer) -> End {
    match words::is_cut(error) {
        true => End::Failed(vec![peer.closed("closed by")]),
        false => End::Openssh(format!("libssh2 cannot log in: {}", error.message())),
    }
}

/// An identity file of the configuration.
struct Identity<'a> {
    path: &'a Path,
    file: Option<KeyFile>,
    public: Option<Vec<u8>>,
}

struct Keys<'a> {
    session: &'a Session,
    config: &'a Config,
    peer: &'a Peer,
    others: &'a mut Vec<String>,
}

impl Keys<'_> {
    /// Tries keys as the OpenSSH client does: configured ones of the agent, others of the agent, files. Returns whether
    /// one was accepted.
    fn try_all(&mut self) -> Way<bool> {
        let identities: Vec<Identity<'_>> =
            self.config.identity_files.iter().map(|path| look_at(path)).collect();
        self.note_foreign(&identities);
        let mut tried = Vec::new();
        if let Some((agent, keys)) = self.open_agent() {
            let place = |key: &PublicKey| {
                identities.iter().position(|identity| identity.public.as_deref() == Some(key.blob()))
            };
            let mut keys: Vec<_> =
                keys.into_iter().map(|key| (place(&key).unwrap_or(usize::MAX), key)).collect();
            keys.sort_by_key(|(place, _)| *place);
            for (place, key) in keys {
                if (place == usize::MAX && self.config.identities_only) || !self.is_ours(type_of(key.blob()))
                {
                    continue;
                }
                if self.judge(agent.userauth(&self.config.user, &key), "a key of your agent")? {
                    return Ok(true);
                }
                tried.push(key.blob().to_vec());
            }
        }
        for identity in &identities {
            let known = identity.public.as_ref();
            let is_open = identity.file.as_ref().is_some_and(|file| !file.is_locked);
            if !is_open || known.is_some_and(|key| tried.contains(key) || !self.is_ours(type_of(key))) {
                continue;
            }
            // Without a passphrase libssh2 would dereference a null pointer.
            let done = self.session.userauth_pubkey_file(&self.config.user, None, identity.path, Some(""));
            if self.judge(done, &identity.path.display().to_string())? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Records keys that only the OpenSSH client can use.
    fn note_foreign(&mut self, identities: &[Identity<'_>]) {
        let certificates = identities.iter().map(|identity| with_suffix(identity.path, "-cert.pub"));
        if certificates.chain(self.config.certificate_files.iter().cloned()).any(|path| path.is_file()) {
            self.others.push("there is a certificate".to_owned());
        }
        let is_foreign =
            |identity: &Identity<'_>| identity.public.as_deref().and_then(type_of).is_some_and(is_foreign);
        if identities.iter().any(is_foreign) {
            self.others.push("there is a key on a security key".to_owned());
        }
        if self.config.pkcs11.is_some() {
            self.others.push("keys are on a smart card (PKCS11Provider)".to_owned());
        }
    }

    /// Opens the user's agent and reads its keys. A missing or silent agent is not an error.
    fn open_agent(&mut self) -> Option<(Agent, Vec<PublicKey>)> {
        let socket = self.config.agent.as_deref()?;
        let mut agent = self.session.agent().ok()?;
        agent.set_identity_path(socket).ok()?;
        agent.connect().ok()?;
        agent.list_identities().ok()?;
        let keys = agent.identities().ok()?;
        if keys.iter().filter_map(|key| type_of(key.blob())).any(is_foreign) {
            self.others.push("your agent has a certificate or a security key".to_owned());
        }
        Some((agent, keys))
    }

    /// Whether libssh2 can use keys of this type and the configuration allows it.
    fn is_ours(&self, key_type: Option<&str>) -> bool {
        let allowed = &self.config.public_key_algorithms;
        key_type.is_some_and(|key_type| {
            !is_foreign(key_type)
                && (allowed.is_empty() || allowed.iter().any(|name| type_of_algorithm(name) == key_type))
        })
    }

    /// Whether the host accepted a key.
    fn judge(&mut self, tried: Result<(), ssh2::Error>, what: &str) -> Way<bool> {
        match tried {
            Ok(()) => Ok(true),
            Err(error) if words::is_cut(&error) => Err(lost(&error, self.peer)),
            Err(error) => {
                say(&format!("debug1: {what}: {}", error.message()));
                if !matches!(error.code(), ErrorCode::Session(number) if NOT_TAKEN.contains(&number)) {
                    self.others.push(format!("libssh2 cannot use {what}: {}", error.message()));
                }
                Ok(false)
            }
        }
    }
}

fn look_at(path: &Path) -> Identity<'_> {
    let file = read(path).and_then(|text| parse_private(&text));
    let beside = || read(&with_suffix(path, ".pub")).and_then(|text| parse_public(&text));
    // A configured file may be a public key, whose private key is in the agent.
    let itself = || read(path).and_then(|text| parse_public(&text));
    let public = file.as_ref().and_then(|file| file.public.clone()).or_else(beside).or_else(itself);
    Identity { path, file, public }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn read(path: &Path) -> Option<String> {
    let mut text = String::new();
    File::open(path).ok()?.take(MAX_KEY_FILE_BYTES).read_to_string(&mut text).ok()?;
    Some(text)
}
