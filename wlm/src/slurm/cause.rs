//! Why Slurm ended something: from the lines that srun prints, and from Slurm's record of a job.

use super::Job;
use super::words::is_slurms;
use crate::JobPhase;
use gantry_types::status::{CauseKind, EndCause};

/// Texts within one line that identify a cause. The first matching row counts.
const CAUSES: &[(&[&str], CauseKind)] = &[
    (&["DUE TO TIME LIMIT"], CauseKind::TimeLimit),
    (&["DUE TO NODE FAILURE"], CauseKind::NodeFailed),
    (&["srun: error: Node failure on"], CauseKind::NodeFailed),
    (&["DUE TO PREEMPTION"], CauseKind::Preempted),
    (&["oom-kill", "Step"], CauseKind::OutOfMemory),
    (&["srun: error: ", ": Out Of Memory"], CauseKind::OutOfMemory),
    (&["*** STEP ", " CANCELLED AT "], CauseKind::Cancelled),
    (&["*** JOB ", " CANCELLED AT "], CauseKind::Cancelled),
    (&["srun: Job allocation ", " has been revoked"], CauseKind::Cancelled),
];

/// The reason in a line of srun's standard error for ending its tasks. Lines of tasks do not match.
pub(super) fn parse_cause(line: &str) -> Option<EndCause> {
    let line = line.trim();
    // This line reports a task's own end, after which srun ended the others.
    if line.contains("DUE TO TASK FAILURE") {
        return None;
    }
    let (_, kind) = CAUSES.iter().find(|(words, _)| words.iter().all(|word| line.contains(word)))?;
    is_slurms(line).then(|| EndCause { kind: *kind, message: line.to_owned() })
}

/// Why a job has ended, if Slurm ended it.
pub(super) fn cause_of_job(job: &Job) -> Option<EndCause> {
    let kind = match job.state.as_str() {
        "TIMEOUT" | "DEADLINE" => CauseKind::TimeLimit,
        "NODE_FAIL" | "BOOT_FAIL" => CauseKind::NodeFailed,
        "OUT_OF_MEMORY" => CauseKind::OutOfMemory,
        "PREEMPTED" => CauseKind::Preempted,
        "CANCELLED" => CauseKind::Cancelled,
        _ => return None,
    };
    let message = format!("job {} is {} ({})", job.id, job.state, job.reason);
    (job.phase() == JobPhase::Ended).then_some(EndCause { kind, message })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, expected: Option<CauseKind>) {
        assert_eq!(parse_cause(line).map(|cause| cause.kind), expected, "{line}");
    }

    #[test]
    fn lines_that_name_a_cause() {
        let step = "slurmstepd-n001: error: *** STEP 11.0 ON n001 CANCELLED AT 2026-11-21T21:11:08";
        check(&format!("{step} ***"), Some(CauseKind::Cancelled));
        check(&format!("{step} DUE TO TIME LIMIT ***"), Some(CauseKind::TimeLimit));
        let node = format!("0: {step} DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***");
        check(&node, Some(CauseKind::NodeFailed));
        check("srun: error: Node failure on n002", Some(CauseKind::NodeFailed));
        check(&format!("{step} DUE TO PREEMPTION ***"), Some(CauseKind::Preempted));
        let memory = "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=7.0. Some of your processes may have been killed by the cgroup out-of-memory handler.";
        check(memory, Some(CauseKind::OutOfMemory));
        check("srun: error: n1: task 0: Out Of Memory", Some(CauseKind::OutOfMemory));
        check("srun: error: n001: task 0: Terminated", None);
        check(&format!("my app says: {step} DUE TO TIME LIMIT ***"), None);
        check("", None);
        let newer =
            "[2026-11-22T07:28:31.012] error: *** STEP 3.0 ON n001 CANCELLED AT 2026-11-22T07:28:31 DUE";
        check(&format!("{newer} TO TIME LIMIT ***"), Some(CauseKind::TimeLimit));
        check(&format!("{newer} to SIGNAL Killed ***"), Some(CauseKind::Cancelled));
        check(&format!("{newer} TO TASK FAILURE ***"), None);
    }

    #[test]
    fn the_more_telling_cause_stays() {
        let cause = |kind| EndCause { kind, message: String::new() };
        let (cancelled, limit) = (cause(CauseKind::Cancelled), cause(CauseKind::TimeLimit));
        assert_eq!(cancelled.clone().or_better(limit.clone()), limit);
        assert_eq!(limit.clone().or_better(cancelled), limit);
    }
}
