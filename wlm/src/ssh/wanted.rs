//! Converts a job's requirements to the arguments of a launch over ssh. The place after `ssh://` is a list of hosts.

use std::ffi::OsString;

use crate::wanted::build_plain_args;
use crate::{Error, Result};
use gantry_types::launch::Wanted;

/// The arguments for `wanted`.
///
/// # Errors
/// A requirement that ssh does not support; none is ignored silently.
pub(super) fn build_args(wanted: &Wanted) -> Result<Vec<OsString>> {
    let Some(place) = &wanted.place else {
        return Err(Error::invalid_with("no hosts are named", "write ssh://n[1-4] where the job is to run"));
    };
    let mut args: Vec<OsString> = vec!["--hosts".into(), place.into()];
    args.extend(build_plain_args(wanted, "ssh")?);
    Ok(args)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_hosts_and_unsupported_attributes_are_named() {
        let wanted = Wanted { count: 4, program: "-odd".into(), args: vec!["x".into()], ..Wanted::default() };
        assert_eq!(build_args(&wanted).unwrap_err().to_string(), "no hosts are named");
        let there = Wanted { place: Some("n[1-2]:2".into()), host_count: Some(2), ..wanted };
        let expected = ["--hosts", "n[1-2]:2", "-n", "4", "-N", "2", "--", "-odd", "x"];
        assert_eq!(build_args(&there).unwrap(), expected);
        let queued = Wanted { queue: Some("q".into()), ..there };
        assert!(build_args(&queued).unwrap_err().to_string().contains("queue"));
    }
}
