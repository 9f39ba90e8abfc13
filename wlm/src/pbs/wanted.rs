//! Converts a job's description to options of qsub and of gantry. The place behind `pbs://` is a queue.

use std::ffi::OsString;

use crate::{Error, Result};
use gantry_types::launch::{JobType, Wanted};

/// The arguments of a launch for `wanted`. Its memory is that of a chunk on each host: both the reservation and the
/// limit.
///
/// # Errors
/// A requirement that PBS does not support; none is ignored silently.
pub(super) fn build_args(wanted: &Wanted) -> Result<Vec<OsString>> {
    if let (Some(place), Some(queue)) = (&wanted.place, &wanted.queue)
        && place != queue
    {
        let what = format!("both the queue {place} of the contact and the queue {queue} are asked for");
        return Err(Error::invalid_with(what, "name one of them"));
    }
    let (processes, chunks) = build_chunks(wanted)?;
    let mut options = vec!["-l".to_owned(), format!("select={chunks}")];
    let mut option = |name: &str, value: Option<String>| {
        options.extend(value.into_iter().flat_map(|value| [name.to_owned(), value]));
    };
    option("-l", wanted.host_count.map(|_| "place=scatter".to_owned()));
    option("-l", wanted.max_minutes.map(|minutes| format!("walltime={}", u64::from(minutes) * 60)));
    option("-q", wanted.place.clone().or_else(|| wanted.queue.clone()));
    option("-A", wanted.project.clone());
    option("-n", Some(processes.to_string()));
    let mut args: Vec<OsString> = options.into_iter().map(OsString::from).collect();
    args.push("--".into());
    args.push(wanted.program.clone());
    args.extend(wanted.args.iter().cloned());
    Ok(args)
}

/// The number of processes, and the chunks of a job that has room for them.
fn build_chunks(wanted: &Wanted) -> Result<(u32, String)> {
    let memory = find_memory(wanted)?;
    let memory = memory.map(|mb| format!(":mem={mb}mb")).unwrap_or_default();
    let cannot = |what: &str, hint: &str| Err(Error::invalid_with(format!("PBS cannot honour {what}"), hint));
    match (wanted.job_type, wanted.host_count) {
        (JobType::Single, Some(2..)) => {
            cannot("hostCount for jobType=single: one process is on one host", "leave hostCount out")
        }
        (JobType::Single, _) => Ok((1, format!("1:ncpus={}:mpiprocs=1{memory}", wanted.count))),
        // Agents serve all ranks that they start as MPI programs.
        (JobType::Multiple | JobType::Mpi, Some(hosts)) if hosts == 0 || hosts > wanted.count => {
            cannot(&format!("hostCount={hosts} for {} processes", wanted.count), "give at most as many hosts")
        }
        (JobType::Multiple | JobType::Mpi, Some(hosts)) => {
            let (each, more) = (wanted.count / hosts, wanted.count % hosts);
            let chunk = |of: u32, each: u32| format!("{of}:ncpus={each}:mpiprocs={each}{memory}");
            let chunks = [(more, each + 1), (hosts - more, each)];
            let some = chunks.into_iter().filter(|(of, _)| *of > 0).map(|(of, each)| chunk(of, each));
            Ok((wanted.count, some.collect::<Vec<_>>().join("+")))
        }
        (JobType::Multiple | JobType::Mpi, None) if !memory.is_empty() => {
            cannot("memory on every node where it chooses how many there are", "give hostCount, too")
        }
        (JobType::Multiple | JobType::Mpi, None) => {
            Ok((wanted.count, format!("{}:ncpus=1:mpiprocs=1", wanted.count)))
        }
    }
}

fn find_memory(wanted: &Wanted) -> Result<Option<u32>> {
    match (wanted.min_memory_mb, wanted.max_memory_mb) {
        (Some(least), Some(most)) if least != most => Err(Error::invalid_with(
            "PBS cannot honour minMemory and maxMemory that differ: what it sets aside is what may be used",
            "give one of them",
        )),
        (least, most) => Ok(least.or(most)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted() -> Wanted {
        Wanted { count: 5, program: "app".into(), args: vec!["-x".into()], ..Wanted::default() }
    }

    #[track_caller]
    fn check(wanted: &Wanted, expected: &str) {
        let shown = match build_args(wanted) {
            Ok(args) => {
                let parts = super::super::command::parse_args(&args).unwrap().common.build_parts(5);
                assert_eq!((&parts[0].program, &parts[0].args), (&"app".into(), &vec!["-x".into()]));
                args.join(std::ffi::OsStr::new(" ")).into_string().unwrap()
            }
            Err(error) => error.to_string(),
        };
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_job_becomes_options() {
        check(&wanted(), "-l select=5:ncpus=1:mpiprocs=1 -n 5 -- app -x");
        let all = Wanted {
            place: Some("short".into()),
            host_count: Some(2),
            project: Some("physics".into()),
            max_minutes: Some(30),
            max_memory_mb: Some(100),
            ..wanted()
        };
        let chunks = "1:ncpus=3:mpiprocs=3:mem=100mb+1:ncpus=2:mpiprocs=2:mem=100mb";
        let expected = format!(
            "-l select={chunks} -l place=scatter -l walltime=1800 -q short -A physics -n 5 -- app -x"
        );
        check(&all, &expected);
        let even = Wanted { host_count: Some(5), ..wanted() };
        check(&even, "-l select=5:ncpus=1:mpiprocs=1 -l place=scatter -n 5 -- app -x");
        let mpi = Wanted { job_type: JobType::Mpi, ..wanted() };
        check(&mpi, "-l select=5:ncpus=1:mpiprocs=1 -n 5 -- app -x");
        let single = Wanted { job_type: JobType::Single, min_memory_mb: Some(9), ..wanted() };
        check(&single, "-l select=1:ncpus=5:mpiprocs=1:mem=9mb -n 1 -- app -x");
        check(
            &Wanted { queue: Some("q".into()), ..wanted() },
            "-l select=5:ncpus=1:mpiprocs=1 -q q -n 5 -- app -x",
        );
    }

    #[test]
    fn unsupported_attributes_are_named() {
        let two = Wanted { place: Some("a".into()), queue: Some("b".into()), ..wanted() };
        check(&two, "both the queue a of the contact and the queue b are asked for");
        let single = Wanted { job_type: JobType::Single, host_count: Some(2), ..wanted() };
        check(&single, "PBS cannot honour hostCount for jobType=single: one process is on one host");
        check(&Wanted { host_count: Some(6), ..wanted() }, "PBS cannot honour hostCount=6 for 5 processes");
        let unequal = Wanted { min_memory_mb: Some(1), max_memory_mb: Some(2), ..wanted() };
        check(
            &unequal,
            "PBS cannot honour minMemory and maxMemory that differ: what it sets aside is what may be used",
        );
        let memory = Wanted { min_memory_mb: Some(1), ..wanted() };
        check(&memory, "PBS cannot honour memory on every node where it chooses how many there are");
    }
}
