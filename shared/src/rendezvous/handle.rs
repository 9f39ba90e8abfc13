//! How processes find the service of a rendezvous. Its handles are in [`gantry_types::rendezvous`].
//!
//! The service is the agent of the process's own node; the resource is a rendezvous that it knows. The agent's socket
//! is in the abstract namespace of its node. Its name is derived from the app's secret, so that no other user can
//! take it first. Once bound, the name is public: both ends check the other's user, and the agent determines itself
//! which rank speaks.

use gantry_types::id::{AppId, Pid};
use gantry_types::rendezvous::{Handle, MultijobId, Resource};
use serde::{Deserialize, Serialize};

use crate::secret::Secret;
use crate::storage;

/// The name of the agent's socket for ranks.
///
/// An agent has the socket from its start, before its ranks exist and before it has a number. So its pid
/// distinguishes agents on one machine.
#[must_use]
pub fn build_service_name(app: AppId, secret: &Secret, agent: Pid) -> String {
    format!("gantry-rendezvous-{app}-{}", secret.derive(&format!("rendezvous of agent {agent}")))
}

/// The name for an agent that is alone on its node. Ranks that start before it, without its help, get this one.
#[must_use]
pub fn build_node_service_name(app: AppId, secret: &Secret) -> String {
    format!("gantry-rendezvous-{app}-{}", secret.derive("rendezvous of the node"))
}

/// An app's place in a multijob.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subjob {
    /// The multijob.
    pub multijob: MultijobId,
    /// The app's number in it, from 0.
    pub rank: u32,
}

/// All variables by which ranks may find a rendezvous. Inherited values of an outer app are invalid in this one.
pub const VARIABLES: [&str; 6] = [
    storage::GANTRY_JOB_HANDLE,
    storage::GANTRY_MULTIJOB_HANDLE,
    storage::GANTRY_SUBJOB_RANK,
    storage::GLOBUS_GRAM_JOB_HANDLE,
    storage::GLOBUS_GRAM_MULTIJOB_HANDLE,
    storage::GLOBUS_GRAM_SUBJOB_RANK,
];

/// The variables by which ranks find their rendezvous: gantry's own, and those of GT4.
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
