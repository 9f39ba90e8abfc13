//! Tests where each launcher's program is found, and compares the tables with the launchers' own help.

use std::ffi::{OsStr, OsString};

use proptest::prelude::*;

use super::dialect::Dialect;
use super::facts::parse_rank_facts;
use super::files::rewrite_file;
use super::hydra::HYDRA;
use super::openmpi::OPEN_MPI;
use super::options::{Part, locate};
use super::rewrite::{replace_file, rewrite};
use super::table::LAUNCHERS;
use super::variables::RankSide;

pub(crate) mod help;

pub(crate) fn words(text: &str) -> Vec<OsString> {
    text.split_whitespace().map(OsString::from).collect()
}

/// Checks `args` with `S --` in front of each program, or the error. `|` is removed: it marks where our options go.
pub(crate) fn check(dialect: &'static Dialect, args: &str, expected: Result<&str, &str>) {
    let args = words(args);
    let found = locate(dialect, &args, &[]).map_err(|error| error.to_string()).map(|parts| {
        let written = rewrite(dialect, &args, &parts, |_| vec!["|".into()], &["S".into()]);
        written.join(" ".as_ref()).into_string().unwrap()
    });
    assert_eq!(found.as_deref().map_err(String::as_str), expected, "{args:?}");
}

/// The rank facts of an environment: rank, number of ranks, and place on the node.
pub(crate) type Expected = (u32, u32, Option<(u32, u32)>);

pub(crate) fn check_facts(text: &str, by: Option<&RankSide>, expected: Result<Expected, &str>) {
    let entries = text.split_whitespace().filter_map(|entry| entry.split_once('='));
    let environment: Vec<(&OsStr, &OsStr)> =
        entries.map(|(name, value)| (name.as_ref(), value.as_ref())).collect();
    let found = parse_rank_facts(&environment, by)
        .map(|facts| (facts.rank, facts.size, facts.local.map(|local| (local.rank, local.size))))
        .map_err(|error| error.to_string());
    assert_eq!(found, expected.map_err(str::to_owned), "{text}");
}

/// Checks a file with programs after `shim` is put in front of each, or the error.
pub(crate) fn check_rewritten(
    dialect: &'static Dialect,
    text: &str,
    shim: &[&str],
    expected: Result<&str, &str>,
) {
    let shim: Vec<OsString> = shim.iter().map(OsString::from).collect();
    let found = rewrite_file(dialect, text.as_bytes(), &shim)
        .map(|text| String::from_utf8(text).unwrap())
        .map_err(|error| error.to_string());
    assert_eq!(found.as_deref().map_err(String::as_str), expected, "{text}");
}

fn unknown(option: &str, launcher: &str) -> String {
    format!("cannot tell where the program begins: option '{option}' of {launcher} is unknown or ambiguous")
}

#[test]
fn an_unknown_option_asks_for_the_marker_and_takes_it() {
    for (dialect, option, marker) in [(&HYDRA, "-odd", "|"), (&OPEN_MPI, "--display-topo", "| --")] {
        check(dialect, &format!("-n 2 {option} x a"), Err(&unknown(option, dialect.name)));
        check(dialect, &format!("-n 2 {option} x -- a b"), Ok(&format!("-n 2 {option} x {marker} S a b")));
        let error = locate(dialect, &words(&format!("{option} x a")), &[]).unwrap_err();
        assert_eq!(error.hint().as_deref(), Some("write '--' before the program"));
    }
}

#[test]
fn hydra_takes_any_dashes_and_any_case() {
    check(&HYDRA, "-n 2 a", Ok("-n 2 | S a"));
    check(&HYDRA, "--np=4 -PPN 2 a", Ok("--np=4 -PPN 2 | S a"));
    check(&HYDRA, "-genv A B -env C=D -genvall a", Ok("-genv A B -env C=D -genvall | S a"));
    check(&HYDRA, "-genv=A B a", Ok("-genv=A B | S a"));
    check(&HYDRA, "-l -n 1 a x : -n 1 b : c", Ok("-l -n 1 | S a x : -n 1 | S b : | S c"));
    check(&HYDRA, "-l -- a", Ok("-l | S a"));
    check(&HYDRA, "-l=1 a", Err("option '-l=1' of mpiexec.hydra takes no value"));
    check(&HYDRA, "-info", Err("nothing to launch: '-info' makes mpiexec.hydra print something or try only"));
    check(&HYDRA, "-n", Err("option '-n' of mpiexec.hydra lacks its value"));
    check(&HYDRA, "-genv A", Err("option '-genv' of mpiexec.hydra lacks its value"));
}

#[test]
fn open_mpi_takes_one_dash_or_two() {
    check(&OPEN_MPI, "-np 2 --mca btl tcp,self a", Ok("-np 2 --mca btl tcp,self | S a"));
    check(&OPEN_MPI, "-n4 -x A=b --oversubscribe a", Ok("-n4 -x A=b --oversubscribe | S a"));
    check(&OPEN_MPI, "--np=4 --prtemca a b a", Ok("--np=4 --prtemca a b | S a"));
    check(&OPEN_MPI, "--output-proctable a", Ok("--output-proctable | S a"));
    check(&OPEN_MPI, "-np 1 a : -np 2 b c", Ok("-np 1 | S a : -np 2 | S b c"));
    check(&OPEN_MPI, "-np 1 -- a", Ok("-np 1 | -- S a"));
    check(
        &OPEN_MPI,
        "--version",
        Err("nothing to launch: '--version' makes mpirun print something or try only"),
    );
    check(&OPEN_MPI, "--mca a", Err("option '--mca' of mpirun lacks its value"));
}

/// Checks which file the only part reads programs from, and the arguments with another file in its place.
pub(crate) fn check_file(
    dialect: &'static Dialect,
    args: &str,
    environment: &str,
    expected: Option<(&str, &str)>,
) {
    let mut args = words(args);
    let environment: Vec<_> = words(environment).into_iter().map(|name| (name, "1".into())).collect();
    let parts = locate(dialect, &args, &environment).unwrap();
    let old = replace_file(&mut args, &parts[0], "NEW".as_ref());
    let written = rewrite(dialect, &args, &parts, |_| Vec::new(), &["S".into()]);
    let written = written.join(" ".as_ref()).into_string().unwrap();
    let found = old.as_ref().map(|old| (old.to_str().unwrap(), written.as_str()));
    assert_eq!(found, expected, "{args:?}");
}

#[test]
fn files_with_programs() {
    check_file(&HYDRA, "-l -configfile f", "", Some(("f", "-l -configfile NEW")));
    check_file(&HYDRA, "--configfile=f -l", "", Some(("f", "--configfile=NEW -l")));
    check_file(&OPEN_MPI, "--app f", "", Some(("f", "--app NEW")));
    check_file(&OPEN_MPI, "-n 4 f", "", None);
    check(
        &HYDRA,
        "-configfile f a",
        Err("mpiexec.hydra is given programs both in a file and on the command line"),
    );
}

proptest! {
    /// Any arguments: no panic, and each part lies within the arguments, behind the previous part.
    #[test]
    fn parts_lie_within_the_arguments(
        args in proptest::collection::vec("(-{0,3}[a-zN:=4]{0,6}|:|--|--ntasks|--mca|-env|--app)", 0..12)
    ) {
        let args: Vec<OsString> = args.into_iter().map(OsString::from).collect();
        for dialect in LAUNCHERS {
            let Ok(parts) = locate(dialect, &args, &[]) else { continue };
            let ends: Vec<usize> = parts.iter().map(|part| part.end).collect();
            prop_assert_eq!(ends.last(), Some(&args.len()));
            let fits = |part: &Part| part.options.start <= part.options.end && part.options.end <= part.program && part.program <= part.end;
            prop_assert!(parts.iter().all(fits));
            let unchanged = rewrite(dialect, &args, &parts, |_| Vec::new(), &[]);
            if dialect.knows_marker {
                // The walk adds the verb if it is missing.
                let verb = dialect.verbs.first().filter(|verb| args.first().is_none_or(|first| first != *verb));
                let same: Vec<OsString> = verb.map(OsString::from).into_iter().chain(args.clone()).collect();
                prop_assert_eq!(unchanged, same);
            }
        }
    }
}
