//! srun's arguments, its tasks' variables, and its option table compared with its own help.

use std::path::Path;

use super::*;
use crate::host::fake::FakeHost;
use crate::launcher::tests::help::{check as check_option, printed};
use crate::launcher::tests::{check as check_args, check_facts, check_file, words};
use crate::launcher::{dies_with_step, find_by_version, find_by_word, find_node_name, locate, recognize};
use crate::skip::skip;

// Variables from real launchers, without unrelated ones.
const SRUN_TASK: &str = "SLURM_GTIDS=0,1 SLURM_LOCALID=1 SLURM_NODEID=0 SLURM_NTASKS=3 SLURM_PROCID=1 \
    SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=3 SLURM_STEP_TASKS_PER_NODE=2,1";
const SRUN_HET: &str = "SLURM_LOCALID=0 SLURM_NODEID=2 SLURM_NTASKS=4 SLURM_PROCID=2 SLURM_STEP_ID=0 SLURM_HET_SIZE=2 \
    SLURM_STEP_NUM_TASKS=4 SLURM_STEP_TASKS_PER_NODE=1,2,1";
const BATCH: &str =
    "SLURM_GTIDS=0 SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_NTASKS=4 SLURM_PROCID=0 SLURM_TASKS_PER_NODE=3,1";
const HYDRA_IN_SLURM: &str = "MPI_LOCALNRANKS=1 MPI_LOCALRANKID=0 PMI_RANK=2 PMI_SIZE=3 SLURM_LOCALID=0 SLURM_NODEID=1 \
    SLURM_NTASKS=4 SLURM_PROCID=1 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_TASKS_PER_NODE=1(x2)";
const OMPI_IN_SLURM: &str = "OMPI_COMM_WORLD_LOCAL_RANK=2 OMPI_COMM_WORLD_LOCAL_SIZE=3 OMPI_COMM_WORLD_RANK=2 \
    OMPI_COMM_WORLD_SIZE=3 PMIX_NAMESPACE=711589889 PMIX_RANK=2 SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_NTASKS=2 SLURM_PROCID=0 \
    SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_TASKS_PER_NODE=1(x2)";

#[test]
fn a_task_knows_its_rank() {
    check_facts(SRUN_TASK, None, Ok((1, 3, Some((1, 2)))));
    check_facts(SRUN_HET, None, Ok((2, 4, Some((0, 1)))));
    // Slurm's own servers for PMI-2 and PMIx.
    check_facts(&format!("{SRUN_TASK} PMI_RANK=1 PMI_SIZE=3"), None, Ok((1, 3, Some((1, 2)))));
    let pmix = format!("{SRUN_TASK} PMIX_RANK=1 PMIX_NAMESPACE=slurm.pmix.6.0");
    check_facts(&pmix, None, Ok((1, 3, Some((1, 2)))));
}

#[test]
fn the_inner_launcher_wins() {
    check_facts(HYDRA_IN_SLURM, None, Ok((2, 3, Some((0, 1)))));
    check_facts(OMPI_IN_SLURM, None, Ok((2, 3, Some((2, 3)))));
    check_facts(&format!("{BATCH} PMI_RANK=1 PMI_SIZE=2"), None, Ok((1, 2, None)));
    // srun inside a rank of mpiexec: only the launcher's name decides.
    check_facts(&format!("{SRUN_TASK} PMI_RANK=0 PMI_SIZE=9"), Some(&SRUN_RANKS), Ok((1, 3, Some((1, 2)))));
    // A task's number may equal a rank's by chance, but the sizes differ.
    check_facts(&format!("{SRUN_TASK} PMI_RANK=1 PMI_SIZE=2"), None, Ok((1, 2, None)));
}

#[test]
fn the_searched_variables_are_named() {
    let srun = find_by_word("srun");
    assert!(srun.is_some());
    check_facts(BATCH, srun, Err("no rank in the environment: looked for SLURM_STEP_ID, SLURM_PROCID"));
    let hydra = find_by_word("hydra");
    check_facts(SRUN_TASK, hydra, Err("no rank in the environment: looked for PMI_RANK"));
    check_facts(
        "PMIX_RANK=1 PMIX_NAMESPACE=prterun-1 SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2",
        None,
        Err("PMIX_RANK is '1', but the number of ranks is not set: looked for PMIX_SIZE"),
    );
}

#[test]
fn a_control_group_of_a_step_is_told_by_its_path() {
    let check = |text: &str, expected| assert_eq!(dies_with_step(text), expected, "{text}");
    check("5:freezer:/slurm_n001/uid_1000/job_7/step_0\n1:name=systemd:/\n", true);
    check("0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_0\n", true);
    check("0::/user.slice/user-1000.slice/session-2.scope\n", false);
    check("0::/system.slice/slurmd.service\n", false);
    check("", false);
}

#[test]
fn a_task_knows_its_node_by_its_name_in_slurm() {
    let check = |value: &str, expected: Option<&str>| {
        let environment = [("HOSTNAME", "n1.site"), ("SLURMD_NODENAME", value)];
        let value = |name: &str| environment.iter().find(|(known, _)| *known == name).map(|it| it.1.into());
        assert_eq!(find_node_name(value).as_deref(), expected);
    };
    check("n1", Some("n1"));
    check("", None);
}

#[test]
fn tasks_of_a_node_in_the_short_form() {
    let at = |text, node| parse_tasks_on(text, node);
    assert_eq!(
        [at("2(x3),1", 0), at("2(x3),1", 2), at("2(x3),1", 3), at("2(x3),1", 4)],
        [Some(2), Some(2), Some(1), None]
    );
    assert_eq!([at("4(x4000000000),5(x4000000000)", 4_100_000_000), at("2(x", 0), at("", 0)], [None; 3]);
}

fn check(args: &str, expected: Result<&str, &str>) {
    check_args(&SRUN, args, expected);
}

#[test]
fn options_are_read_as_getopt_long_does() {
    check("a", Ok("| S a"));
    check("-n4N2 a -n 1", Ok("-n4N2 | S a -n 1"));
    check("-lN 4 a", Ok("-lN 4 | S a"));
    check("-ln4 a", Ok("-ln4 | S a"));
    check("--ntasks=4 a", Ok("--ntasks=4 | S a"));
    check("--ntasks 4 a", Ok("--ntasks 4 | S a"));
    check("--lab --node 2 a", Ok("--lab --node 2 | S a"));
    check("-K a", Ok("-K | S a"));
    check("-K0 --nice -I5 --bcast=/x a b", Ok("-K0 --nice -I5 --bcast=/x | S a b"));
    check("-n 2 -- -odd x", Ok("-n 2 | -- S -odd x"));
    check("-n 2 - x", Ok("-n 2 | S - x"));
    check("-J : a", Ok("-J : | S a"));
    // A prefix of several options that all take a value: srun itself reports the ambiguity.
    check("--nta 1 a", Ok("--nta 1 | S a"));
    check("--container-image=x a", Ok("--container-image=x | S a"));
}

#[test]
fn parts() {
    check("-n1 a : -n 2 b -- : -- c", Ok("-n1 | S a : -n 2 | S b -- : | -- S c"));
    check("-n1 a :", Err("nothing to launch: no program in the arguments of srun"));
}

#[test]
fn command_lines_without_a_program() {
    check("", Err("nothing to launch: no program in the arguments of srun"));
    check("-n 1", Err("nothing to launch: no program in the arguments of srun"));
    check("--version", Err("nothing to launch: '--version' makes srun print something or try only"));
    check("-lV a", Err("nothing to launch: '-lV' makes srun print something or try only"));
    check("--test-only a", Err("nothing to launch: '--test-only' makes srun print something or try only"));
    check("-n", Err("option '-n' of srun lacks its value"));
    check("a --version", Ok("| S a --version"));
}

#[test]
fn an_unknown_option_asks_for_the_marker_and_takes_it() {
    for option in ["--container-image", "--ov", "-y"] {
        let unknown = format!(
            "cannot tell where the program begins: option '{option}' of srun is unknown or ambiguous"
        );
        check(&format!("-n 2 {option} x a"), Err(&unknown));
        check(&format!("-n 2 {option} x -- a b"), Ok(&format!("-n 2 {option} x | -- S a b")));
    }
}

#[test]
fn a_file_with_programs_is_replaced() {
    check_file(&SRUN, "-n4 --multi-prog f x", "", Some(("f", "-n4 --multi-prog NEW x")));
    check_file(&SRUN, "-n4 f", "SLURM_SRUN_MULTI", Some(("f", "-n4 NEW")));
    check_file(&SRUN, "-n4 f", "", None);
}

#[test]
fn values_of_options() {
    let args = words("-N1 -lN 2 --export=A,B --label a -N 7");
    let parts = locate(&SRUN, &args, &[]).unwrap();
    let value = |name: &str| parts[0].value(name).map(|value| value.to_str().unwrap().to_owned());
    assert_eq!(
        [value("nodes"), value("export"), value("label"), value("ntasks")],
        [Some("2".into()), Some("A,B".into()), Some(String::new()), None]
    );
    // The same behind an option of a plugin.
    let args = words("-n 2 --container-image x --export=NONE --odd -N 3 -- a");
    let parts = locate(&SRUN, &args, &[]).unwrap();
    assert_eq!(parts[0].value("export"), Some("NONE".as_ref()));
    assert_eq!(parts[0].value("nodes"), Some("3".as_ref()));
}

#[test]
fn it_is_recognized_but_not_in_a_script_as_it_stops_its_ranks_itself() {
    let host = FakeHost::default()
        .with_file("/opt/bin/site-run", "#!/bin/sh\nexec srun \"$@\"\n")
        .with_answer("/opt/bin/site-run --version", "slurm 24.11.5\n", "")
        .with_file("/opt/bin/copied", "\x7fELF")
        .with_answer("/opt/bin/copied --version", "slurm-wlm 22.05.8\n", "");
    let check = |name: &str, expected: Result<&str, &str>| {
        let found = recognize(Path::new(name), &host);
        let found = found.map(|it| it.to_string()).map_err(|it| it.to_string());
        assert_eq!(found.as_deref().map_err(String::as_str), expected, "{name}");
    };
    check("/usr/bin/srun", Ok("as srun by its name, srun"));
    check("/opt/bin/copied", Ok("as srun by its answer to --version, 'slurm-wlm 22.05.8'"));
    check("/opt/bin/site-run", Err("it is a script, whose answer to --version is 'slurm 24.11.5'"));
    assert_eq!(find_by_version("site-run for slurm 1.0\n"), None);
}

/// Options of a help text in the style of `  -n, --ntasks=N   text`, with the text after the long name.
fn getopt_options(help: &str) -> Vec<(String, Option<char>, String)> {
    let mut options = Vec::new();
    for line in help.lines() {
        let text = line.trim_start();
        // Text further to the right is a description.
        if line.len() - text.len() > 8 {
            continue;
        }
        let (letter, rest) = match text.strip_prefix('-').and_then(|rest| rest.split_at_checked(1)) {
            Some((letter, rest)) if letter != "-" => {
                (letter.chars().next(), rest.trim_start_matches([',', ' ']))
            }
            _ => (None, text),
        };
        let Some(rest) = rest.strip_prefix("--") else { continue };
        let end =
            rest.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))).unwrap_or(rest.len());
        options.push((rest[..end].to_owned(), letter, rest[end..].to_owned()));
    }
    options
}

#[test]
fn sruns_table_agrees_with_its_help() {
    let folder = tempfile::tempdir().unwrap();
    let conf = folder.path().join("slurm.conf");
    std::fs::write(&conf, "ClusterName=none\nSlurmctldHost=localhost\n").unwrap();
    let variable = format!("SLURM_CONF={}", conf.display());
    let Some(help) = printed(&[&variable, "srun", "--help"]) else { return skip("srun is not installed") };
    let options = getopt_options(&help);
    assert!(options.len() > 100, "only {} options found in the help", options.len());
    let mut problems = Vec::new();
    for (name, letter, rest) in options {
        // The help is wrong about these: the first takes a value, and the other's value is optional.
        let fits: Option<&[Takes]> = match rest {
            _ if name == "container" || name == "bcast" => None,
            rest if rest.starts_with("[=") => Some(&[Takes::Attached]),
            rest if rest.starts_with('=') => Some(&[Takes::Value]),
            _ => Some(&[Takes::Nothing, Takes::Attached]),
        };
        check_option(&SRUN, &name, fits, &mut problems);
        if let Some(letter) = letter {
            check_option(&SRUN, &letter.to_string(), fits, &mut problems);
        }
    }
    assert_eq!(problems, Vec::<String>::new());
}
