//! Checks whether the host has the key that is known for its name.

use std::path::Path;
use std::time::Duration;

use ssh2::{HashType, Session};

use crate::config::{Config, Strict};
use crate::keys::{to_base64, type_of};
use crate::known_hosts::{Known, Verdict, parse_found};
use crate::{End, Way, run_found, say, words};

/// The timeout for searching one file.
const SEARCH: Duration = Duration::from_secs(20);

/// Looks up the host in all files of the user and the system.
///
/// # Errors
/// ssh-keygen cannot be run.
pub(crate) fn find_known(config: &Config) -> Way<Known> {
    let mut known = Known::default();
    for file in config.known_hosts_files.iter().filter(|file| has_text(file)) {
        let args = ["-F".as_ref(), config.known_as.as_ref(), "-f".as_ref(), file.as_os_str()];
        // It also fails if it finds nothing.
        let (_, said) = run_found("ssh-keygen", &args, SEARCH)?;
        known.0.extend(parse_found(&String::from_utf8_lossy(&said), file));
    }
    Ok(known)
}

fn has_text(file: &Path) -> bool {
    std::fs::metadata(file).is_ok_and(|found| found.is_file() && found.len() > 0)
}

/// Checks the host's key.
///
/// # Errors
/// The key is refused, or only the OpenSSH client can check or remember it.
pub(crate) fn check(session: &Session, config: &Config, known: &Known) -> Way<()> {
    let (blob, _) = session.host_key().ok_or_else(|| End::Openssh("the host has shown no key".to_owned()))?;
    let hash = session.host_key_hash(HashType::Sha256);
    let hash = hash.ok_or_else(|| End::Openssh("libssh2 has no SHA256".to_owned()))?;
    let key_type = type_of(blob).unwrap_or("unknown");
    let fingerprint = format!("SHA256:{}", to_base64(hash));
    say(&format!("debug1: Server host key: {key_type} {fingerprint}"));
    match known.judge(key_type, &to_base64(blob)) {
        Verdict::Same => Ok(()),
        Verdict::Revoked => Err(End::Failed(words::revoked(config, key_type))),
        _ if known.has_authority() => {
            Err(End::Openssh("the host's key may be certified (@cert-authority)".to_owned()))
        }
        Verdict::Changed(_) if config.strict == Strict::No => {
            Err(End::Openssh("StrictHostKeyChecking is off, and the host's key has changed".to_owned()))
        }
        Verdict::Changed(entry) => Err(End::Failed(words::changed(config, key_type, &fingerprint, entry))),
        Verdict::Unknown if config.accepts_new() => {
            Err(End::Openssh("the host's key is new, and has to be recorded".to_owned()))
        }
        // The OpenSSH client may know keys of a type that libssh2 does not support.
        Verdict::Unknown if known.has_plain() => {
            Err(End::Openssh("the host is known by keys of other types".to_owned()))
        }
        Verdict::Unknown => Err(End::Failed(words::unknown(config, key_type))),
    }
}
