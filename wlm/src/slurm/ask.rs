//! Runs Slurm's commands, and reports their error messages.

use std::ffi::OsString;
use std::time::Duration;

use super::{
    Job, JobName, StepInfo, Target, build_job, build_step, parse_failure, parse_shown_jobs, parse_steps,
};
use crate::host::{Asked, Host};
use crate::{Error, Result};

/// How long a command of Slurm may take to answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// Runs the command `words`, after looking up its first word in PATH. Returns its output.
///
/// # Errors
/// It does not exist, or cannot be run. [`Error::Unanswered`]: it did not run to its end, or the controller did not answer it.
pub(super) fn ask(words: &[OsString], host: &dyn Host) -> Result<Asked> {
    let Some((program, args)) = words.split_first() else { return Err(Error::invalid("no command")) };
    let path = find_command(&program.to_string_lossy(), host)?;
    let command: Vec<OsString> = std::iter::once(path).chain(args.iter().cloned()).collect();
    let said = host.ask(&command, PATIENCE).map_err(|error| Error::not_run(&command, &error))?;
    match refused(words, &said) {
        Some(error @ Error::Unanswered(_)) if said.stdout.trim().is_empty() => Err(error),
        _ => Ok(said),
    }
}

/// The path of the command with that name.
///
/// # Errors
/// It is not in PATH.
pub(super) fn find_command(name: &str, host: &dyn Host) -> Result<OsString> {
    let path = host.find_in_path(name).ok_or_else(|| {
        Error::not_found(
            format!("there is no {name} in PATH"),
            "install Slurm's commands, or add their folder to PATH",
        )
    })?;
    Ok(path.into_os_string())
}

/// The error of a command that printed no answer, if any.
pub(super) fn refused(words: &[OsString], said: &Asked) -> Option<Error> {
    let words: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    (!said.stderr.trim().is_empty())
        .then(|| Error::of_answer(parse_failure(&words, "an error", &said.stderr)))
}

/// The jobs of a name: all tasks of an array, and all components of a heterogeneous job if its first one is named.
///
/// # Errors
/// Slurm knows no such job, or does not answer: its message.
pub(super) fn ask_jobs(name: JobName, host: &dyn Host) -> Result<Vec<Job>> {
    let words = build_job(name);
    let said = ask(&words, host)?;
    let jobs = parse_shown_jobs(&said.stdout)?;
    if jobs.is_empty() {
        return Err(refused(&words, &said).unwrap_or_else(|| not_found(&name.to_string(), &said)));
    }
    Ok(jobs)
}

/// The steps that Slurm lists, and its messages.
pub(super) fn ask_steps(target: &Target, host: &dyn Host) -> Result<(Vec<StepInfo>, Asked)> {
    let said = ask(&build_step(target), host)?;
    Ok((parse_steps(&said.stdout)?, said))
}

/// The error for a name that Slurm does not know.
pub(super) fn not_found(name: &str, said: &Asked) -> Error {
    let words: Vec<&str> =
        [said.stdout.trim(), said.stderr.trim()].into_iter().filter(|it| !it.is_empty()).collect();
    let words = if words.is_empty() { "nothing".to_owned() } else { words.join("; ") };
    Error::not_found(
        format!("Slurm has no running step {name}; scontrol reports: {words}"),
        "see with 'squeue --me --steps' what runs",
    )
}
