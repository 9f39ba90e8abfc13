//! A job's description as arguments.

use std::ffi::OsString;

use crate::wanted::build_plain_args;
use crate::{Error, Result};
use gantry_types::launch::Wanted;

pub(super) fn build_args(wanted: &Wanted) -> Result<Vec<OsString>> {
    if wanted.place.is_some() {
        return Err(Error::invalid_with("localhost cannot honour a place behind '://'", "leave it out"));
    }
    build_plain_args(wanted, "localhost")
}

#[cfg(test)]
mod tests {
    use super::*;
    use gantry_types::launch::JobType;

    #[test]
    fn a_job_becomes_arguments_and_unsupported_attributes_are_named() {
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
        let mpi = Wanted { job_type: JobType::Mpi, ..wanted.clone() };
        assert_eq!(build_args(&mpi).unwrap(), build_args(&wanted).unwrap());
    }
}
