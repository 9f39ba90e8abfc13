//! Parses every recording of Flux's commands as gantry does.

use std::fmt::Write;

use super::cause::{cause_of_events, parse_cause};
use super::job::{parse_events, parse_jobs, parse_processes};
use super::launcher::FLUX_RUN;
use super::reference::JobId;
use super::waits::RunWaits;
use super::words::parse_failure;
use crate::LauncherWaits;
use crate::launcher::Takes;
use crate::launcher::tests::help::check;
use crate::recorded::{Case, check_recordings};

/// The parsed result, one fact per line.
fn made_of(case: &Case) -> String {
    let mut text = String::new();
    if case.is(&["--help"]) {
        let problems = compare_with_help(&case.stdout);
        writeln!(text, "options that the table has otherwise: {problems:?}").unwrap();
    } else if case.status != 0 {
        let failure = parse_failure(&case.argv, &format!("status {}", case.status), &case.stderr);
        writeln!(text, "kind: {}", failure.kind()).unwrap();
        writeln!(text, "message: {}", failure.message()).unwrap();
        writeln!(text, "hint: {}", failure.hint().unwrap_or("-")).unwrap();
    } else if case.is(&["list-ids"]) || case.is(&["list"]) {
        for job in parse_jobs(&case.stdout).unwrap() {
            writeln!(text, "{}, {:?}, {:?}", job.describe(), job.phase(), job.hosts()).unwrap();
        }
    } else if case.is(&["eventlog"]) {
        let events = parse_events(&case.stdout).unwrap();
        for event in &events {
            writeln!(text, "{}", event.name).unwrap();
        }
        writeln!(text, "{:?}", cause_of_events(JobId(6), &events)).unwrap();
    } else if case.is(&["hostpids"]) {
        writeln!(text, "{:?}", parse_processes(&case.stdout).unwrap()).unwrap();
    } else if case.is(&["uri"]) {
        text.push_str(&case.stdout);
    }
    for line in case.stderr.lines() {
        if let Some(cause) = parse_cause(line) {
            writeln!(text, "cause: {:?}", cause.kind).unwrap();
        }
        if let Some(wait) = RunWaits.read_line(line) {
            writeln!(text, "{wait:?}").unwrap();
        }
    }
    text
}

/// Differences between the table of options and `flux run --help`: missing options, and options with other values.
fn compare_with_help(help: &str) -> Vec<String> {
    let (mut problems, mut count) = (Vec::new(), 0);
    for line in help.lines().map(str::trim_start).filter(|line| line.starts_with('-')) {
        // The description starts behind two blanks.
        let names = line.split("  ").next().unwrap_or_default();
        let fits = match names.split_once('=') {
            Some((_, value)) if value.ends_with(']') && value.starts_with('[') && !value.contains('@') => {
                Takes::Attached
            }
            Some(_) => Takes::Value,
            None => Takes::Nothing,
        };
        for name in names.split('=').next().unwrap_or_default().split(", ") {
            count += 1;
            check(&FLUX_RUN, name.trim_start_matches('-'), Some(&[fits]), &mut problems);
        }
    }
    assert!(count > 40, "only {count} options found in the help");
    problems
}

#[test]
fn every_recording_is_read_as_expected() {
    check_recordings("flux", 30, made_of);
}
