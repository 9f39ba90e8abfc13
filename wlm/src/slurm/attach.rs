//! Finds a running step: by its name, by its job's, or by the pid of its srun.
//!
//! Slurm reports the tasks of each node, but their pids only on the node itself. So agents find them there, by
//! Slurm's variables in their environment. No program has to run on the nodes for that, and a task's children are
//! distinguished.
//!
//! The app of one srun in a heterogeneous job consists of a step in each component. Its tasks are numbered through,
//! in the order of the components, and all of them have the number of the first component's job in their environment.

use std::path::Path;

use gantry_shared::wire::message::RankMarks;
use gantry_types::error::{Failure, Kind};
use gantry_types::id::Pid;
use gantry_types::placement::PlacementBuilder;

use super::ask::{ask, ask_jobs, ask_steps, not_found, refused};
use super::cluster;
use super::command::AGENTS_LABEL;
use super::{Job, JobId, JobName, NodeTasks, StepInfo, StepName, Target, build_layout, parse_layout};
use crate::host::{Asked, Host};
use crate::mpir::read_running;
use crate::{Adoption, Error, JobPhase, JobRef, Result};

/// Slurm's name of the state of a step whose tasks run.
const RUNNING: &str = "RUNNING";

/// Finds the step with the name `text`.
///
/// # Errors
/// [`Error::NotYet`] for a job that waits or in which no step runs; otherwise Slurm's error. A variable names another
/// cluster.
pub(super) fn adopt(text: &str, host: &dyn Host) -> Result<Adoption> {
    cluster::check_variable(host)?;
    let (target, of_srun) = match find_srun(text, host) {
        Some(pid) => (ask_srun(pid, host)?, true),
        None => (text.parse()?, false),
    };
    if let Some(StepName::Batch | StepName::Extern | StepName::Interactive) = target.step {
        return Err(Error::invalid_with(
            format!("{target}: gantry attaches to steps that srun has made"),
            "write JOB or JOB.STEP",
        ));
    }
    let jobs = find_jobs(&target, of_srun, host)?;
    let shares = find_shares(&target, &jobs, host)?;
    let [first, ..] = shares.as_slice() else { return Err(Error::invalid("a step without a job")) };
    let job = match first.job.name {
        // The tasks of all components have the first component's number.
        JobName::Component(leader, _) => leader,
        JobName::Plain(_) | JobName::ArrayTask(..) => first.job.id,
    };
    let name = match first.job.name {
        JobName::Component(leader, 0) => JobName::Plain(leader),
        name => name,
    };
    let named = Target { job: name, step: Some(StepName::Number(first.number)) };
    let mut placement = PlacementBuilder::new();
    for share in &shares {
        let step = Target { job: JobName::Plain(share.job.id), step: Some(StepName::Number(share.number)) };
        let words = build_layout(&step);
        let layout = ask(&words, host)?;
        let nodes = match parse_layout(&layout.stdout) {
            Ok(nodes) => nodes,
            // It has ended since Slurm listed it.
            Err(_) if target.step.is_none() && !is_running(&step, host)? => return Err(no_step_yet(&target)),
            Err(error) => return Err(refused(&words, &layout).unwrap_or(error)),
        };
        place(&mut placement, share, &nodes)?;
    }
    let adopted = JobRef(named.to_string());
    Ok(Adoption { job: adopted, placement: placement.build(), marks: Some(build_marks(job, first.number)) })
}

/// One job's share of an app: the whole app, or one component of a heterogeneous job.
#[derive(Debug)]
struct Share<'a> {
    job: &'a Job,
    number: u32,
    step: StepInfo,
}

/// The pid, if `text` is the pid of an srun. A job with the same number must be named by its step.
fn find_srun(text: &str, host: &dyn Host) -> Option<Pid> {
    let pid = text.parse().ok().and_then(Pid::new)?;
    let name = host.read(Path::new(&format!("/proc/{pid}/comm"))).ok()?;
    (name.trim_ascii() == b"srun").then_some(pid)
}

/// The step created by an srun, by its job's own number.
pub(super) fn ask_srun(pid: Pid, host: &dyn Host) -> Result<Target> {
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

/// The running jobs that may have the step: one, or all components of a heterogeneous job in their order.
fn find_jobs(target: &Target, own_number: bool, host: &dyn Host) -> Result<Vec<Job>> {
    let mut jobs = ask_jobs(target.job, host)?;
    let leader = jobs.iter().find_map(|job| match job.name {
        JobName::Component(leader, _) => Some(leader),
        JobName::Plain(_) | JobName::ArrayTask(..) => None,
    });
    if let Some(leader) = leader {
        if target.job != JobName::Plain(leader) {
            jobs = ask_jobs(JobName::Plain(leader), host)?;
        }
    } else {
        jobs.retain(|job| if own_number { job.id == target.job.number() } else { job.is_named(target.job) });
    }
    let own = host.uid();
    if let Some(job) = jobs.iter().find(|job| job.user_id != own) {
        return Err(Error::no_access(
            format!("job {} belongs to user {}, and this is user {own}", job.id, job.user_id),
            None,
        ));
    }
    let first = jobs.first().cloned();
    let mut jobs: Vec<Job> = jobs.into_iter().filter(|job| job.phase() == JobPhase::Running).collect();
    jobs.sort_by_key(|job| match job.name {
        JobName::Component(_, component) => component,
        JobName::ArrayTask(_, task) => task,
        JobName::Plain(_) => 0,
    });
    match (jobs.as_slice(), first) {
        ([], Some(first)) => Err(explain_state(&first)),
        ([], None) => Err(not_found(&target.to_string(), &Asked::default())),
        ([first, second, ..], _) if leader.is_none() => Err(Error::invalid_with(
            format!("{} tasks of array {} run", jobs.len(), target.job),
            format!("name one of them: {}, {}", first.name, second.name),
        )),
        _ => Ok(jobs),
    }
}

/// Why a job that does not run has no step to attach to.
fn explain_state(job: &Job) -> Error {
    let Job { state, reason, .. } = job;
    match job.phase() {
        JobPhase::Waiting => {
            Error::not_yet(format!("job {} is {state} ({reason})", job.id), "wait for it with --wait", true)
        }
        // Its exit status will be known soon.
        JobPhase::Ending => {
            let message = format!("job {} is ending: Slurm reports {state}", job.id);
            Error::not_yet(message, None, false)
        }
        JobPhase::Running | JobPhase::Ended => {
            let message = format!("job {} has ended: Slurm reports {state} ({reason})", job.id);
            Error::Failed(Failure::new(Kind::Gone, message))
        }
    }
}

/// The error for a job in which no step runs at the moment.
fn no_step_yet(target: &Target) -> Error {
    Error::not_yet(format!("{target}: no such step runs in the job"), "wait for it with --wait", false)
}

fn is_running(step: &Target, host: &dyn Host) -> Result<bool> {
    let (steps, _) = ask_steps(step, host)?;
    Ok(steps.iter().any(|it| it.state == RUNNING))
}

/// The share of each job in the step: of the newest one of one srun, unless a number is given.
fn find_shares<'a>(target: &Target, jobs: &'a [Job], host: &dyn Host) -> Result<Vec<Share<'a>>> {
    let (mut all, mut waiting) = (Vec::new(), Vec::new());
    let mut last = Asked::default();
    for job in jobs {
        // The number of an array is also that of one of its tasks, so only names distinguish their steps. Newer
        // versions do not find a single step by that name; its number with the task's own number is always unique.
        let name = match job.name {
            JobName::ArrayTask(..) if target.step.is_none() => job.name,
            _ => JobName::Plain(job.id),
        };
        let (steps, said) = ask_steps(&Target { job: name, step: target.step }, host)?;
        waiting.extend(steps.iter().filter(|step| step.step.step.is_none()).map(|step| step.srun.clone()));
        all.extend(steps.into_iter().filter_map(|step| Share::of(job, step, target.step)));
        last = said;
    }
    let meant = |share: &&Share<'_>| match target.job {
        JobName::Component(..) => share.job.name == target.job,
        JobName::Plain(_) | JobName::ArrayTask(..) => true,
    };
    let chosen = all.iter().filter(meant).max_by_key(|share| share.number);
    let Some((number, srun)) = chosen.map(|share| (share.number, share.step.srun.clone())) else {
        return match target.step {
            Some(_) => Err(not_found(&target.to_string(), &last)),
            None => Err(no_step_yet(target)),
        };
    };
    // Tasks in one component may start before those in another one.
    if srun.is_some() && waiting.contains(&srun) {
        return Err(no_step_yet(target));
    }
    // Components may run unrelated steps with the same number.
    all.retain(|share| share.number == number && share.step.srun == srun);
    Ok(all)
}

impl<'a> Share<'a> {
    /// A candidate step. Agents' steps are candidates only if they are named.
    fn of(job: &'a Job, step: StepInfo, named: Option<StepName>) -> Option<Self> {
        let Some(StepName::Number(number)) = step.step.step else { return None };
        let meant = match named {
            Some(named) => named == StepName::Number(number),
            None => step.label != AGENTS_LABEL,
        };
        (meant && step.state == RUNNING).then_some(Self { job, number, step })
    }
}

/// Adds a share's ranks without pids, in the order of its tasks' numbers.
fn place(placement: &mut PlacementBuilder, share: &Share<'_>, nodes: &[NodeTasks]) -> Result<()> {
    let step = &share.step;
    let strange =
        || Error::invalid(format!("sattach printed a layout that does not match step {}", step.step));
    let count = usize::try_from(step.tasks).map_err(|_| strange())?;
    let mut host_of: Vec<Option<&str>> = vec![None; count];
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
    Ok(())
}

/// The variables in a task's environment.
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
mod tests;
