//! Error messages of Slurm's commands, sorted by the user's remedy. The messages are quoted, never replaced.

use gantry_types::error::{Failure, Kind};

use super::command::AGENTS_LABEL;
use crate::explain::{Cause, Messages};

/// What Slurm's commands print.
const MESSAGES: Messages = Messages { causes: CAUSES, is_own: is_slurms, is_noise };

const SEE_CONTROLLER: &str =
    "see with 'scontrol ping' whether the controller answers, and whether SLURM_CONF names the right cluster";

const SEE_DEVICES: &str = "see with 'sinfo --format=%G' which devices there are";

const CAUSES: &[Cause] = &[
    (&["Unable to contact slurm controller"], Kind::TimedOut, Some(SEE_CONTROLLER)),
    (&["Socket timed out"], Kind::TimedOut, Some(SEE_CONTROLLER)),
    // Where a machine has no configuration of its own, the controller gives it to each command.
    (
        &["Could not establish a configuration source"],
        Kind::Lost,
        Some(
            "see whether the controller answers; set SLURM_CONF, or see whether this machine is part of a cluster",
        ),
    ),
    (&["cannot stat file"], Kind::NotFound, Some("SLURM_CONF names a file that is not there")),
    (
        &["Job not heterogeneous job leader"],
        Kind::Invalid,
        Some("name the whole job: its first component's number"),
    ),
    (&["has expired"], Kind::Gone, Some("the job has ended: launch in another one")),
    (
        &["Expired or invalid job"],
        Kind::Gone,
        Some("SLURM_JOB_ID or --jobid names a job that has ended or never was: unset it or allocate anew"),
    ),
    (&["already completing or completed"], Kind::Gone, None),
    (&["Job has been cancelled"], Kind::Gone, None),
    // Newer versions print this when srun ends tasks because another one has ended.
    (&["DUE TO TASK FAILURE"], Kind::LauncherFailed, None),
    (&["CANCELLED AT"], Kind::Gone, None),
    (&["Invalid job id specified"], Kind::NotFound, Some("see with 'squeue --me' which jobs there are")),
    (&["StepId=", "does not exist"], Kind::NotFound, None),
    (&["Job step ", "not found"], Kind::NotFound, None),
    (&["Job is pending execution"], Kind::NotFound, Some("the job has no nodes yet: wait until it runs")),
    (&["nvalid partition"], Kind::Invalid, Some("see with 'sinfo --summarize' which partitions there are")),
    (&["Invalid node name"], Kind::Invalid, Some("see with 'sinfo --Node' which nodes there are")),
    (
        &["Invalid account"],
        Kind::NoAccess,
        Some("see with 'sacctmgr show associations user=$USER' which accounts are yours"),
    ),
    (&["Invalid qos"], Kind::NoAccess, None),
    (&["User not in group"], Kind::NoAccess, None),
    (&["Access/permission denied"], Kind::NoAccess, None),
    (
        &["violates accounting/QOS policy"],
        Kind::NoAccess,
        Some("ask for less, or for another partition or QOS"),
    ),
    (&["Memory specification can not be satisfied"], Kind::Invalid, Some("ask for less memory")),
    (
        &["Requested node configuration is not available"],
        Kind::Invalid,
        Some(
            "no node (or no node of this job) matches the request: see 'sinfo --Node --long', or inside a job 'scontrol show job'",
        ),
    ),
    (
        &["Requested partition configuration not available"],
        Kind::Invalid,
        Some(
            "ask for less, or leave out --immediate to wait: see with 'sinfo --long' what each partition allows",
        ),
    ),
    (
        &["More processors requested than permitted"],
        Kind::Invalid,
        Some("ask for fewer tasks, or for a larger allocation"),
    ),
    (&["Only allocated"], Kind::Invalid, Some("ask for fewer nodes, or for a larger allocation")),
    (&["Invalid feature"], Kind::Invalid, Some("see with 'sinfo --format=%f' which features there are")),
    (&["generic resource (gres)"], Kind::Invalid, Some(SEE_DEVICES)),
    (&["Invalid MPI type"], Kind::Invalid, Some("see with 'srun --mpi=list' which there are")),
    (&["Job dependency problem"], Kind::Invalid, None),
    (&["unrecognized option"], Kind::Invalid, Some("see 'srun --help'")),
    (&["invalid option"], Kind::Invalid, Some("see 'srun --help'")),
    (&["is ambiguous"], Kind::Invalid, Some("write the option's whole name")),
    (
        &["No directives to start application"],
        Kind::Invalid,
        Some("name the components of the job with --het-group"),
    ),
    (&["Invalid numeric value"], Kind::Invalid, None),
    (&["No command given to execute"], Kind::Invalid, Some("write a program behind the options")),
    (&["onfiguration file"], Kind::Invalid, None),
    (&["Failed to broadcast"], Kind::LauncherFailed, Some("the folder must be there on every node")),
    // The name of a sent agent continues here.
    (
        &["execve(): ", "gantry-agent: No such file"],
        Kind::NotFound,
        Some(
            "the nodes do not have gantry's agent under that path: with --send-agent=always, or GANTRY_SEND_AGENT=always, it is sent there",
        ),
    ),
    (
        &["execve(): ", "Permission denied"],
        Kind::NoAccess,
        Some("the program must be executable on every node"),
    ),
    (&["execve(): "], Kind::NotFound, Some("the program must be there, under that name, on every node")),
    (
        &["couldn't chdir"],
        Kind::NotFound,
        Some("create the directory on every node, or name another one with --chdir"),
    ),
];

/// The failure of a command, with its command line, its status and its own last messages. `stderr` may contain the
/// tasks' lines, too.
pub(super) fn parse_failure(command: &[String], status: &str, stderr: &str) -> Failure {
    let are_agents = command.iter().any(|word| word.strip_prefix("--job-name=") == Some(AGENTS_LABEL));
    let failure = MESSAGES.explain(command, status, stderr, are_agents);
    match failure.hint() {
        // The user has asked for no devices there.
        Some(SEE_DEVICES) if are_agents => failure.with_hint(NO_DEVICES),
        _ => failure,
    }
}

/// The way out where Slurm refuses to share devices with a step of agents.
const NO_DEVICES: &str = "set CTI_SLURM_DAEMON_GRES=none: daemons have no devices then";

/// Whether agents could not start because their nodes lack the agent, or have another release.
pub(super) fn lacks_agent(stderr: &str) -> bool {
    let missing = |line: &str| {
        is_slurms(line) && line.contains("execve(): ") && line.contains("gantry-agent: No such file")
    };
    stderr.lines().any(|line| missing(line) || line.contains(OTHER_RELEASE))
}

/// A part of the agent's message if it has another release than the frontend.
const OTHER_RELEASE: &str = ", this agent is ";

/// Whether a line comes from Slurm and not from a task. With `--label` a task's number precedes a task's line.
pub(super) fn is_slurms(line: &str) -> bool {
    const WRITERS: [&str; 9] = [
        "srun: ",
        "sbatch: ",
        "slurmstepd",
        "sattach: ",
        "scancel: ",
        "scontrol: ",
        "slurm_",
        "Slurm ",
        "Job step ",
    ];
    let line = line.trim_start_matches(|c: char| c.is_ascii_digit() || c == ':' || c == ' ');
    WRITERS.iter().any(|writer| line.starts_with(writer)) || line.starts_with("StepId=") || is_of_log(line)
}

/// Whether a line has the form of slurmstepd's log, `[2026-11-22T07:34:29.159] error: ...`. Newer versions forward it
/// in this form, without a name.
fn is_of_log(line: &str) -> bool {
    let Some((stamp, rest)) = line.strip_prefix('[').and_then(|line| line.split_once("] ")) else {
        return false;
    };
    let shape: String = stamp.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    shape.starts_with("0000-00-00T00:00:00")
        && ["error: ", "fatal: "].iter().any(|word| rest.starts_with(word))
}

/// Whether a line contains no information about a failure.
fn is_noise(line: &str) -> bool {
    line.is_empty()
        || line.starts_with("Try \"")
        || line.contains("lacks support for cpu binding")
        || line.contains("queued and waiting for resources")
        || line.contains("has been allocated resources")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(program: &str, status: &str, stderr: &str, kind: Kind, message: &str) {
        let command: Vec<String> = program.split_whitespace().map(str::to_owned).collect();
        let failure = parse_failure(&command, status, stderr);
        assert_eq!((failure.kind(), failure.message()), (kind, message), "{stderr}");
    }

    #[test]
    fn an_unknown_failure_keeps_the_words() {
        check(
            "srun a",
            "exit code 1",
            "srun: error: the moon is full\n",
            Kind::LauncherFailed,
            "srun ended with exit code 1: srun: error: the moon is full (command: srun a)",
        );
        check(
            "",
            "signal 9",
            "",
            Kind::LauncherFailed,
            "the command ended with signal 9: it printed nothing (command: )",
        );
    }

    #[test]
    fn a_tasks_message_is_no_cause() {
        check(
            "srun a",
            "exit code 7",
            "a: Invalid qos\nsrun: error: n1: task 0: Exited with exit code 7\n",
            Kind::LauncherFailed,
            "srun ended with exit code 7: srun: error: n1: task 0: Exited with exit code 7 (command: srun a)",
        );
        check(
            "srun -l /x",
            "exit code 13",
            "0: slurmstepd-n1: error: execve(): /x: Permission denied\n",
            Kind::NoAccess,
            "srun ended with exit code 13: 0: slurmstepd-n1: error: execve(): /x: Permission denied (command: srun -l /x)",
        );
    }

    #[test]
    fn lines_of_slurmstepds_log_are_slurms() {
        check(
            "srun gantry-agent",
            "exit code 2",
            "[x] error: execve(): mine\n[2026-11-22T07:31:14.161] error: execve(): /a/gantry-agent: No such file or directory\n",
            Kind::NotFound,
            "srun ended with exit code 2: [2026-11-22T07:31:14.161] error: execve(): /a/gantry-agent: No such file or directory (command: srun gantry-agent)",
        );
    }

    #[test]
    fn agents_are_tasks_whose_words_count() {
        check(
            "srun --job-name=gantry-agents a",
            "exit code 1",
            "read the ticket: it ended early\nsrun: error: n1: task 0: Exited with exit code 1\n",
            Kind::LauncherFailed,
            "srun ended with exit code 1: read the ticket: it ended early; srun: error: n1: task 0: Exited with exit code 1 (command: srun --job-name=gantry-agents a)",
        );
    }

    #[test]
    fn a_step_of_agents_that_gets_no_devices_goes_without() {
        let hint = |command: &str| {
            let said = "srun: error: Unable to create step for job 7: Invalid generic resource (gres) specification\n";
            let failure = parse_failure(&[command.to_owned()], "exit code 1", said);
            failure.hint().unwrap_or_default().to_owned()
        };
        assert!(hint("--job-name=gantry-agents").contains("CTI_SLURM_DAEMON_GRES=none"));
        assert!(hint("--job-name=heat").contains("sinfo"));
    }

    #[test]
    fn only_the_last_lines_are_quoted() {
        let stderr: String = (0..20).map(|line| format!("srun: {line}\n")).collect();
        let message =
            "srun ended with 1: srun: 14; srun: 15; srun: 16; srun: 17; srun: 18; srun: 19 (command: srun)";
        check("srun", "1", &stderr, Kind::LauncherFailed, message);
    }
}
