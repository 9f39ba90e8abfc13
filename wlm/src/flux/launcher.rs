//! `flux run`, of flux-core 0.64 and later. Source: flux-run(1), flux-shell(1), `flux run --help`.
//!
//! Plugins add options to the command line. With an attached value they do no harm. Otherwise the user must put `--`
//! before the program.

use std::ffi::OsString;

use gantry_shared::wire::hold::GANTRY_TICKET;

use crate::launcher::{
    Adjusted, Dialect, Environment, Given, Grammar, ProgramFiles, RankSide, RankVariables, Takes,
};

/// `flux run`.
pub(crate) static FLUX_RUN: Dialect = Dialect {
    name: "flux run",
    file_names: &["flux"],
    versions: &["\ncommands:", "libflux-core:"],
    stops_ranks: false,
    verbs: &["run"],
    grammar: Grammar::Getopt,
    options: &[(Takes::Nothing, NOTHING), (Takes::Attached, ATTACHED), (Takes::Value, VALUE)],
    runs_nothing: &["help", "dry-run", "list-plugins"],
    files: ProgramFiles::Option { names: &[], comments: &["#"] },
    knows_marker: true,
    forward_option: None,
    adjust: Some(adjust),
    ranks: &FLUX_RANKS,
};

/// Variables for facts that Flux has but does not pass to ranks by itself.
const TASKS_OF_NODE: &str = "GANTRY_FLUX_NTASKS";
const NAME_OF_NODE: &str = "GANTRY_FLUX_NODE";

/// What its ranks see of the launcher.
pub(crate) static FLUX_RANKS: RankSide = RankSide {
    word: "flux",
    variables: &[RankVariables {
        outward: 4,
        needs: &["FLUX_JOB_ID"],
        rank: "FLUX_TASK_RANK",
        size: &["FLUX_JOB_SIZE"],
        local_rank: "FLUX_TASK_LOCAL_ID",
        local_size: |variables| variables.number(TASKS_OF_NODE),
        // The Flux shell serves PMI to its tasks.
        serves: |_| true,
    }],
    hides: &["GANTRY_FLUX_"],
    node_name: Some(NAME_OF_NODE),
    // If jobs are systemd units, a task's leftover processes end with its shell.
    kills_leftovers: |cgroup| {
        let is_shell = |line: &str| line.contains("/imp-shell-") || line.contains("/shell-");
        cgroup.lines().any(|line| is_shell(line) && line.ends_with(".service"))
    },
};

/// The option that tells ranks how many of them their host has. Flux counts those of a broker. If all brokers are on one
/// host, these are all ranks.
pub(super) fn build_count(is_one_host: bool) -> OsString {
    let count = if is_one_host { "ntasks" } else { "node.ntasks" };
    format!("--env={TASKS_OF_NODE}={{{{{count}}}}}").into()
}

/// The options that a launch with held ranks needs, in addition to the user's options before them.
///
/// The launcher's environment contains the ticket. The option names it, because the user may let Flux pass on only
/// other variables. The shell replaces the text in double braces on each node. Source: flux-run(1), "Mustache
/// templates".
fn adjust(_args: &mut [OsString], given: &[&Given], _environment: &Environment) -> Adjusted {
    let mut options: Vec<OsString> = vec![
        format!("--env={GANTRY_TICKET}").into(),
        format!("--env={NAME_OF_NODE}={{{{node.name}}}}").into(),
    ];
    let counts = |given: &&Given| {
        given.name == "env"
            && given.values.iter().any(|value| value.as_encoded_bytes().starts_with(TASKS_OF_NODE.as_bytes()))
    };
    if !given.iter().any(counts) {
        options.push(build_count(false));
    }
    // With this option Flux prints the job's id at once, so that gantry can cancel the job while it waits in the queue.
    if !given.iter().any(|given| given.name == "verbose") {
        options.push("--verbose".into());
    }
    Adjusted { options, by: &FLUX_RANKS }
}

#[rustfmt::skip]
const NOTHING: &[&str] = &[
    "debug-emulate", "dry-run dry", "exclusive x", "label-io l", "list-plugins", "quiet", "unbuffered u", "verbose v",
];

const ATTACHED: &[&str] = &["help"];

#[rustfmt::skip]
const VALUE: &[&str] = &[
    "add-file", "bank B", "begin-time", "cores", "cores-per-task c", "cwd", "dependency", "env", "env-file", "env-remove",
    "error", "flags", "gpus-per-node", "gpus-per-task g", "input", "job-name", "nodes N", "ntasks n", "output", "queue q",
    "requires require", "resources-json", "resources-shape", "rlimit", "setattr S", "setopt o", "signal", "taskmap", "tasks-per-core", "tasks-per-node",
    "time-limit t", "urgency", "wait-event",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launcher::tests::{check, check_facts};

    #[test]
    fn programs_are_found_behind_the_options() {
        check(&FLUX_RUN, "-n 2 a", Ok("run -n 2 | S a"));
        check(&FLUX_RUN, "run -n 2 a -n", Ok("run -n 2 | S a -n"));
        check(
            &FLUX_RUN,
            "-N2 -n4 -c 2 -g1 -xl -o cpu-affinity=off a",
            Ok("run -N2 -n4 -c 2 -g1 -xl -o cpu-affinity=off | S a"),
        );
        check(
            &FLUX_RUN,
            "-opty --env=A=b --env -C --cwd /x a b",
            Ok("run -opty --env=A=b --env -C --cwd /x | S a b"),
        );
        check(&FLUX_RUN, "-n1 -- run -v", Ok("run -n1 | -- S run -v"));
        check(
            &FLUX_RUN,
            "-t 5m -q debug --output out.{{id}} a",
            Ok("run -t 5m -q debug --output out.{{id}} | S a"),
        );
        check(&FLUX_RUN, "--plug=3 a", Ok("run --plug=3 | S a"));
        let unknown =
            "cannot tell where the program begins: option '--plug' of flux run is unknown or ambiguous";
        check(&FLUX_RUN, "--plug 3 a", Err(unknown));
        let nothing = "nothing to launch: '--dry-run' makes flux run print something or try only";
        check(&FLUX_RUN, "--dry-run a", Err(nothing));
        check(&FLUX_RUN, "run", Err("nothing to launch: no program in the arguments of flux run"));
    }

    #[test]
    fn ranks_know_who_they_are() {
        let own = "FLUX_JOB_ID=f7 FLUX_JOB_SIZE=4 FLUX_TASK_RANK=3 FLUX_TASK_LOCAL_ID=1 GANTRY_FLUX_NTASKS=2";
        check_facts(own, None, Ok((3, 4, Some((1, 2)))));
        check_facts(&format!("{own} PMI_RANK=3 PMI_SIZE=4"), Some(&FLUX_RANKS), Ok((3, 4, Some((1, 2)))));
        check_facts(&format!("{own} PMI_RANK=3 PMI_SIZE=4"), None, Ok((3, 4, Some((1, 2)))));
        check_facts(&format!("{own} PMI_RANK=0 PMI_SIZE=2"), None, Ok((0, 2, None)));
    }

    #[test]
    fn units_of_jobs_end_with_all_that_is_in_them() {
        let unit = "0::/user.slice/user-500.slice/user@500.service/app.slice/imp-shell-0-f7.service\n";
        assert!((FLUX_RANKS.kills_leftovers)(unit));
        assert!(!(FLUX_RANKS.kills_leftovers)("0::/user.slice/user-500.slice/session-3.scope\n"));
    }
}
