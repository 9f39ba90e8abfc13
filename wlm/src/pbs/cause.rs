//! Why PBS ended a job: by what the server says of it last, and by how it says that it ended.

use super::qstat::Job;
use crate::{CauseKind, EndCause};

/// What the server appends to a job's comment. Source: OpenPBS's server, where a job's end is recorded.
const COMMENTS: [(&str, CauseKind); 5] = [
    (" and exceeded resource walltime", CauseKind::TimeLimit),
    (" and exceeded resource cput", CauseKind::TimeLimit),
    (" and exceeded resource mem", CauseKind::OutOfMemory),
    (" and exceeded resource vmem", CauseKind::OutOfMemory),
    (" and terminated", CauseKind::Cancelled),
];

/// How a job ends that its mom has killed for what it took. Source: job.h, `JOB_EXEC_KILL_WALLTIME` and those before it.
const STATUSES: [(i64, CauseKind); 4] = [
    (-29, CauseKind::TimeLimit),
    (-28, CauseKind::TimeLimit),
    (-27, CauseKind::OutOfMemory),
    (-26, CauseKind::OutOfMemory),
];

/// Why a job was ended, if PBS has done it. Known as soon as PBS begins with that.
pub(super) fn cause_of_job(job: &Job) -> Option<EndCause> {
    let comment = job.comment.as_deref().unwrap_or_default();
    let by_comment = COMMENTS.iter().find(|(words, _)| comment.contains(words)).map(|(_, kind)| *kind);
    let by_status =
        || STATUSES.iter().find(|(status, _)| job.exit_status == Some(*status)).map(|(_, kind)| *kind);
    Some(EndCause { kind: by_comment.or_else(by_status)?, message: job.describe() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(comment: &str, exit_status: Option<i64>, expected: Option<CauseKind>) {
        let job = Job { comment: Some(comment.to_owned()), exit_status, ..Job::default() };
        assert_eq!(cause_of_job(&job).map(|cause| cause.kind), expected, "{comment} {exit_status:?}");
    }

    #[test]
    fn causes_by_comment_and_by_status() {
        let run = "Job run at Sun Nov 22 at 00:54 on (n001:ncpus=2)";
        check(run, None, None);
        check(&format!("{run} and finished"), Some(0), None);
        check(&format!("{run} and failed"), Some(271), None);
        check(&format!("{run} and terminated by me@login"), None, Some(CauseKind::Cancelled));
        check(&format!("{run} and exceeded resource walltime"), Some(-29), Some(CauseKind::TimeLimit));
        check(&format!("{run} and exceeded resource vmem"), None, Some(CauseKind::OutOfMemory));
        check(run, Some(-29), Some(CauseKind::TimeLimit));
        check(run, Some(-27), Some(CauseKind::OutOfMemory));
    }
}
