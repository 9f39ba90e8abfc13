//! `scontrol`'s output about jobs. It is faster than `squeue --json`, which prints every job of the cluster, and
//! contains the job numbers of array tasks and components.

use super::parse::{bounded, hosts};
use super::{Job, JobId, JobName};
use crate::{Error, Result};

/// Parses `scontrol --oneliner show job`.
///
/// # Errors
/// A line has another form. A missing job is reported on standard error, and is no error here: the list is empty.
pub(super) fn parse_shown_jobs(text: &str) -> Result<Vec<Job>> {
    bounded(text.as_bytes())?;
    text.lines().filter(|line| line.starts_with("JobId=")).map(parse_shown_job).collect()
}

fn parse_shown_job(line: &str) -> Result<Job> {
    // A job's name and its command may contain blanks and any other characters. The needed fields are before the name
    // and after the command.
    let (numbers, rest) = line.split_once(" JobName=").unwrap_or((line, ""));
    let rest = rest.split_once(" Command=").map_or(rest, |(rest, _)| rest);
    let number = |name: &str| {
        let value = field(numbers, name)?;
        value.parse::<u32>().ok()
    };
    let lacks = |name: &str| Error::invalid(format!("scontrol printed a job without {name}"));
    let id = JobId(number("JobId").ok_or_else(|| lacks("JobId"))?);
    let name = if let (Some(array), Some(task)) = (number("ArrayJobId"), number("ArrayTaskId")) {
        JobName::ArrayTask(JobId(array), task)
    } else if let (Some(leader), Some(component)) = (number("HetJobId"), number("HetJobOffset")) {
        JobName::Component(JobId(leader), component)
    } else {
        JobName::Plain(id)
    };
    // The last occurrence of a name: the job's own name comes first. A value may be empty.
    let last = |name: &str| rest.rsplit_once(&format!(" {name}=")).map(|(_, value)| value);
    let word = |name: &str| {
        let value = last(name).and_then(|value| value.split(' ').next());
        value.ok_or_else(|| lacks(name))
    };
    let user = word("UserId")?;
    let user_id = user.rsplit_once('(').and_then(|(_, id)| id.strip_suffix(')')?.parse().ok());
    Ok(Job {
        id,
        name,
        user_id: user_id.ok_or_else(|| lacks("UserId"))?,
        state: word("JobState")?.to_owned(),
        reason: word("Reason")?.to_owned(),
        hosts: hosts(word("NodeList")?)?,
    })
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.split_whitespace().find_map(|field| field.strip_prefix(name)?.strip_prefix('='))
}

#[cfg(test)]
mod tests {
    use super::*;

    const REST: &str =
        "UserId=me(1000) GroupId=me(1000) JobState=RUNNING Reason=None ReqNodeList=(null) NodeList=n[1-2]";

    #[track_caller]
    fn check(line: &str, expected: &str) {
        let found = parse_shown_jobs(line).map(|jobs| {
            let show = |job: &Job| {
                format!(
                    "{} {} {} {} {} {}",
                    job.id,
                    job.name,
                    job.user_id,
                    job.state,
                    job.reason,
                    job.hosts.join(",")
                )
            };
            jobs.iter().map(show).collect::<Vec<_>>().join("; ")
        });
        assert_eq!(found.unwrap_or_else(|error| error.to_string()), expected);
    }

    #[test]
    fn tasks_of_arrays_and_components_have_a_number_of_their_own() {
        check(&format!("JobId=7 JobName=x {REST}\n"), "7 7 1000 RUNNING None n1,n2");
        check(
            &format!("JobId=6 ArrayJobId=5 ArrayTaskId=3 JobName=x {REST}"),
            "6 5_3 1000 RUNNING None n1,n2",
        );
        check(
            &format!("JobId=3 HetJobId=2 HetJobOffset=1 JobName=x {REST}"),
            "3 2+1 1000 RUNNING None n1,n2",
        );
        // Waiting array tasks are still one job.
        check(
            &format!("JobId=5 ArrayJobId=5 ArrayTaskId=3,7-9 JobName=x {REST}"),
            "5 5 1000 RUNNING None n1,n2",
        );
        check(
            &format!("JobId=7 JobName=x {} NumNodes=3-3", REST.replace("n[1-2]", "")),
            "7 7 1000 RUNNING None ",
        );
        check("slurm_load_jobs error: Invalid job id specified\n", "");
    }

    #[test]
    fn a_jobs_name_and_command_make_nothing_up() {
        let line =
            format!("JobId=7 JobName=a HetJobId=2 UserId=you(1) {REST} Command=/b UserId=you(2) NodeList=x");
        check(&line, "7 7 1000 RUNNING None n1,n2");
        check("JobId=7 JobName=x JobState=RUNNING", "scontrol printed a job without UserId");
        check("JobId=x JobName=x", "scontrol printed a job without JobId");
    }
}
