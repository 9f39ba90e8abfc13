//! How processes name a rendezvous: `serviceURL?resourceID`, as GT4 has it.
//!
//! The service is the agent of the process's own node, the resource is one of the rendezvous that it knows. The agent's socket is in the abstract name space of its
//! node. Its name follows from the app's secret, so that no other user can take it first. It is no secret once it is bound: both ends check the other's user, and
//! the agent finds out itself which rank speaks.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::secret::Secret;
use crate::storage;
use gantry_types::id::{AppId, Pid};

/// What a handle's service begins with. What follows is the name of a socket in the abstract name space.
const SCHEME: &str = "gantry+unix://@";

/// The name of the agent's socket for ranks.
///
/// An agent has one as soon as it runs, before its ranks do and before it has a number; so it is its pid that tells apart those that share a machine.
#[must_use]
pub fn build_service_name(app: AppId, secret: &Secret, agent: Pid) -> String {
    format!("gantry-rendezvous-{app}-{}", secret.derive(&format!("rendezvous of agent {agent}")))
}

/// The same, of an agent that is alone on its node: ranks that are started before it, without its help, are told this one.
#[must_use]
pub fn build_node_service_name(app: AppId, secret: &Secret) -> String {
    format!("gantry-rendezvous-{app}-{}", secret.derive("rendezvous of the node"))
}

/// A text that is no handle, or no part of one.
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

/// A rendezvous above apps. It looks as an app's id does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct MultijobId(pub AppId);

impl fmt::Display for MultijobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// A rendezvous, as the processes of one app name it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Resource {
    /// The one that every app has, of all its ranks. Level 1.
    Job,
    /// One that the app's processes have created. Level 1.
    Named(Name),
    /// One above. Level 2 and higher.
    Multijob(MultijobId),
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Job => f.write_str("job"),
            Self::Named(name) => write!(f, "job/{name}"),
            Self::Multijob(id) => write!(f, "multijob/{id}"),
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

/// What a process needs to reach a rendezvous.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Handle {
    /// The agent's socket, a name in the abstract name space.
    pub service: String,
    /// Which rendezvous.
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

/// An app's place in a multijob.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subjob {
    /// The multijob.
    pub multijob: MultijobId,
    /// The app's number in it, from 0.
    pub rank: u32,
}

/// All variables by which ranks may find a rendezvous. Those of an app around this one mean nothing in it.
pub const VARIABLES: [&str; 6] = [
    storage::GANTRY_JOB_HANDLE,
    storage::GANTRY_MULTIJOB_HANDLE,
    storage::GANTRY_SUBJOB_RANK,
    storage::GLOBUS_GRAM_JOB_HANDLE,
    storage::GLOBUS_GRAM_MULTIJOB_HANDLE,
    storage::GLOBUS_GRAM_SUBJOB_RANK,
];

/// The variables by which ranks find their rendezvous: ours, and beside them those that GT4 has.
#[must_use]
pub fn build_variables(service: &str, subjob: Option<Subjob>) -> Vec<(&'static str, String)> {
    use crate::storage::{
        GANTRY_JOB_HANDLE, GANTRY_MULTIJOB_HANDLE, GANTRY_SUBJOB_RANK, GLOBUS_GRAM_JOB_HANDLE,
        GLOBUS_GRAM_MULTIJOB_HANDLE, GLOBUS_GRAM_SUBJOB_RANK,
    };
    let handle = |resource| Handle { service: service.to_owned(), resource }.to_string();
    let job = handle(Resource::Job);
    let mut variables = vec![(GANTRY_JOB_HANDLE, job.clone()), (GLOBUS_GRAM_JOB_HANDLE, job)];
    if let Some(Subjob { multijob, rank }) = subjob {
        let multijob = handle(Resource::Multijob(multijob));
        variables.extend([
            (GANTRY_MULTIJOB_HANDLE, multijob.clone()),
            (GLOBUS_GRAM_MULTIJOB_HANDLE, multijob),
            (GANTRY_SUBJOB_RANK, rank.to_string()),
            (GLOBUS_GRAM_SUBJOB_RANK, rank.to_string()),
        ]);
    }
    variables
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
        let (one, other) = (Secret::random().unwrap(), Secret::random().unwrap());
        let names = [&one, &other].map(|secret| {
            let agents = [7, 8].map(|pid| build_service_name(app, secret, Pid::new(pid).unwrap()));
            let [seven, eight] = agents;
            [seven, eight, build_node_service_name(app, secret)]
        });
        let names = names.as_flattened();
        let different: std::collections::HashSet<_> = names.iter().collect();
        assert_eq!(different.len(), 6, "{names:?}");
        for name in names {
            let handle = Handle { service: name.clone(), resource: Resource::Job };
            assert_eq!(handle.to_string().parse::<Handle>().unwrap(), handle);
        }
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

    #[test]
    fn a_subjobs_variables_stand_under_both_names() {
        let subjob = Subjob { multijob: MultijobId("3kx9w0fz".parse().unwrap()), rank: 2 };
        let variables = build_variables("x", Some(subjob));
        let names: Vec<&str> = variables.iter().map(|(name, _)| *name).collect();
        assert_eq!(names.len(), 6);
        for name in ["JOB_HANDLE", "MULTIJOB_HANDLE", "SUBJOB_RANK"] {
            let value =
                |prefix: &str| variables.iter().find(|(known, _)| **known == format!("{prefix}{name}"));
            assert_eq!(value("GANTRY_").unwrap().1, value("GLOBUS_GRAM_").unwrap().1);
        }
        assert_eq!(build_variables("x", None).len(), 2);
    }
}
