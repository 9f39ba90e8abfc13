//! The job of this process: its hosts, the number of ranks on each, and the address of its mom. Everything comes from
//! the job's variables and its node file.

use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use super::tm::environment::NODE_FILE;
use super::tm::{Environment, TmError};
use crate::host::Host;
use crate::slots::HostSlots;
use crate::{Error, Result};

/// The place of this process in its job, with the host of every node.
///
/// # Errors
/// This process is not in a job, or the node file cannot be read.
pub(super) fn read_environment(host: &dyn Host) -> Result<Environment> {
    let environment = Environment::from_variables(|name| host.env(name).map(OsStringExt::into_vec))?;
    let missing = TmError::Environment { variable: NODE_FILE, problem: "is not set" };
    let path = PathBuf::from(host.env(NODE_FILE).ok_or(missing)?);
    let text = host.read(&path).map_err(|source| Error::Read { path, source })?;
    Ok(environment.with_node_file(&String::from_utf8_lossy(&text)).on_host(host.hostname()))
}

/// The hosts of a job in the order of its nodes. A host gets one rank for each of its nodes, which are places for MPI
/// processes.
///
/// # Errors
/// There is no host.
pub(super) fn build_slots(environment: &Environment) -> Result<Vec<HostSlots>> {
    let mut slots: Vec<HostSlots> = Vec::new();
    for name in environment.hosts.iter().flatten() {
        match slots.iter_mut().find(|known| known.name == *name) {
            Some(known) => (known.slots, known.stated) = (known.slots.saturating_add(1), true),
            None => slots.push(HostSlots { name: name.clone(), slots: 1, stated: false }),
        }
    }
    if slots.is_empty() {
        return Err(Error::invalid_with(
            "the job's node file names no host",
            "ask for places: -l select=2:mpiprocs=2",
        ));
    }
    Ok(slots)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::fake::FakeHost;

    fn job() -> FakeHost {
        let variables = [
            ("PBS_JOBID", "7.head"),
            ("PBS_JOBCOOKIE", "AB"),
            ("PBS_NODENUM", "0"),
            ("PBS_TASKNUM", "00000001"),
            ("PBS_MOMPORT", "15003"),
            ("PBS_NODEFILE", "/aux/7"),
        ];
        variables.iter().fold(FakeHost::default(), |host, (name, value)| host.with_env(name, value))
    }

    #[test]
    fn a_host_takes_as_many_ranks_as_it_has_lines() {
        let environment = read_environment(&job().with_file("/aux/7", "n1\nn1\nn2\n")).unwrap();
        let slots = build_slots(&environment).unwrap();
        let shown: Vec<_> = slots.iter().map(|it| (it.name.as_str(), it.slots, it.stated)).collect();
        assert_eq!(shown, [("n1", 2, true), ("n2", 1, false)]);
    }

    #[test]
    fn outside_of_a_job_the_error_names_the_missing_variables() {
        let error = read_environment(&FakeHost::default()).unwrap_err();
        assert!(error.to_string().contains("PBS_JOBID is not set"), "{error}");
        let error = read_environment(&job()).unwrap_err();
        assert_eq!(error.to_string(), "cannot read /aux/7");
        let empty = read_environment(&job().with_file("/aux/7", "")).unwrap();
        assert_eq!(build_slots(&empty).unwrap_err().to_string(), "the job's node file names no host");
    }
}
