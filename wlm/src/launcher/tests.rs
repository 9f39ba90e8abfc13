//! Where programs stand, launcher by launcher; and the tables against the launchers' own help.

use std::ffi::OsString;

use proptest::prelude::*;

use super::dialect::Launcher;
use super::options::{Part, locate};
use super::rewrite::{replace_file, rewrite};
use super::table::{dialect_of, find_by_name, find_by_version};

mod help;

fn words(text: &str) -> Vec<OsString> {
    text.split_whitespace().map(OsString::from).collect()
}

/// `args` with `S --` put in front of each program, or the error; `|` stands for nothing, to show where options of ours go.
fn check(launcher: Launcher, args: &str, expected: Result<&str, &str>) {
    let args = words(args);
    let dialect = dialect_of(launcher);
    let found = locate(dialect, &args, &[]).map_err(|error| error.to_string()).map(|parts| {
        let written = rewrite(dialect, &args, &parts, |_| vec!["|".into()], &["S".into()]);
        written.join(" ".as_ref()).into_string().unwrap()
    });
    assert_eq!(found.as_deref().map_err(String::as_str), expected, "{args:?}");
}

fn unknown(option: &str, launcher: &str) -> String {
    format!("cannot tell where the program begins: option '{option}' of {launcher} is unknown or ambiguous")
}

#[test]
fn srun_reads_options_as_getopt_long_does() {
    use Launcher::Srun;
    check(Srun, "a", Ok("| S a"));
    check(Srun, "-n4N2 a -n 1", Ok("-n4N2 | S a -n 1"));
    check(Srun, "-lN 4 a", Ok("-lN 4 | S a"));
    check(Srun, "-ln4 a", Ok("-ln4 | S a"));
    check(Srun, "--ntasks=4 a", Ok("--ntasks=4 | S a"));
    check(Srun, "--ntasks 4 a", Ok("--ntasks 4 | S a"));
    check(Srun, "--lab --node 2 a", Ok("--lab --node 2 | S a"));
    check(Srun, "-K a", Ok("-K | S a"));
    check(Srun, "-K0 --nice -I5 --bcast=/x a b", Ok("-K0 --nice -I5 --bcast=/x | S a b"));
    check(Srun, "-n 2 -- -odd x", Ok("-n 2 | -- S -odd x"));
    check(Srun, "-n 2 - x", Ok("-n 2 | S - x"));
    check(Srun, "-J : a", Ok("-J : | S a"));
    // A beginning of several options that all take a value: srun itself says that it is ambiguous.
    check(Srun, "--nta 1 a", Ok("--nta 1 | S a"));
    check(Srun, "--container-image=x a", Ok("--container-image=x | S a"));
}

#[test]
fn srun_in_parts() {
    check(Launcher::Srun, "-n1 a : -n 2 b -- : -- c", Ok("-n1 | S a : -n 2 | S b -- : | -- S c"));
    check(Launcher::Srun, "-n1 a :", Err("nothing to launch: no program in the arguments of srun"));
}

#[test]
fn what_srun_has_no_program_for() {
    use Launcher::Srun;
    check(Srun, "", Err("nothing to launch: no program in the arguments of srun"));
    check(Srun, "-n 1", Err("nothing to launch: no program in the arguments of srun"));
    check(Srun, "--version", Err("nothing to launch: '--version' makes srun print something or try only"));
    check(Srun, "-lV a", Err("nothing to launch: '-lV' makes srun print something or try only"));
    check(
        Srun,
        "--test-only a",
        Err("nothing to launch: '--test-only' makes srun print something or try only"),
    );
    check(Srun, "-n", Err("option '-n' of srun lacks its value"));
    check(Srun, "a --version", Ok("| S a --version"));
}

#[test]
fn an_unknown_option_asks_for_the_marker_and_takes_it() {
    for (launcher, name, option) in [
        (Launcher::Srun, "srun", "--container-image"),
        (Launcher::Srun, "srun", "--ov"),
        (Launcher::Srun, "srun", "-y"),
        (Launcher::Hydra, "mpiexec.hydra", "-odd"),
        (Launcher::OpenMpi, "mpirun", "--display-topo"),
    ] {
        check(launcher, &format!("-n 2 {option} x a"), Err(&unknown(option, name)));
        let marker = if launcher == Launcher::Hydra { "|" } else { "| --" };
        check(launcher, &format!("-n 2 {option} x -- a b"), Ok(&format!("-n 2 {option} x {marker} S a b")));
        let args = words(&format!("{option} x a"));
        let error = locate(dialect_of(launcher), &args, &[]).unwrap_err();
        assert_eq!(error.hint().as_deref(), Some("write '--' before the program"));
    }
}

#[test]
fn hydra_takes_any_dashes_and_any_case() {
    use Launcher::Hydra;
    check(Hydra, "-n 2 a", Ok("-n 2 | S a"));
    check(Hydra, "--np=4 -PPN 2 a", Ok("--np=4 -PPN 2 | S a"));
    check(Hydra, "-genv A B -env C=D -genvall a", Ok("-genv A B -env C=D -genvall | S a"));
    check(Hydra, "-genv=A B a", Ok("-genv=A B | S a"));
    check(Hydra, "-l -n 1 a x : -n 1 b : c", Ok("-l -n 1 | S a x : -n 1 | S b : | S c"));
    check(Hydra, "-l -- a", Ok("-l | S a"));
    check(Hydra, "-l=1 a", Err("option '-l=1' of mpiexec.hydra takes no value"));
    check(Hydra, "-info", Err("nothing to launch: '-info' makes mpiexec.hydra print something or try only"));
    check(Hydra, "-n", Err("option '-n' of mpiexec.hydra lacks its value"));
    check(Hydra, "-genv A", Err("option '-genv' of mpiexec.hydra lacks its value"));
}

#[test]
fn open_mpi_takes_one_dash_or_two() {
    use Launcher::OpenMpi;
    check(OpenMpi, "-np 2 --mca btl tcp,self a", Ok("-np 2 --mca btl tcp,self | S a"));
    check(OpenMpi, "-n4 -x A=b --oversubscribe a", Ok("-n4 -x A=b --oversubscribe | S a"));
    check(OpenMpi, "--np=4 --prtemca a b a", Ok("--np=4 --prtemca a b | S a"));
    check(OpenMpi, "--output-proctable a", Ok("--output-proctable | S a"));
    check(OpenMpi, "-np 1 a : -np 2 b c", Ok("-np 1 | S a : -np 2 | S b c"));
    check(OpenMpi, "-np 1 -- a", Ok("-np 1 | -- S a"));
    check(
        OpenMpi,
        "--version",
        Err("nothing to launch: '--version' makes mpirun print something or try only"),
    );
    check(OpenMpi, "--mca a", Err("option '--mca' of mpirun lacks its value"));
}

/// The file with programs of the only part, and the arguments with another in its place.
fn check_file(launcher: Launcher, args: &str, environment: &str, expected: Option<(&str, &str)>) {
    let mut args = words(args);
    let environment: Vec<_> = words(environment).into_iter().map(|name| (name, "1".into())).collect();
    let parts = locate(dialect_of(launcher), &args, &environment).unwrap();
    let old = replace_file(&mut args, &parts[0], "NEW".as_ref());
    let written = rewrite(dialect_of(launcher), &args, &parts, |_| Vec::new(), &["S".into()]);
    let written = written.join(" ".as_ref()).into_string().unwrap();
    let found = old.as_ref().map(|old| (old.to_str().unwrap(), written.as_str()));
    assert_eq!(found, expected, "{args:?}");
}

#[test]
fn files_with_programs() {
    check_file(Launcher::Srun, "-n4 --multi-prog f x", "", Some(("f", "-n4 --multi-prog NEW x")));
    check_file(Launcher::Srun, "-n4 f", "SLURM_SRUN_MULTI", Some(("f", "-n4 NEW")));
    check_file(Launcher::Srun, "-n4 f", "", None);
    check_file(Launcher::Hydra, "-l -configfile f", "", Some(("f", "-l -configfile NEW")));
    check_file(Launcher::Hydra, "--configfile=f -l", "", Some(("f", "--configfile=NEW -l")));
    check_file(Launcher::OpenMpi, "--app f", "", Some(("f", "--app NEW")));
    check(
        Launcher::Hydra,
        "-configfile f a",
        Err("mpiexec.hydra is given programs both in a file and on the command line"),
    );
}

#[test]
fn what_an_option_says() {
    let args = words("-N1 -lN 2 --export=A,B --label a -N 7");
    let parts = locate(dialect_of(Launcher::Srun), &args, &[]).unwrap();
    let value = |name: &str| parts[0].value(name).map(|value| value.to_str().unwrap().to_owned());
    assert_eq!(
        [value("nodes"), value("export"), value("label"), value("ntasks")],
        [Some("2".into()), Some("A,B".into()), Some(String::new()), None]
    );
    // Behind an option of a plugin too.
    let args = words("-n 2 --container-image x --export=NONE --odd -N 3 -- a");
    let parts = locate(dialect_of(Launcher::Srun), &args, &[]).unwrap();
    assert_eq!(parts[0].value("export"), Some("NONE".as_ref()));
    assert_eq!(parts[0].value("nodes"), Some("3".as_ref()));
}

#[test]
fn dialects_by_name_and_by_version() {
    let of = |name: &str| find_by_name(name.as_ref()).map(|dialect| dialect.launcher);
    assert_eq!(of("/usr/bin/srun"), Some(Launcher::Srun));
    assert_eq!(of("mpiexec.hydra"), Some(Launcher::Hydra));
    assert_eq!(of("/usr/bin/orterun"), Some(Launcher::OpenMpi));
    assert_eq!(of("prterun"), Some(Launcher::Prrte));
    assert_eq!([of("mpiexec"), of("jsrun"), of("/")], [None; 3]);
    let says = |text: &str| find_by_version(text).map(|dialect| dialect.launcher);
    assert_eq!(says("slurm-wlm 22.05.8\n"), Some(Launcher::Srun));
    assert_eq!(says("HYDRA build details:\n    Version: 4.0.2\n"), Some(Launcher::Hydra));
    assert_eq!(says("mpirun (Open MPI) 5.0.5\n"), Some(Launcher::OpenMpi));
    assert_eq!(says("prterun (PRRTE) 3.0.14\n"), Some(Launcher::Prrte));
    assert_eq!(says("\nmpirun.openmpi (OpenRTE) 4.1.4\n"), Some(Launcher::OpenMpi));
    assert_eq!([says(""), says("hello")], [None; 2]);
    for launcher in Launcher::ALL {
        assert_eq!(launcher.to_string().parse::<Launcher>().unwrap(), launcher);
    }
}

#[test]
fn no_name_stands_twice_in_a_table() {
    for launcher in Launcher::ALL {
        let mut names: Vec<&str> =
            dialect_of(launcher).rows().flat_map(|(names, _)| names.split(' ')).collect();
        names.sort_unstable();
        let twice: Vec<_> = names.windows(2).filter(|pair| pair[0] == pair[1]).collect();
        assert!(twice.is_empty(), "{launcher}: {twice:?}");
    }
}

proptest! {
    /// Whatever is typed: no panic, and a part lies within the arguments, behind the one before.
    #[test]
    fn parts_lie_within_the_arguments(
        args in proptest::collection::vec("(-{0,3}[a-zN:=4]{0,6}|:|--|--ntasks|--mca|-env|--app)", 0..12)
    ) {
        let args: Vec<OsString> = args.into_iter().map(OsString::from).collect();
        for launcher in Launcher::ALL {
            let Ok(parts) = locate(dialect_of(launcher), &args, &[]) else { continue };
            let ends: Vec<usize> = parts.iter().map(|part| part.end).collect();
            prop_assert_eq!(ends.last(), Some(&args.len()));
            let fits = |part: &Part| part.options.start <= part.options.end && part.options.end <= part.program && part.program <= part.end;
            prop_assert!(parts.iter().all(fits));
            let unchanged = rewrite(dialect_of(launcher), &args, &parts, |_| Vec::new(), &[]);
            if launcher != Launcher::Hydra {
                prop_assert_eq!(unchanged, args.clone());
            }
        }
    }
}
