use super::*;
use crate::host::fake::FakeHost;

const STEP: &str = "UserId=1000 StartTime=now State=RUNNING NodeList=n[1-2] Nodes=2 Tasks=3";
const LAYOUT: &str = "\tNode 0 (n1), 2 task(s): 0 2 \n\tNode 1 (n2), 1 task(s): 1 \n";

fn host() -> FakeHost {
    let commands = ["scontrol", "sattach", "srun"];
    let host = FakeHost::default().with_env("PATH", "/bin");
    commands.iter().fold(host, |host, name| host.with_file(format!("/bin/{name}"), ""))
}

/// A job's line with these numbers.
fn job(numbers: &str, state: &str) -> String {
    format!("JobId={numbers} JobName=x UserId=me(1000) JobState={state} Reason=Priority NodeList=n[1-2]\n")
}

fn with_jobs(host: FakeHost, name: &str, lines: &str) -> FakeHost {
    host.with_answer(&format!("/bin/scontrol --oneliner show job {name}"), lines, "")
}

fn with_steps(host: FakeHost, name: &str, lines: &str) -> FakeHost {
    host.with_answer(&format!("/bin/scontrol --oneliner show step {name}"), lines, "")
}

fn with_layout(host: FakeHost, name: &str, layout: &str) -> FakeHost {
    host.with_answer(&format!("/bin/sattach --layout {name}"), layout, "")
}

/// The running job 7 with these steps, queried by `name`.
fn running(name: &str, steps: &str) -> FakeHost {
    with_steps(with_jobs(host(), "7", &job("7", "RUNNING")), name, steps)
}

/// The step, its ranks' hosts and marks; or the kind of error and its text.
#[track_caller]
fn check(host: &FakeHost, target: &str, expected: std::result::Result<&str, &str>) {
    let found = adopt(target, host)
        .map(|it| {
            let hosts: Vec<&str> = it.placement.iter().map(|place| place.host).collect();
            let marks = it.marks.unwrap();
            let values: Vec<&str> = marks.variables.iter().filter_map(|(_, value)| value.to_str()).collect();
            format!("{} {} {}", it.job.0, hosts.join(","), values.join("."))
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
    check(&with_layout(running("7", &steps), "7.1", LAYOUT), "7", Ok("7.1 n1,n2,n1 7.1"));
}

#[test]
fn a_step_that_waits_for_room_in_its_job_is_not_ready() {
    let steps = format!("StepId=7.TDB {}\n", STEP.replace("RUNNING", "PENDING"));
    check(&running("7", &steps), "7", Err("7: no such step runs in the job"));
    assert!(matches!(adopt("7", &running("7", &steps)), Err(Error::NotYet { .. })));
}

#[test]
fn another_users_step_and_layouts_that_do_not_fit() {
    let theirs = with_jobs(host(), "7", &job("7", "RUNNING").replace("1000", "1"));
    check(&theirs, "7.0", Err("job 7 belongs to user 1, and this is user 1000"));
    let one = || running("7.0", &format!("StepId=7.0 {STEP}\n"));
    let layout = LAYOUT.replace("1 task(s): 1", "1 task(s): 2");
    let strange = "sattach printed a layout that does not match step 7.0";
    check(&with_layout(one(), "7.0", &layout), "7.0", Err(strange));
    let words = "sattach: error: Unable to contact slurm controller (connect failure)";
    check(&one().with_answer("/bin/sattach --layout 7.0", "", words), "7.0", Err(words));
}

#[test]
fn a_step_that_ends_while_it_is_looked_at_is_no_verdict_on_its_job() {
    let listed = || running("7", &format!("StepId=7.0 {STEP}\n"));
    let gone = |host: FakeHost, steps: &str| {
        let words = "sattach: error: Job step 7.0 not found";
        with_steps(host.with_answer("/bin/sattach --layout 7.0", "", words), "7.0", steps)
    };
    let ended = gone(listed(), "Job step 7.0 not found\n");
    assert!(matches!(adopt("7", &ended), Err(Error::NotYet { queued: false, .. })));
    // The same answer about a step that runs, or that was named, is the user's to see.
    check(&gone(listed(), &format!("StepId=7.0 {STEP}\n")), "7", Err("Job step 7.0 not found"));
    check(&ended, "7.0", Err("Job step 7.0 not found"));
}

#[test]
fn a_controller_that_gives_no_answer_says_nothing_about_the_job() {
    let asked = |command: &str, words: &str| {
        let host = running("7", &format!("StepId=7.0 {STEP}\n"));
        adopt("7", &host.with_answer(command, "", words)).unwrap_err()
    };
    for command in
        ["scontrol --oneliner show job 7", "scontrol --oneliner show step 7", "sattach --layout 7.0"]
    {
        for words in [
            "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
            "slurm_load_jobs error: Socket timed out on send/recv operation",
            "scontrol: error: the network is on fire",
            "scontrol: fatal: Could not establish a configuration source",
        ] {
            let error = asked(&format!("/bin/{command}"), words);
            assert!(matches!(error, Error::Unanswered(_)) && error.to_string().contains(words), "{error}");
        }
    }
    // The fake machine runs no program without an answer: this one was not run.
    assert!(matches!(adopt("8", &host()), Err(Error::Unanswered(_))));
    let unknown =
        asked("/bin/scontrol --oneliner show job 7", "slurm_load_jobs error: Invalid job id specified");
    assert!(matches!(unknown, Error::Failed(_)), "{unknown}");
}

#[test]
fn a_job_that_does_not_run_tells_why() {
    let in_state = |state: &str| with_jobs(host(), "7", &job("7", state));
    check(&in_state("PENDING"), "7", Err("job 7 is PENDING (Priority)"));
    assert!(matches!(adopt("7", &in_state("PENDING")), Err(Error::NotYet { .. })));
    check(&in_state("COMPLETED"), "7", Err("COMPLETED"));
    assert!(matches!(adopt("7", &running("7", "No job steps in the system\n")), Err(Error::NotYet { .. })));
    check(&running("7.9", "Job step 7.9 not found\n"), "7.9", Err("Job step 7.9 not found"));
    let words = "slurm_load_jobs error: Invalid job id specified";
    check(&host().with_answer("/bin/scontrol --oneliner show job 8", "", words), "8", Err(words));
}

#[test]
fn targets_that_are_no_step_of_srun() {
    check(&host(), "7.batch", Err("steps that srun has made"));
    check(&host(), "x", Err("'x' names no job of Slurm"));
    check(&host().with_file("/proc/9/comm", "srun\n"), "9", Err("cannot ask the srun with pid 9"));
}

#[test]
fn a_task_of_an_array_is_named_by_its_number_or_by_its_own_job() {
    let (third, fifth) =
        (job("6 ArrayJobId=5 ArrayTaskId=3", "RUNNING"), job("5 ArrayJobId=5 ArrayTaskId=7", "RUNNING"));
    let with_third = |name: &str| {
        let host = with_jobs(host(), name, &third);
        let host = with_steps(host, "5_3", &format!("StepId=5_3.batch {STEP}\nStepId=5_3.0 {STEP}\n"));
        let host = with_steps(host, "6.0", &format!("StepId=5_3.0 {STEP}\n"));
        with_layout(host, "6.0", LAYOUT)
    };
    check(&with_third("5_3"), "5_3.0", Ok("5_3.0 n1,n2,n1 6.0"));
    check(&with_third("5_3"), "5_3", Ok("5_3.0 n1,n2,n1 6.0"));
    check(&with_third("6"), "6.0", Ok("5_3.0 n1,n2,n1 6.0"));
    let both = with_jobs(host(), "5", &format!("{fifth}{third}"));
    check(&both, "5", Err("2 tasks of array 5 run"));
    assert_eq!(adopt("5", &both).unwrap_err().hint().as_deref(), Some("name one of them: 5_3, 5_7"));
}

/// Heterogeneous job 7 with the components 7 and 8; the steps of each.
fn heterogeneous(first: &str, second: &str) -> FakeHost {
    let components =
        [job("7 HetJobId=7 HetJobOffset=0", "RUNNING"), job("8 HetJobId=7 HetJobOffset=1", "RUNNING")];
    let host = with_jobs(host(), "7", &components.concat());
    let host = with_jobs(with_jobs(host, "7+1", &components[1]), "8", &components[1]);
    let host = with_jobs(host, "7+0", &components[0]);
    let host = with_steps(with_steps(host, "7", first), "8", second);
    with_steps(with_steps(host, "7.0", first), "8.0", second)
}

#[test]
fn components_of_one_srun_are_one_app_with_ranks_in_their_order() {
    let one = "UserId=1000 State=RUNNING NodeList=n3 Tasks=1 SrunHost:Pid=l:9";
    let host =
        heterogeneous(&format!("StepId=7.0 {STEP} SrunHost:Pid=l:9\n"), &format!("StepId=8.0 {one}\n"));
    let host = with_layout(with_layout(host, "7.0", LAYOUT), "8.0", "Node 0 (n3), 1 task(s): 0 \n");
    for target in ["7", "7.0", "7+1.0", "8.0", "7+0"] {
        check(&host, target, Ok("7.0 n1,n2,n1,n3 7.0"));
    }
}

#[test]
fn a_component_with_an_srun_of_its_own_is_an_app_of_its_own() {
    let host = heterogeneous(
        &format!("StepId=7.0 {STEP} SrunHost:Pid=l:8\n"),
        &format!("StepId=8.0 {STEP} SrunHost:Pid=l:9\n"),
    );
    let host = with_layout(with_layout(host, "7.0", LAYOUT), "8.0", LAYOUT);
    check(&host, "7+1.0", Ok("7+1.0 n1,n2,n1 7.0"));
    check(&host, "7+0.0", Ok("7.0 n1,n2,n1 7.0"));
}

#[test]
fn an_srun_that_still_waits_for_a_component_has_not_all_its_ranks() {
    let waits = STEP.replace("RUNNING", "PENDING");
    let host = heterogeneous(
        &format!("StepId=7.0 {STEP} SrunHost:Pid=l:9\n"),
        &format!("StepId=8.TDB {waits} SrunHost:Pid=l:9\n"),
    );
    assert!(matches!(adopt("7", &host), Err(Error::NotYet { .. })));
}

#[test]
fn a_step_of_another_cluster_is_not_taken_for_the_own_ones() {
    let host = running("7", "").with_file("/etc/slurm/slurm.conf", "ClusterName=cpu");
    let error = adopt("7", &host.with_env("SLURM_CLUSTERS", "gpu")).unwrap_err().to_string();
    assert!(error.starts_with("SLURM_CLUSTERS is 'gpu'"), "{error}");
}
