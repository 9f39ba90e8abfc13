//! The arguments of a launch: what is qsub's and what is ours, the program, its arguments.
//!
//! Ours are the options by which users of `mpiexec` say how many ranks there are and where they go; none of them is one of qsub's. Source: qsub(1B).

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use crate::slots::{MAX_RANKS, MapBy, parse_map_by};
use crate::{Error, Result};

/// What can stand before the program.
const ACCEPTED: &str = "options before the program: -n RANKS, --ppn RANKS, --nodes HOSTS, --map-by slot|node, options of qsub where a job is \
     to be submitted, and '--' to end them";

/// qsub's options that have a value, by their letter.
const WITH_VALUE: &[u8] = b"aAcCeJjklmMNopPqrRSuvW";

/// qsub's options that have none.
const WITHOUT: &[u8] = b"fGhIVXz";

/// What is to be launched, and where.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Options {
    /// qsub's own, as they were written.
    pub(super) qsub: Vec<OsString>,
    pub(super) ranks: Option<u32>,
    pub(super) per_host: Option<u32>,
    pub(super) first_hosts: Option<u32>,
    pub(super) map_by: MapBy,
    pub(super) program: OsString,
    pub(super) args: Vec<OsString>,
}

/// Parses the arguments. Everything after the program's name belongs to the program.
///
/// # Errors
/// An option that neither qsub nor we have, a number that is none, no program.
pub(super) fn parse_args(args: &[OsString]) -> Result<Options> {
    let mut options = Options::default();
    let mut rest = args.iter();
    options.program = loop {
        let Some(arg) = rest.next() else {
            return Err(Error::invalid_with("no program to launch", ACCEPTED));
        };
        if arg == "--" {
            let program = rest.next().cloned();
            break program.ok_or_else(|| Error::invalid_with("no program after '--'", ACCEPTED))?;
        }
        if !arg.as_bytes().starts_with(b"-") || arg == "-" {
            break arg.clone();
        }
        let missing = |what: &str| {
            Error::invalid_with(format!("option '{}' needs {what}", arg.to_string_lossy()), ACCEPTED)
        };
        let (name, value) = split_value(arg);
        let mut value =
            |what: &str| value.clone().or_else(|| rest.next().cloned()).ok_or_else(|| missing(what));
        if !options.take_ours(&name, &mut value)? {
            options.take_qsubs(arg, &mut rest)?;
        }
    };
    if options.program.is_empty() {
        return Err(Error::invalid_with("the program's name is empty", ACCEPTED));
    }
    options.args = rest.cloned().collect();
    Ok(options)
}

impl Options {
    /// Takes an option of ours; false: it is none.
    fn take_ours(&mut self, name: &str, value: &mut dyn FnMut(&str) -> Result<OsString>) -> Result<bool> {
        match name {
            "-n" | "-np" | "--np" | "--ntasks" => {
                self.ranks = Some(parse_count(name, &value("a number of ranks")?)?)
            }
            "-ppn" | "--ppn" | "-perhost" | "-npernode" | "--npernode" | "--ntasks-per-node" => {
                self.per_host = Some(parse_count(name, &value("a number of ranks")?)?);
            }
            "--nodes" => self.first_hosts = Some(parse_count(name, &value("a number of hosts")?)?),
            "--map-by" | "-map-by" => {
                self.map_by = parse_map_by(name, &value("'slot' or 'node'")?, ACCEPTED)?
            }
            "--bynode" | "-bynode" => self.map_by = MapBy::Node,
            "--byslot" | "-byslot" => self.map_by = MapBy::Slot,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Takes an option of qsub's: a letter, its value with it or after it.
    fn take_qsubs<'a>(
        &mut self,
        arg: &OsString,
        rest: &mut impl Iterator<Item = &'a OsString>,
    ) -> Result<()> {
        let unknown = || {
            let message = format!("unknown option '{}' before the program", arg.to_string_lossy());
            Error::invalid_with(message, ACCEPTED)
        };
        let Some((letter, attached)) = arg.as_bytes().get(1).zip(arg.as_bytes().get(2..)) else {
            return Err(unknown());
        };
        if WITHOUT.contains(letter) && attached.is_empty() {
            self.qsub.push(arg.clone());
            return Ok(());
        }
        if !WITH_VALUE.contains(letter) {
            return Err(unknown());
        }
        let value = match attached {
            [] => rest.next().cloned().ok_or_else(|| {
                Error::invalid_with(
                    format!("qsub's option '{}' needs a value", arg.to_string_lossy()),
                    ACCEPTED,
                )
            })?,
            attached => OsString::from_vec(attached.to_vec()),
        };
        let option = OsString::from_vec(vec![b'-', *letter]);
        self.qsub.extend([option, value]);
        Ok(())
    }
}

/// `--name=value` in two; a single dash has no such form.
fn split_value(arg: &OsStr) -> (String, Option<OsString>) {
    let text = arg.to_string_lossy();
    match text.split_once('=') {
        Some((name, value)) if name.starts_with("--") => (name.to_owned(), Some(value.into())),
        _ => (text.into_owned(), None),
    }
}

fn parse_count(option: &str, value: &OsStr) -> Result<u32> {
    let text = value.to_string_lossy();
    match text.parse::<u32>() {
        Ok(number) if (1..=MAX_RANKS).contains(&number) => Ok(number),
        _ => {
            let what = format!("'{option} {text}': not a number from 1 to {MAX_RANKS}");
            Err(Error::invalid_with(what, ACCEPTED))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is qsub's, the numbers, the program with its arguments; or the error.
    #[track_caller]
    fn check(args: &str, expected: &str) {
        let args: Vec<OsString> = args.split_whitespace().map(OsString::from).collect();
        let join = |words: &[OsString]| words.join(OsStr::new(" ")).to_string_lossy().into_owned();
        let shown = match parse_args(&args) {
            Ok(it) => {
                let number = |number: Option<u32>| number.map_or("-".to_owned(), |number| number.to_string());
                let numbers = [it.ranks, it.per_host, it.first_hosts].map(number).join("/");
                let program = [std::slice::from_ref(&it.program), &it.args].concat();
                format!("{} | {numbers} {:?} | {}", join(&it.qsub), it.map_by, join(&program))
            }
            Err(error) => error.to_string(),
        };
        assert_eq!(shown, expected, "{args:?}");
    }

    #[test]
    fn ours_and_qsubs() {
        check("./app -n 7", " | -/-/- Slot | ./app -n 7");
        check("-n 4 --ppn=2 --nodes 2 --map-by node ./app", " | 4/2/2 Node | ./app");
        check("-np 4 -- -odd", " | 4/-/- Slot | -odd");
        check(
            "-l select=2:ncpus=2 -lplace=scatter -n 4 -N name -V ./app x",
            "-l select=2:ncpus=2 -l place=scatter -N name -V | 4/-/- Slot | ./app x",
        );
    }

    #[test]
    fn what_makes_no_sense() {
        check("", "no program to launch");
        check("-n 4 --", "no program after '--'");
        check("-n", "option '-n' needs a number of ranks");
        check("-n 0 a", "'-n 0': not a number from 1 to 1000000");
        check("--ppn x a", "'--ppn x': not a number from 1 to 1000000");
        check("--map-by socket a", "'--map-by socket': ranks can be mapped by slot or by node");
        check("--wat a", "unknown option '--wat' before the program");
        check("-Vx a", "unknown option '-Vx' before the program");
        check("-l", "qsub's option '-l' needs a value");
    }
}
