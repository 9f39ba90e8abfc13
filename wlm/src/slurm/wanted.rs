//! Converts a job's description to options of srun.

use std::ffi::OsString;

use crate::{Error, Result};
use gantry_types::launch::{JobType, Wanted};

/// The arguments of an srun for `wanted`. Its memory is that of `--mem`: per node, both the reservation and the
/// limit.
pub(super) fn build_args(wanted: &Wanted) -> Result<Vec<OsString>> {
    if let (Some(place), Some(queue)) = (&wanted.place, &wanted.queue)
        && place != queue
    {
        return Err(Error::invalid_with(
            format!(
                "both the partition {place} and the queue {queue} are asked for, which are the same to Slurm"
            ),
            "name one of them",
        ));
    }
    if let (Some(least), Some(most)) = (wanted.min_memory_mb, wanted.max_memory_mb)
        && least != most
    {
        return Err(Error::invalid_with(
            "Slurm cannot honour minMemory and maxMemory that differ: what it sets aside is what may be used",
            "give one of them",
        ));
    }
    let (tasks, cpus) = match wanted.job_type {
        JobType::Multiple | JobType::Mpi => (wanted.count, None),
        JobType::Single => (1, Some(wanted.count)),
    };
    let partition = wanted.place.as_ref().or(wanted.queue.as_ref());
    let memory = wanted.min_memory_mb.or(wanted.max_memory_mb);
    let options = [
        Some(format!("--ntasks={tasks}")),
        // gantry's agents serve them.
        (wanted.job_type == JobType::Mpi).then(|| "--mpi=none".to_owned()),
        cpus.map(|cpus| format!("--cpus-per-task={cpus}")),
        wanted.host_count.map(|nodes| format!("--nodes={nodes}")),
        partition.map(|partition| format!("--partition={partition}")),
        wanted.project.as_ref().map(|account| format!("--account={account}")),
        wanted.max_minutes.map(|minutes| format!("--time={minutes}")),
        memory.map(|mb| format!("--mem={mb}M")),
        Some("--".to_owned()),
    ];
    let mut args: Vec<OsString> = options.into_iter().flatten().map(OsString::from).collect();
    args.push(wanted.program.clone());
    args.extend(wanted.args.iter().cloned());
    Ok(args)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_becomes_options() {
        let wanted = Wanted { count: 4, program: "app".into(), args: vec!["x".into()], ..Wanted::default() };
        assert_eq!(build_args(&wanted).unwrap(), ["--ntasks=4", "--", "app", "x"]);
        let mpi = Wanted { job_type: JobType::Mpi, ..wanted.clone() };
        assert_eq!(build_args(&mpi).unwrap(), ["--ntasks=4", "--mpi=none", "--", "app", "x"]);
        let all = Wanted {
            place: Some("debug".into()),
            host_count: Some(2),
            job_type: JobType::Single,
            project: Some("physics".into()),
            max_minutes: Some(30),
            min_memory_mb: Some(100),
            ..wanted.clone()
        };
        let expected = [
            "--ntasks=1",
            "--cpus-per-task=4",
            "--nodes=2",
            "--partition=debug",
            "--account=physics",
            "--time=30",
            "--mem=100M",
            "--",
            "app",
            "x",
        ];
        assert_eq!(build_args(&all).unwrap(), expected);
        let two = Wanted { place: Some("a".into()), queue: Some("b".into()), ..wanted.clone() };
        assert!(build_args(&two).unwrap_err().to_string().contains("partition a and the queue b"));
        let unequal = Wanted { min_memory_mb: Some(1), max_memory_mb: Some(2), ..wanted };
        assert!(build_args(&unequal).unwrap_err().to_string().contains("minMemory and maxMemory"));
    }
}
