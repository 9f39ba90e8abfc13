//! A job's description as arguments.

use std::ffi::OsString;

use crate::wanted::{JobType, Wanted};
use crate::{Error, Result};

pub(super) fn build_args(wanted: &Wanted) -> Result<Vec<OsString>> {
    wanted.refuse(
        "localhost",
        &[
            ("a place behind '://'", wanted.place.is_some()),
            ("queue", wanted.queue.is_some()),
            ("project", wanted.project.is_some()),
            ("maxWallTime", wanted.max_minutes.is_some()),
            ("minMemory", wanted.min_memory_mb.is_some()),
            ("maxMemory", wanted.max_memory_mb.is_some()),
        ],
    )?;
    let processes = match wanted.job_type {
        JobType::Multiple => wanted.count,
        JobType::Single => 1,
        JobType::Mpi => {
            return Err(Error::invalid_with(
                "localhost starts processes without an MPI launcher, and cannot honour jobType=mpi",
                "use jobType=multiple, or have the program start its launcher itself",
            ));
        }
    };
    let mut args: Vec<OsString> = vec!["-n".into(), processes.to_string().into()];
    if let Some(hosts) = wanted.host_count {
        args.extend(["-N".into(), hosts.to_string().into()]);
    }
    args.push("--".into());
    args.push(wanted.program.clone());
    args.extend(wanted.args.iter().cloned());
    Ok(args)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wanted_becomes_arguments_and_what_cannot_be_had_is_named() {
        let wanted = Wanted { count: 4, program: "-odd".into(), args: vec!["x".into()], ..Wanted::default() };
        assert_eq!(build_args(&wanted).unwrap(), ["-n", "4", "--", "-odd", "x"]);
        let two = Wanted { host_count: Some(2), ..wanted.clone() };
        assert_eq!(build_args(&two).unwrap(), ["-n", "4", "-N", "2", "--", "-odd", "x"]);
        let single = Wanted { job_type: JobType::Single, ..wanted.clone() };
        assert_eq!(build_args(&single).unwrap()[..2], ["-n", "1"]);
        let refused = |wanted: Wanted| build_args(&wanted).unwrap_err().to_string();
        assert_eq!(
            refused(Wanted { max_minutes: Some(1), ..wanted.clone() }),
            "localhost cannot honour maxWallTime"
        );
        assert_eq!(
            refused(Wanted { queue: Some("q".into()), ..wanted.clone() }),
            "localhost cannot honour queue"
        );
        assert!(refused(Wanted { job_type: JobType::Mpi, ..wanted }).contains("jobType=mpi"));
    }
}
