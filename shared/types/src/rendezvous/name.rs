//! Names of a rendezvous: `serviceURL?resourceID`, as in GT4.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::id::AppId;

/// The prefix of a handle's service. The name of a socket in the abstract namespace follows.
const SCHEME: &str = "gantry+unix://@";

/// The text is not a valid handle, or not a valid part of one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("read {what} '{text}'")]
pub struct NotAHandle {
    what: &'static str,
    text: String,
}

impl NotAHandle {
    fn new(what: &'static str, text: &str) -> Self {
        Self { what, text: text.chars().take(200).collect() }
    }
}

/// The name of a rendezvous that processes of an app have created: 1 to 64 letters, digits, `.`, `_` and `-`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(String);

impl Name {
    /// The most characters.
    pub const MAX_CHARS: usize = 64;
}

impl FromStr for Name {
    type Err = NotAHandle;

    fn from_str(text: &str) -> Result<Self, NotAHandle> {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if (1..=Self::MAX_CHARS).contains(&text.len()) && text.bytes().all(fits) {
            return Ok(Self(text.to_owned()));
        }
        Err(NotAHandle::new("the name of a rendezvous", text))
    }
}

impl TryFrom<String> for Name {
    type Error = NotAHandle;

    fn try_from(text: String) -> Result<Self, NotAHandle> {
        text.parse()
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A rendezvous of apps. Its id has the form of an app's id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct MultijobId(pub AppId);

impl fmt::Display for MultijobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// A rendezvous, as named in the processes of one app.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Resource {
    /// The app's own, of all its ranks. Level 1.
    Job,
    /// One that the app's processes created. Level 1.
    Named(Name),
    /// One of several apps. Level 2 and higher.
    Multijob(MultijobId),
    /// A fence of the ranks' MPI world, by its number. Its members are the app's nodes; processes cannot join it.
    Fence(u32),
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Job => f.write_str("job"),
            Self::Named(name) => write!(f, "job/{name}"),
            Self::Multijob(id) => write!(f, "multijob/{id}"),
            Self::Fence(number) => write!(f, "fence/{number}"),
        }
    }
}

impl FromStr for Resource {
    type Err = NotAHandle;

    fn from_str(text: &str) -> Result<Self, NotAHandle> {
        let wrong = || NotAHandle::new("a rendezvous's resource", text);
        match text.split_once('/') {
            None if text == "job" => Ok(Self::Job),
            Some(("job", name)) => name.parse().map(Self::Named),
            Some(("multijob", id)) => Ok(Self::Multijob(MultijobId(id.parse().map_err(|_| wrong())?))),
            _ => Err(wrong()),
        }
    }
}

/// The address of a rendezvous for a process.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Handle {
    /// The agent's socket, a name in the abstract name space.
    pub service: String,
    /// The rendezvous.
    pub resource: Resource,
}

impl fmt::Display for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}?{}", self.service, self.resource)
    }
}

impl FromStr for Handle {
    type Err = NotAHandle;

    fn from_str(text: &str) -> Result<Self, NotAHandle> {
        let wrong = || NotAHandle::new("a rendezvous's handle", text);
        let (service, resource) =
            text.strip_prefix(SCHEME).and_then(|rest| rest.split_once('?')).ok_or_else(wrong)?;
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        // A socket's name has at most 107 bytes.
        if !(1..=100).contains(&service.len()) || !service.bytes().all(fits) {
            return Err(wrong());
        }
        Ok(Self { service: service.to_owned(), resource: resource.parse()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, resource: Resource) {
        let handle: Handle = text.parse().unwrap();
        assert_eq!(
            (handle.service.as_str(), &handle.resource),
            ("gantry-rendezvous-0-3kx9w0fz-7", &resource)
        );
        assert_eq!(handle.to_string(), text);
    }

    #[test]
    fn handles_read_back() {
        let app: AppId = "3kx9w0fz".parse().unwrap();
        check("gantry+unix://@gantry-rendezvous-0-3kx9w0fz-7?job", Resource::Job);
        let named = Resource::Named("ring.1".parse().unwrap());
        check("gantry+unix://@gantry-rendezvous-0-3kx9w0fz-7?job/ring.1", named);
        let above = Resource::Multijob(MultijobId(app));
        check("gantry+unix://@gantry-rendezvous-0-3kx9w0fz-7?multijob/3kx9w0fz", above);
    }

    #[test]
    fn other_texts_are_no_handles() {
        for text in [
            "",
            "job",
            "gantry+unix://@?job",
            "gantry+unix://@x",
            "gantry+unix://@x?",
            "gantry+unix://@x?jobs",
            "gantry+unix://@x?job/",
            "gantry+unix://@x?job/a/b",
            "gantry+unix://@x?multijob",
            "gantry+unix://@x?fence/1",
            "gantry+unix://@x?multijob/short",
            "gantry+unix://@a b?job",
            "https://host/service?job",
        ] {
            assert!(text.parse::<Handle>().is_err(), "{text}");
        }
        let long = "a".repeat(Name::MAX_CHARS + 1);
        assert!(long.parse::<Name>().is_err());
        let bytes = postcard::to_stdvec("no name").unwrap();
        assert!(postcard::from_bytes::<Name>(&bytes).is_err());
    }
}
