//! The arguments of a launch: qsub's options, gantry's options, the program, its arguments.
//!
//! gantry's options are those of `mpiexec` for the number and placement of ranks; none of them is an option of qsub.
//! Source: qsub(1B).

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use crate::direct::{self, Dialect, Given};
use crate::{Error, Result};

/// Options before the program, in addition to those of all WLMs. `-N` is qsub's.
const DIALECT: Dialect = Dialect {
    nodes: &["--nodes"],
    own: "--nodes HOSTS, options of qsub where a job is to be submitted, ",
    letter_labels: false,
};

/// qsub's options that have a value, by their letter.
const WITH_VALUE: &[u8] = b"aAcCeJjklmMNopPqrRSuvW";

/// qsub's options that have none.
const WITHOUT: &[u8] = b"fGhIVXz";

/// The program and its placement.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Options {
    /// qsub's own options, as they were written.
    pub(super) qsub: Vec<OsString>,
    pub(super) common: direct::Options,
}

/// Parses the arguments.
///
/// # Errors
/// An option that neither qsub nor gantry has, an invalid number, no program.
pub(super) fn parse_args(args: &[OsString]) -> Result<Options> {
    let mut qsub = Vec::new();
    let common = direct::parse_args(args, DIALECT, &mut |given| take_qsubs(&mut qsub, given))?;
    Ok(Options { qsub, common })
}

/// Takes an option of qsub: a letter, with its value attached or in the next word. False: it is not one.
fn take_qsubs(qsub: &mut Vec<OsString>, given: &mut Given<'_, '_>) -> Result<bool> {
    let (letter, attached) = match given.arg.as_bytes() {
        [b'-', letter, attached @ ..] => (*letter, attached),
        _ => return Ok(false),
    };
    if WITHOUT.contains(&letter) && attached.is_empty() {
        qsub.push(given.arg.clone());
        return Ok(true);
    }
    if !WITH_VALUE.contains(&letter) {
        return Ok(false);
    }
    let value = match attached {
        [] => given.next().ok_or_else(|| {
            let what = format!("qsub's option '{}' needs a value", given.name);
            Error::invalid_with(what, "qsub's manual page says which")
        })?,
        attached => OsString::from_vec(attached.to_vec()),
    };
    qsub.extend([OsString::from_vec(vec![b'-', letter]), value]);
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// qsub's options, and the number of hosts and of ranks; or the error.
    #[track_caller]
    fn check(args: &str, expected: &str) {
        let args: Vec<OsString> = args.split_whitespace().map(OsString::from).collect();
        let shown = match parse_args(&args) {
            Ok(it) => {
                let number = |number: Option<u32>| number.map_or("-".to_owned(), |number| number.to_string());
                let qsub = it.qsub.join(std::ffi::OsStr::new(" "));
                format!("{} | {}/{}", qsub.display(), number(it.common.nodes), number(it.common.ranks))
            }
            Err(error) => error.to_string(),
        };
        assert_eq!(shown, expected, "{args:?}");
    }

    #[test]
    fn ours_and_qsubs() {
        check("./app -n 7", " | -/-");
        check("-n 4 --ppn=2 --nodes 2 --map-by node ./app", " | 2/4");
        check("-np 4 -- -odd", " | -/4");
        check(
            "-l select=2:ncpus=2 -lplace=scatter -n 4 -N name -V -env A 1 ./app x",
            "-l select=2:ncpus=2 -l place=scatter -N name -V | -/4",
        );
    }

    #[test]
    fn invalid_arguments() {
        check("-Vx a", "unknown option '-Vx' before the program");
        check("--wat a", "unknown option '--wat' before the program");
        check("-l", "qsub's option '-l' needs a value");
    }
}
