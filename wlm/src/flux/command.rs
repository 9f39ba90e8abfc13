//! Builds Flux's command lines. They never contain secrets.

use std::ffi::OsString;

use gantry_types::rank_set::RankSet;

use super::reference::JobId;
use crate::launcher::Given;

/// The option that names the job after its program, as Flux would without gantry. `None`: the user names the job.
pub(super) fn build_name(given: &[&Given], program: &OsString) -> Option<OsString> {
    let names_it = |given: &&&Given| {
        let is_attribute = |value: &OsString| {
            let text = value.to_string_lossy();
            ["job.name", "system.job.name"].iter().any(|name| text.split('=').next() == Some(name))
        };
        given.name == "job-name" || (given.name == "setattr" && given.values.iter().any(is_attribute))
    };
    if given.iter().any(|given| names_it(&given)) {
        return None;
    }
    let mut option = OsString::from("--job-name=");
    option.push(std::path::Path::new(program).file_name()?);
    Some(option)
}

/// `flux exec`, which starts `command` beside a job's ranks through the job's own shells. `shells` selects them by
/// their index in the job. Its standard input goes to each of them.
pub(super) fn build_exec(job: JobId, shells: &RankSet, command: &[OsString]) -> Vec<OsString> {
    let mut words =
        words(&["exec", "--quiet", "--dir=/", &format!("--jobid={job}"), &format!("--rank={shells}")]);
    words.extend_from_slice(command);
    words
}

/// `flux job` with a job's record, as JSON.
pub(super) fn build_info(job: JobId) -> Vec<OsString> {
    words(&["job", "list-ids", &job.to_string()])
}

/// `flux job` with a job's submitted jobspec, as JSON.
pub(super) fn build_jobspec(job: JobId) -> Vec<OsString> {
    words(&["job", "info", &job.to_string(), "jobspec"])
}

/// `flux job` with a job's events, one per line, as JSON.
pub(super) fn build_events(job: JobId) -> Vec<OsString> {
    words(&["job", "eventlog", "--format=json", &job.to_string()])
}

/// `flux job` with the processes of a job's ranks.
pub(super) fn build_processes(job: JobId) -> Vec<OsString> {
    // The ranks may not have started yet. The caller asks again.
    words(&["job", "hostpids", "--timeout=1s", &job.to_string()])
}

/// `flux job` with the running jobs of an instance, one per line, as JSON.
pub(super) fn build_running() -> Vec<OsString> {
    words(&["job", "list", "--states=run"])
}

/// `flux` with the host of each broker of an instance.
pub(super) fn build_hosts() -> Vec<OsString> {
    words(&["getattr", "hostlist"])
}

pub(super) fn words(words: &[&str]) -> Vec<OsString> {
    words.iter().map(OsString::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_commands() {
        let job: JobId = "f7".parse().unwrap();
        let line = |words: Vec<OsString>| words.join(" ".as_ref()).into_string().unwrap();
        assert_eq!(line(build_info(job)), "job list-ids f7");
        assert_eq!(line(build_events(job)), "job eventlog --format=json f7");
        assert_eq!(line(build_processes(job)), "job hostpids --timeout=1s f7");
        let exec = build_exec(job, &"0,2-3".parse().unwrap(), &words(&["/g/agent", "serve"]));
        assert_eq!(line(exec), "exec --quiet --dir=/ --jobid=f7 --rank=0,2-3 /g/agent serve");
    }

    #[test]
    fn a_job_is_called_by_its_program_unless_the_user_names_it() {
        let given = |name: &'static str, value: &str| Given { name, at: 0, values: vec![value.into()] };
        let name = |given: &[&Given]| build_name(given, &"./x/heat".into());
        assert_eq!(name(&[&given("nodes", "2")]), Some("--job-name=heat".into()));
        assert_eq!(name(&[&given("job-name", "mine")]), None);
        assert_eq!(name(&[&given("setattr", "system.job.name=mine")]), None);
        assert!(name(&[&given("setattr", "other=mine")]).is_some());
    }
}
