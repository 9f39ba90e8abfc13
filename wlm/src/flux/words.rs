//! Sorts Flux's error messages by what the user can do about them. The original text is always quoted, never replaced.

use gantry_types::error::{Failure, Kind};

use crate::explain::{Cause, Messages};

/// What Flux's commands print.
const MESSAGES: Messages = Messages { causes: CAUSES, is_own: is_of_flux, is_noise };

const CAUSES: &[Cause] = &[
    (
        &["start failed: ", "gantry-agent: No such file"],
        Kind::NotFound,
        Some(
            "the nodes do not have gantry's agent under that path: have gantry at a path that all nodes see",
        ),
    ),
    (
        &["start failed: ", "Permission denied"],
        Kind::NoAccess,
        Some("the program must be executable on every node"),
    ),
    (&["start failed: "], Kind::NotFound, Some("the program must be there, under that name, on every node")),
    (&["type=cancel"], Kind::Gone, Some("the job was cancelled before its ranks were there")),
    (&["type=timeout"], Kind::TimedOut, Some("ask for more time with --time-limit")),
    (
        &["unsatisfiable request"],
        Kind::Invalid,
        Some("ask for less: 'flux resource list' shows what there is"),
    ),
    (&["type=alloc"], Kind::Invalid, Some("'flux resource list' shows what there is")),
    (&["is not a valid queue"], Kind::Invalid, Some("'flux queue list' shows the queues")),
    (
        &["exceeds policy limit"],
        Kind::NoAccess,
        Some("ask for less, or for another queue: 'flux queue list' shows the limits"),
    ),
    (&["node failure on"], Kind::Lost, None),
    (&["lost contact with"], Kind::Lost, None),
    (&["flux_open", "No such file or directory"], Kind::Lost, Some(NO_INSTANCE)),
    (
        &["ssh: "],
        Kind::Lost,
        Some("the instance is on another machine: 'ssh' must reach it without a question"),
    ),
    (&["Unable to connect to Flux"], Kind::Lost, Some(NO_INSTANCE)),
    (&["broker", "not running"], Kind::Lost, Some(NO_INSTANCE)),
    (&["unknown job id"], Kind::NotFound, Some(SEE_JOBS)),
    (&["job-list", "No such file or directory"], Kind::NotFound, Some(SEE_JOBS)),
    (&["No such job"], Kind::NotFound, Some(SEE_JOBS)),
    (&["not found"], Kind::NotFound, Some(SEE_JOBS)),
    (&["is not currently running"], Kind::Gone, Some(SEE_JOBS)),
    (&["is not running"], Kind::Gone, Some(SEE_JOBS)),
    (&["is inactive"], Kind::Gone, Some("the job has ended")),
    (
        &["URI not found"],
        Kind::Invalid,
        Some("the job is no instance of Flux: leave out the path in front of the id"),
    ),
    (&["not your job"], Kind::NoAccess, None),
    (&["Permission denied"], Kind::NoAccess, None),
    (
        &["requires owner credentials"],
        Kind::NoAccess,
        Some("only the job's owner can start processes beside it"),
    ),
    (&["Operation not permitted"], Kind::NoAccess, None),
    (&["unrecognized arguments"], Kind::Invalid, Some("see 'flux run --help'")),
    (&["error: argument"], Kind::Invalid, Some("see 'flux run --help'")),
    (&["flux-run: ERROR"], Kind::Invalid, None),
    (&["flux-batch: ERROR"], Kind::Invalid, None),
];

const SEE_JOBS: &str = "'flux jobs' shows the jobs that there are";
const NO_INSTANCE: &str = "no broker answers: set FLUX_URI to an instance, start one with 'flux start', or see whether the system's runs ('flux uptime')";

/// Converts a failed command to a failure with the command, its status and its last messages. `stderr` may also contain
/// lines of the ranks.
pub(super) fn parse_failure(command: &[String], status: &str, stderr: &str) -> Failure {
    let are_agents = command.iter().any(|word| word == "exec");
    MESSAGES.explain(command, status, stderr, are_agents)
}

/// Whether a line comes from Flux and not from a rank.
pub(super) fn is_of_flux(line: &str) -> bool {
    const WRITERS: [&str; 3] = ["flux-", "flux: ", "flux "];
    WRITERS.iter().any(|writer| line.starts_with(writer)) || after_seconds(line).is_some_and(is_of_job)
}

fn is_of_job(rest: &str) -> bool {
    rest.starts_with("job.exception ") || rest.starts_with("flux-shell")
}

/// The text behind the seconds since the job's submission: `1.036s: job.exception ...`.
pub(super) fn after_seconds(line: &str) -> Option<&str> {
    let (seconds, rest) = line.split_once("s: ")?;
    let is_time = !seconds.is_empty() && seconds.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    is_time.then_some(rest)
}

/// Whether a line says nothing about a failure.
fn is_noise(line: &str) -> bool {
    line.is_empty() || line.starts_with("jobid: ") || line.starts_with("usage: ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(stderr: &str, kind: Kind, words: &str) {
        let failure = parse_failure(&["flux".to_owned(), "run".to_owned()], "exit code 1", stderr);
        let message = format!("flux ended with exit code 1: {words} (command: flux run)");
        assert_eq!((failure.kind(), failure.message()), (kind, message.as_str()), "{stderr}");
    }

    #[test]
    fn what_a_rank_says_is_no_cause() {
        let flux = "flux-job: task(s) exited with exit code 1";
        check(&format!("jobid: f7\nmine: No such job\n{flux}\n"), Kind::LauncherFailed, flux);
        check("", Kind::LauncherFailed, "it printed nothing");
        check("1s: mine\n", Kind::LauncherFailed, "1s: mine");
    }

    #[test]
    fn agents_are_ranks_whose_words_count() {
        let command = ["flux", "exec", "--jobid=f7", "a"].map(str::to_owned);
        let stderr = "read the ticket: it ended early\nflux-exec: Error: rank 2: a: Request requires owner credentials\n";
        let failure = parse_failure(&command, "exit code 1", stderr);
        assert_eq!(failure.kind(), Kind::NoAccess);
        assert!(failure.message().contains("read the ticket: it ended early; flux-exec"), "{failure}");
    }
}
