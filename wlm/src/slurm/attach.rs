//! Finds a step that runs already: by its name, by its job's, or by the pid of the srun that has made it.
//!
//! Slurm tells which tasks are on which node, and their pids only on the node itself. So agents find them there, by what Slurm has put into
//! their environment: no program has to be run on the nodes for that, and a task's children are told apart.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use gantry_shared::error::{Failure, Kind};
use gantry_shared::id::Pid;
use gantry_shared::placement::{Placement, PlacementBuilder};
use gantry_shared::wire::message::RankMarks;

use super::command::AGENTS_LABEL;
use super::{
    Job, JobId, JobName, JobPhase, NodeTasks, StepInfo, StepName, Target, build_jobs, build_layout,
    build_step, parse_failure, parse_jobs, parse_layout, parse_steps,
};
use crate::host::{Asked, Host};
use crate::mpir::read_running;
use crate::{Adoption, Error, JobRef, Result};

/// How long a command of Slurm may take to answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Finds the step that `text` names.
///
/// # Errors
/// [`Error::NotYet`] for a job that waits or runs no step yet; otherwise what Slurm says.
pub(super) fn adopt(text: &str, host: &dyn Host) -> Result<Adoption> {
    let target = match find_srun(text, host) {
        Some(pid) => ask_srun(pid, host)?,
        None => text.parse()?,
    };
    if let (JobName::Component(..), _)
    | (_, Some(StepName::Batch | StepName::Extern | StepName::Interactive)) = (target.job, target.step)
    {
        return Err(Error::invalid_with(
            format!("{target}: gantry attaches to steps that srun has made, not in heterogeneous jobs"),
            "write JOB or JOB.STEP",
        ));
    }
    let (steps, said) = ask_steps(&target, host)?;
    let Some(step) = choose_step(&steps, &target) else { return Err(explain_none(&target, &said, host)) };
    let (own, theirs) = (host.uid(), step.user_id);
    if own != theirs {
        return Err(Error::NoAccess {
            message: format!("step {} belongs to user {theirs}, and this is user {own}", step.step),
            hint: None,
        });
    }
    let (JobName::Plain(job), Some(StepName::Number(number))) = (step.step.job, step.step.step) else {
        return Err(Error::invalid(format!("gantry cannot attach to step {} yet", step.step)));
    };
    let words = build_layout(&step.step);
    let layout = ask(&words, host)?;
    let nodes = parse_layout(&layout.stdout).map_err(|error| refused(&words, &layout).unwrap_or(error))?;
    Ok(Adoption {
        job: JobRef(step.step.to_string()),
        placement: build_placement(step, &nodes)?,
        marks: Some(build_marks(job, number)),
    })
}

/// The pid, if `text` is that of an srun. A job of the same number is named by its step.
fn find_srun(text: &str, host: &dyn Host) -> Option<Pid> {
    let pid = text.parse().ok().and_then(Pid::new)?;
    let name = host.read(Path::new(&format!("/proc/{pid}/comm"))).ok()?;
    (name.trim_ascii() == b"srun").then_some(pid)
}

/// The step that an srun has made.
fn ask_srun(pid: Pid, host: &dyn Host) -> Result<Target> {
    let failed = |why: String| {
        Error::invalid_with(
            format!("cannot ask the srun with pid {pid} for its step: {why}"),
            "name the step: see 'squeue --me --steps'",
        )
    };
    let table = read_running(pid, host).map_err(|error| failed(error.to_string()))?;
    let (Some(job), Some(step)) = (table.job, table.step) else {
        return Err(failed("it does not tell".to_owned()));
    };
    format!("{job}.{step}").parse()
}

/// The steps that Slurm lists, and its words.
fn ask_steps(target: &Target, host: &dyn Host) -> Result<(Vec<StepInfo>, Asked)> {
    let said = ask(&build_step(target), host)?;
    Ok((parse_steps(&said.stdout)?, said))
}

/// The step that is meant: without a number the newest. Agents' steps are never meant unless they are named.
fn choose_step<'a>(steps: &'a [StepInfo], target: &Target) -> Option<&'a StepInfo> {
    let running = steps.iter().filter(|step| step.state == "RUNNING");
    let numbered = running.filter_map(|step| match step.step.step {
        Some(StepName::Number(number)) => Some((number, step)),
        _ => None,
    });
    let meant = numbered.filter(|(_, step)| match target.step {
        Some(_) => step.step.step == target.step,
        None => step.label != AGENTS_LABEL,
    });
    meant.max_by_key(|(number, _)| *number).map(|(_, step)| step)
}

/// Why there is no step to attach to.
fn explain_none(target: &Target, said: &Asked, host: &dyn Host) -> Error {
    let JobName::Plain(id) = target.job else {
        return not_found(target, said);
    };
    let words = build_jobs(id);
    let jobs = ask(&words, host).and_then(|jobs| {
        parse_jobs(jobs.stdout.as_bytes()).map_err(|error| refused(&words, &jobs).unwrap_or(error))
    });
    match jobs {
        Ok(jobs) => match jobs.iter().find(|job| job.is_named(target.job)) {
            Some(job) => explain_job(target, job),
            None => not_found(target, said),
        },
        Err(error) => error,
    }
}

fn explain_job(target: &Target, job: &Job) -> Error {
    let Job { state, reason, .. } = job;
    let hint = Some("wait for it with --wait".to_owned());
    match job.phase() {
        JobPhase::Waiting => Error::NotYet { message: format!("job {} is {state} ({reason})", job.id), hint },
        JobPhase::Running => {
            Error::NotYet { message: format!("{target}: no such step runs in the job"), hint }
        }
        JobPhase::Ending | JobPhase::Ended => {
            let message = format!("job {} is over: Slurm says {state} ({reason})", job.id);
            Error::Refused(Failure::new(Kind::Gone, message))
        }
    }
}

fn not_found(target: &Target, said: &Asked) -> Error {
    let words: Vec<&str> =
        [said.stdout.trim(), said.stderr.trim()].into_iter().filter(|it| !it.is_empty()).collect();
    let words = if words.is_empty() { "nothing".to_owned() } else { words.join("; ") };
    Error::NotFound {
        message: format!("Slurm knows no running step {target}; scontrol says: {words}"),
        hint: Some("see with 'squeue --me --steps' what runs".to_owned()),
    }
}

fn ask(words: &[OsString], host: &dyn Host) -> Result<Asked> {
    let Some((program, args)) = words.split_first() else { return Err(Error::invalid("no command")) };
    let name = program.to_string_lossy();
    let path = host.find_in_path(&name).ok_or_else(|| Error::NotFound {
        message: format!("there is no {name} in PATH"),
        hint: Some("install Slurm's commands, or add their folder to PATH".to_owned()),
    })?;
    let command: Vec<OsString> = std::iter::once(path.into_os_string()).chain(args.iter().cloned()).collect();
    host.ask(&command, PATIENCE).map_err(|error| {
        let line = command.join(" ".as_ref()).to_string_lossy().into_owned();
        let kind =
            if error.kind() == std::io::ErrorKind::TimedOut { Kind::TimedOut } else { Kind::LauncherFailed };
        Error::Refused(Failure::new(kind, format!("cannot run {line}: {error}")))
    })
}

/// What a command has said instead of an answer, if anything.
fn refused(words: &[OsString], said: &Asked) -> Option<Error> {
    let words: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    (!said.stderr.trim().is_empty()).then(|| Error::Refused(parse_failure(&words, "an error", &said.stderr)))
}

/// Ranks without pids, in the order of the tasks' numbers.
fn build_placement(step: &StepInfo, nodes: &[NodeTasks]) -> Result<Placement> {
    let strange = || Error::invalid(format!("sattach printed a layout that does not fit step {}", step.step));
    let count = usize::try_from(step.tasks).map_err(|_| strange())?;
    let mut host_of: Vec<Option<&str>> = vec![None; count];
    let mut placement = PlacementBuilder::with_capacity(count);
    for node in nodes {
        placement.push_host(&node.host).map_err(|error| Error::invalid(error.to_string()))?;
        for task in &node.tasks {
            let slot =
                usize::try_from(*task).ok().and_then(|task| host_of.get_mut(task)).ok_or_else(strange)?;
            if slot.replace(&node.host).is_some() {
                return Err(strange());
            }
        }
    }
    for host in host_of {
        let pushed = placement.push(host.ok_or_else(strange)?, None, "");
        pushed.map_err(|error| Error::invalid(error.to_string()))?;
    }
    Ok(placement.build())
}

/// What a task has in its environment.
fn build_marks(job: JobId, step: u32) -> RankMarks {
    RankMarks {
        variables: vec![
            ("SLURM_JOB_ID".into(), job.to_string().into()),
            ("SLURM_STEP_ID".into(), step.to_string().into()),
        ],
        rank: "SLURM_PROCID".into(),
        pid: "SLURM_TASK_PID".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::fake::FakeHost;

    const STEP: &str = "UserId=1000 StartTime=now State=RUNNING NodeList=n[1-2] Nodes=2 Tasks=3";
    const LAYOUT: &str = "\tNode 0 (n1), 2 task(s): 0 2 \n\tNode 1 (n2), 1 task(s): 1 \n";

    fn host() -> FakeHost {
        let commands = ["scontrol", "squeue", "sattach", "srun"];
        let host = FakeHost::default().with_env("PATH", "/bin");
        commands.iter().fold(host, |host, name| host.with_file(format!("/bin/{name}"), ""))
    }

    fn with_steps(target: &str, stdout: &str, stderr: &str) -> FakeHost {
        host().with_answer(&format!("/bin/scontrol --oneliner show step {target}"), stdout, stderr)
    }

    /// The step and its ranks' hosts; or the kind of error and its words.
    #[track_caller]
    fn check(host: &FakeHost, target: &str, expected: std::result::Result<&str, &str>) {
        let found = adopt(target, host)
            .map(|it| {
                let hosts: Vec<&str> = it.placement.iter().map(|place| place.host).collect();
                format!("{} {}", it.job.0, hosts.join(","))
            })
            .map_err(|error| format!("{}: {error}", error.kind()));
        match (found, expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, expected),
            (Err(found), Err(expected)) => assert!(found.contains(expected), "{found}"),
            (found, expected) => panic!("{found:?} {expected:?}"),
        }
    }

    #[test]
    fn the_newest_step_that_is_not_ours_is_meant() {
        let steps = format!(
            "StepId=7.batch {STEP} Name=batch\nStepId=7.1 {STEP} Name=app\nStepId=7.0 {STEP} Name=old\nStepId=7.2 {STEP} Name=gantry-agents\n"
        );
        let host = with_steps("7", &steps, "").with_answer("/bin/sattach --layout 7.1", LAYOUT, "");
        check(&host, "7", Ok("7.1 n1,n2,n1"));
    }

    #[test]
    fn somebody_elses_step_and_layouts_that_do_not_fit() {
        let theirs = format!("StepId=7.0 {}\n", STEP.replace("1000", "1"));
        check(
            &with_steps("7.0", &theirs, ""),
            "7.0",
            Err("step 7.0 belongs to user 1, and this is user 1000"),
        );
        let host = with_steps("7.0", &format!("StepId=7.0 {STEP}\n"), "");
        let layout = LAYOUT.replace("1 task(s): 1", "1 task(s): 2");
        let strange = "sattach printed a layout that does not fit step 7.0";
        check(&host.with_answer("/bin/sattach --layout 7.0", &layout, ""), "7.0", Err(strange));
        let host = with_steps("7.0", &format!("StepId=7.0 {STEP}\n"), "");
        let words = "sattach: error: Unable to contact slurm controller (connect failure)";
        check(&host.with_answer("/bin/sattach --layout 7.0", "", words), "7.0", Err(words));
    }

    #[test]
    fn without_a_step_the_job_tells_why() {
        let squeue = |state: &str| {
            let jobs = format!(
                r#"{{"jobs":[{{"job_id":7,"user_id":1000,"job_state":"{state}","state_reason":"Priority","nodes":""}}]}}"#
            );
            with_steps("7", "No job steps in the system\n", "").with_answer(
                "/bin/squeue --json --jobs=7",
                &jobs,
                "",
            )
        };
        check(&squeue("PENDING"), "7", Err("job 7 is PENDING (Priority)"));
        assert!(matches!(adopt("7", &squeue("PENDING")), Err(Error::NotYet { .. })));
        assert!(matches!(adopt("7", &squeue("RUNNING")), Err(Error::NotYet { .. })));
        check(&squeue("COMPLETED"), "7", Err("COMPLETED"));
        let words = "slurm_get_job_steps error: Invalid job id specified";
        let host =
            with_steps("8", "", words).with_answer("/bin/squeue --json --jobs=8", r#"{"jobs":[]}"#, "");
        check(&host, "8", Err(words));
    }

    #[test]
    fn what_is_no_step_of_srun() {
        check(&host(), "7.batch", Err("steps that srun has made"));
        check(&host(), "7+1.0", Err("steps that srun has made"));
        check(&host(), "x", Err("'x' names no job of Slurm"));
        check(&host().with_file("/proc/9/comm", "srun\n"), "9", Err("cannot ask the srun with pid 9"));
    }
}
