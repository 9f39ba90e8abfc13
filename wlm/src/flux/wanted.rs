//! Converts the description of a job, or of a group of processes, to options of `flux run`.

use std::ffi::OsString;

use crate::{Error, Result};
use gantry_types::launch::{JobType, Mixed, Wanted};

/// Builds the arguments of a `flux run` for `wanted`.
///
/// # Errors
/// Names an attribute that Flux does not support: it does not reserve memory.
pub(super) fn build_args(wanted: &Wanted) -> Result<Vec<OsString>> {
    if let (Some(place), Some(queue)) = (&wanted.place, &wanted.queue)
        && place != queue
    {
        let message =
            format!("both the place {place} and the queue {queue} are asked for, which are the same to Flux");
        return Err(Error::invalid_with(message, "name one of them"));
    }
    let memory = [("minMemory", wanted.min_memory_mb), ("maxMemory", wanted.max_memory_mb)];
    if let Some((attribute, _)) = memory.iter().find(|(_, asked)| asked.is_some()) {
        return Err(Error::invalid_with(
            format!("Flux cannot honour {attribute}: it sets no memory aside"),
            "leave it out",
        ));
    }
    let (tasks, cores) = match wanted.job_type {
        JobType::Multiple | JobType::Mpi => (wanted.count, None),
        JobType::Single => (1, Some(wanted.count)),
    };
    let options = [
        Some(format!("--ntasks={tasks}")),
        cores.map(|cores| format!("--cores-per-task={cores}")),
        wanted.host_count.map(|nodes| format!("--nodes={nodes}")),
        wanted.place.as_ref().or(wanted.queue.as_ref()).map(|queue| format!("--queue={queue}")),
        wanted.project.as_ref().map(|bank| format!("--bank={bank}")),
        wanted.max_minutes.map(|minutes| format!("--time-limit={minutes}m")),
        Some("--".to_owned()),
    ];
    let mut args: Vec<OsString> = options.into_iter().flatten().map(OsString::from).collect();
    args.push(wanted.program.clone());
    args.extend(wanted.args.iter().cloned());
    Ok(args)
}

/// Builds the arguments of a `flux run` for ranks of one program, on hosts that Flux chooses.
///
/// # Errors
/// The ranks differ, or have hosts of their own. A job of Flux has one program, and Flux places its ranks evenly.
pub(super) fn build_group_args(mixed: &Mixed) -> Result<Vec<OsString>> {
    let ([part], []) = (mixed.parts.as_slice(), mixed.hosts.as_slice()) else {
        return Err(Error::invalid_with(
            "a job of Flux has one program, and its ranks are where Flux puts them",
            "leave out the hosts, and create a group for each program",
        ));
    };
    let mut args: Vec<OsString> = vec![format!("--ntasks={}", mixed.size()).into()];
    if let Some(cwd) = &part.cwd {
        let mut option = OsString::from("--cwd=");
        option.push(cwd);
        args.push(option);
    }
    args.extend(["--".into(), part.program.clone()]);
    args.extend(part.args.iter().cloned());
    Ok(args)
}

#[cfg(test)]
mod tests {
    use gantry_types::launch::MixedPart;

    use super::*;

    #[test]
    fn a_group_has_one_program_and_no_hosts() {
        let part = |program: &str| MixedPart {
            ranks: "0-2".parse().unwrap(),
            program: program.into(),
            args: vec!["x".into()],
            cwd: Some("/d".into()),
            ..MixedPart::default()
        };
        let mixed = |programs: &[&str], hosts: &[&str]| Mixed {
            parts: programs.iter().map(|program| part(program)).collect(),
            hosts: hosts.iter().map(|&host| host.to_owned()).collect(),
        };
        assert_eq!(
            build_group_args(&mixed(&["a"], &[])).unwrap(),
            ["--ntasks=3", "--cwd=/d", "--", "a", "x"]
        );
        for other in [mixed(&["a", "b"], &[]), mixed(&["a"], &["n1", "n2", "n2"])] {
            assert!(build_group_args(&other).unwrap_err().to_string().contains("one program"));
        }
    }

    #[test]
    fn what_is_wanted_becomes_options() {
        let wanted = Wanted { count: 4, program: "app".into(), args: vec!["x".into()], ..Wanted::default() };
        assert_eq!(build_args(&wanted).unwrap(), ["--ntasks=4", "--", "app", "x"]);
        let all = Wanted {
            place: Some("debug".into()),
            host_count: Some(2),
            job_type: JobType::Single,
            project: Some("physics".into()),
            max_minutes: Some(30),
            ..wanted.clone()
        };
        let expected = [
            "--ntasks=1",
            "--cores-per-task=4",
            "--nodes=2",
            "--queue=debug",
            "--bank=physics",
            "--time-limit=30m",
            "--",
            "app",
            "x",
        ];
        assert_eq!(build_args(&all).unwrap(), expected);
        let two = Wanted { place: Some("a".into()), queue: Some("b".into()), ..wanted.clone() };
        assert!(build_args(&two).unwrap_err().to_string().contains("place a and the queue b"));
        let memory = Wanted { max_memory_mb: Some(1), ..wanted };
        assert!(build_args(&memory).unwrap_err().to_string().contains("maxMemory"));
    }
}
