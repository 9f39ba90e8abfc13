//! Parses every recording of Slurm's commands as gantry does.

use std::fmt::Write;

use super::{parse_failure, parse_layout, parse_steps};
use crate::launcher::find_by_version;
use crate::recorded::{Case, check_recordings};

/// gantry's result, one fact per line.
fn made_of(case: &Case) -> String {
    let mut text = String::new();
    if case.status != 0 || (case.stdout.is_empty() && !case.stderr.is_empty()) {
        let failure = parse_failure(&case.argv, &format!("status {}", case.status), &case.stderr);
        writeln!(text, "kind: {}", failure.kind()).unwrap();
        writeln!(text, "message: {}", failure.message()).unwrap();
        writeln!(text, "hint: {}", failure.hint().unwrap_or("-")).unwrap();
    } else if case.is(&["scontrol", "step"]) {
        for step in parse_steps(&case.stdout).unwrap() {
            writeln!(text, "{step:?}").unwrap();
        }
    } else if case.is(&["sattach"]) {
        for node in parse_layout(&case.stdout).unwrap() {
            writeln!(text, "{node:?}").unwrap();
        }
    } else if case.is(&["--version"]) {
        writeln!(text, "{}", find_by_version(&case.stdout).unwrap()).unwrap();
    }
    text
}

#[test]
fn every_recording_is_read_as_expected() {
    check_recordings("slurm", 40, made_of);
}
