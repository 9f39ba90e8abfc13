//! Finds the workload manager of a subjob from its `resourceManagerContact`.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::PathBuf;

use gantry_wlm::{Host, Wlm, registry};

use crate::error::{Error, Result};

/// The variable that names the file of contacts.
pub(crate) const GANTRY_CONTACTS: &str = "GANTRY_CONTACTS";

/// Longest file of contacts, in bytes.
const MOST_BYTES: usize = 1 << 20;

/// A workload manager, and a part of its machines.
#[derive(Debug, Clone)]
pub(crate) struct Contact {
    /// The manager.
    pub(crate) wlm: &'static dyn Wlm,
    /// A partition, a queue or hosts, in the manager's own syntax.
    pub(crate) place: Option<String>,
}

/// Names that a user or a site has given to contacts. The file has lines `NAME CONTACT`, with comments from `#` on. A
/// name may stand for another name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Contacts(BTreeMap<String, String>);

impl Contacts {
    /// Reads the file that `GANTRY_CONTACTS` names, else `gantry/contacts` in the user's directory for configuration. A
    /// missing file has no names.
    ///
    /// # Errors
    /// The file is unreadable or has a malformed line.
    pub(crate) fn load(host: &dyn Host) -> Result<Self> {
        let named = host.env(GANTRY_CONTACTS).map(PathBuf::from);
        let is_named = named.is_some();
        let usual = || {
            let config = host.env("XDG_CONFIG_HOME").map(PathBuf::from);
            let config = config.or_else(|| Some(PathBuf::from(host.env("HOME")?).join(".config")));
            config.map(|config| config.join("gantry/contacts"))
        };
        let Some(path) = named.or_else(usual) else { return Ok(Self::default()) };
        let text = match host.read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound && !is_named => return Ok(Self::default()),
            Err(error) => {
                return Err(Error::io(format!("cannot read contacts from {}", path.display()), error));
            }
        };
        let text = String::from_utf8_lossy(&text);
        Self::parse(&text).map_err(|why| Error::invalid(format!("{}: {why}", path.display())))
    }

    /// Reads the names in the text of such a file.
    ///
    /// # Errors
    /// The malformed line.
    pub(crate) fn parse(text: &str) -> std::result::Result<Self, String> {
        if text.len() > MOST_BYTES {
            return Err(format!("{} bytes; {MOST_BYTES} are allowed", text.len()));
        }
        let mut names = BTreeMap::new();
        for (line, number) in text.lines().zip(1..) {
            let line = line.split('#').next().unwrap_or("").trim();
            if line.is_empty() {
                continue;
            }
            let words: Vec<&str> = line.split_whitespace().collect();
            let [name, contact] = words.as_slice() else {
                return Err(format!("line {number}: expected NAME CONTACT, found '{line}'"));
            };
            names.insert((*name).to_owned(), (*contact).to_owned());
        }
        Ok(Self(names))
    }

    /// Resolves `text`: a name, else the name of a workload manager, optionally followed by `://` and a place of it.
    ///
    /// # Errors
    /// There is no such name or workload manager, or names refer to each other in a circle.
    pub(crate) fn resolve(&self, text: &str) -> Result<Contact> {
        let mut meant = text;
        let mut left = self.0.len();
        while let Some(next) = self.0.get(meant) {
            if next == meant {
                break;
            }
            left = left.checked_sub(1).ok_or_else(|| {
                Error::invalid(format!("the contact '{text}' leads back to itself: see {GANTRY_CONTACTS}"))
            })?;
            meant = next;
        }
        let (name, place) = match meant.split_once("://") {
            Some((name, place)) => {
                (name, Some(place.trim_end_matches('/')).filter(|place| !place.is_empty()))
            }
            None => (meant, None),
        };
        let wlm = registry::find(name).map_err(|_unknown| self.unknown(text))?;
        Ok(Contact { wlm, place: place.map(str::to_owned) })
    }

    fn unknown(&self, text: &str) -> Error {
        let known: Vec<&str> =
            registry::names().into_iter().chain(self.0.keys().map(String::as_str)).collect();
        Error::Invalid {
            message: format!("no workload manager and no contact is named '{text}'"),
            hint: Some(format!("known: {}", known.join(", "))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contacts_are_managers_places_and_names() {
        let contacts = Contacts::parse(
            "# of this site\nhere localhost # this machine\nmine here\nlost elsewhere\na b\nb a\n",
        )
        .unwrap();
        let check = |text: &str, expected: std::result::Result<(&str, Option<&str>), &str>| {
            let got = contacts.resolve(text);
            let got =
                got.as_ref().map(|it| (it.wlm.name(), it.place.as_deref())).map_err(ToString::to_string);
            assert_eq!(got, expected.map_err(str::to_owned), "{text}");
        };
        check("localhost", Ok(("localhost", None)));
        check("LocalHost://here/", Ok(("localhost", Some("here"))));
        check("localhost://", Ok(("localhost", None)));
        check("mine", Ok(("localhost", None)));
        check("lost", Err("no workload manager and no contact is named 'lost'"));
        check("", Err("no workload manager and no contact is named ''"));
        check("a", Err("the contact 'a' leads back to itself: see GANTRY_CONTACTS"));
        let bad = Contacts::parse("x y\n\nx y z").unwrap_err();
        assert_eq!(bad, "line 3: expected NAME CONTACT, found 'x y z'");
    }
}
