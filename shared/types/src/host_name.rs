//! The name of a host, as it may be given to other programs.
//!
//! Names come from launchers' tables, XML, host files, command lines and the wire. They become arguments of commands
//! that connect to the hosts, and parts of these commands' configuration. So every input is checked. A name has
//! letters, digits, `-`, `_` and `.`, or is an IPv6 address, and never begins with `-`. It cannot be an option, a
//! login (`user@host`) or shell syntax.

use std::fmt;
use std::net::Ipv6Addr;
use std::ops::Deref;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::host_set::{HostProblem, MAX_HOST_CHARS, is_name_char};

/// The name or address of a host.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct HostName(String);

/// A text is not the name of a host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{name}' is not the name of a host: {problem}")]
pub struct HostNameError {
    /// The text, or its beginning.
    pub name: String,
    /// The problem.
    pub problem: HostProblem,
}

/// How much of a wrong name an error repeats.
const SHOWN_CHARS: usize = 80;

impl HostName {
    /// Checks a name.
    ///
    /// # Errors
    /// The problem of the name.
    pub fn new(name: impl Into<String>) -> Result<Self, HostNameError> {
        let name = name.into();
        check_host_name(&name)?;
        Ok(Self(name))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Whether a text is the name of a host.
///
/// # Errors
/// The problem of the name.
pub fn check_host_name(name: &str) -> Result<(), HostNameError> {
    let wrong = |problem| Err(HostNameError { name: name.chars().take(SHOWN_CHARS).collect(), problem });
    if name.is_empty() {
        return wrong(HostProblem::Empty);
    }
    if name.len() > MAX_HOST_CHARS {
        return wrong(HostProblem::TooLong);
    }
    if name.starts_with('-') {
        return wrong(HostProblem::Dash);
    }
    let (address, zone) = name.split_once('%').unwrap_or((name, ""));
    if address.parse::<Ipv6Addr>().is_ok() && zone.chars().all(is_name_char) {
        return Ok(());
    }
    match name.chars().find(|sign| !is_name_char(*sign)) {
        Some(sign) => wrong(HostProblem::Character(sign)),
        None => Ok(()),
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl Deref for HostName {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for HostName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl FromStr for HostName {
    type Err = HostNameError;

    fn from_str(name: &str) -> Result<Self, HostNameError> {
        Self::new(name)
    }
}

impl TryFrom<String> for HostName {
    type Error = HostNameError;

    fn try_from(name: String) -> Result<Self, HostNameError> {
        Self::new(name)
    }
}

impl From<HostName> for String {
    fn from(name: HostName) -> Self {
        name.0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_and_addresses_of_hosts() {
        for name in ["n1", "n_1-a.example.org", "10.0.0.7", "fe80::1", "fe80::1%eth0", "::1", "N1."] {
            assert_eq!(HostName::new(name).unwrap().as_str(), name);
        }
    }

    #[test]
    fn syntax_of_other_programs_is_no_name() {
        let check = |name: &str, problem| {
            assert_eq!(HostName::new(name).unwrap_err().problem, problem, "{name:?}");
        };
        check("", HostProblem::Empty);
        check("-oProxyCommand=touch x", HostProblem::Dash);
        check("$(id)", HostProblem::Character('$'));
        check("me@other", HostProblem::Character('@'));
        check("a b", HostProblem::Character(' '));
        check("a\nb", HostProblem::Character('\n'));
        check("a;b", HostProblem::Character(';'));
        check("a:22", HostProblem::Character(':'));
        check("fe80::1%$x", HostProblem::Character(':'));
        check("nä", HostProblem::Character('ä'));
        check(&"n".repeat(MAX_HOST_CHARS + 1), HostProblem::TooLong);
    }

    #[test]
    fn a_name_from_the_wire_is_checked() {
        let name = HostName::new("n1").unwrap();
        assert_eq!(serde_json::from_str::<HostName>("\"n1\"").unwrap(), name);
        let error = serde_json::from_str::<HostName>("\"-x\"").unwrap_err();
        assert!(error.to_string().contains("'-x' is not the name of a host"), "{error}");
    }

    proptest! {
        #[test]
        fn a_name_is_one_word_to_a_shell_and_no_option(text in "\\PC{0,12}|[-a-z@$`;:%. \n]{0,8}") {
            if let Ok(name) = HostName::new(text) {
                prop_assert!(!name.starts_with('-'));
                prop_assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.:%".contains(c)), "{name}");
            }
        }
    }
}
