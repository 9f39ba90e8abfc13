//! Attaching to jobs of a real Flux, by every form of an id and into instances; and batch jobs.

use std::fs;

use gantry_tests::flux::{app_of, jobs, last_job, on_flux};
use gantry_tests::slurm::{Cluster, error_of};
use gantry_tests::submit::{attached_and_left, submit, write_script};
use gantry_tests::testbed::{HOME, program};
use gantry_tests::{SOON, becomes_true, proc};
use gantry_types::id::Pid;
use gantry_wlm::flux::FluxExtras;
use gantry_wlm::host::Machine;
use gantry_wlm::{JobPhase, JobRef};
use nix::sys::signal::Signal;

/// A job that waits on two nodes, as Flux prints its id.
fn begin(cluster: &Cluster, seconds: &str) -> String {
    let said = cluster.said("flux", ["submit", "-N2", "-n4", "/bin/sleep", seconds]);
    cluster.said("flux", ["job", "wait-event", "--timeout=20s", said.trim(), "start"]);
    said.trim().to_owned()
}

fn cancel_all(cluster: &Cluster) {
    cluster.said("flux", ["cancel", "--all", "--quiet"]);
    assert!(becomes_true(2 * SOON, || jobs(cluster).is_empty()), "{}", jobs(cluster));
}

/// Attaches by that name and lets go; the name that the app has.
#[track_caller]
fn attach(cluster: &Cluster, target: &str, ranks: usize) -> String {
    let mut run = cluster.gantry(["--json", "attach", "--wait", "--wlm", "flux", target]);
    let attached = run.next_event("attached", 2 * SOON);
    assert_eq!(attached["ranks"].as_array().map(Vec::len), Some(ranks), "{attached}");
    let (job, _) = app_of(cluster);
    proc::send(program(run.pid()).expect("the tool"), Signal::SIGINT);
    run.exited(SOON);
    job
}

#[test]
fn a_job_is_attached_to_by_every_form_of_its_id() {
    on_flux(2, |cluster| {
        let id = begin(cluster, "800");
        let plain = id.replace('ƒ', "f");
        let forms = ["dec", "hex", "dothex", "kvs", "f58"]
            .map(|form| cluster.said("flux", ["job", "id", &format!("--to={form}"), &id]));
        for form in forms.iter().map(|form| form.trim()).chain([plain.as_str()]) {
            assert_eq!(attach(cluster, form, 4), plain, "{form}");
        }
        assert_eq!(cluster.find("sleep 800").len(), 4, "attaching changes nothing");
        cancel_all(cluster);
    });
}

/// In the environment of this test program on the login node: a job, and the pid of its `flux run` there.
const OF_JOB: &str = "FLUX_ATTACH_TEST_JOB";
const OF_LAUNCHER: &str = "FLUX_ATTACH_TEST_LAUNCHER";

/// On the login node: what Flux's extras say. True: this process is there.
#[expect(clippy::disallowed_methods, reason = "a test reads its own environment")]
fn check_extras_here() -> bool {
    let (Ok(job), Ok(launcher)) = (std::env::var(OF_JOB), std::env::var(OF_LAUNCHER)) else { return false };
    let launcher = launcher.parse().ok().and_then(Pid::new).expect("a pid");
    let found = FluxExtras.job_of_attach(launcher, &Machine).expect("the job of the launcher");
    assert_eq!(found.to_string(), job.replace('ƒ', "f"));
    let record = FluxExtras.job(&JobRef(job), &Machine).expect("the record of the job");
    assert_eq!((record.name.as_str(), record.nodelist.as_str()), ("sleep", "n[001-002]"));
    assert_eq!((record.state_word(), record.phase()), ("RUN", JobPhase::Running));
    assert_eq!(record.userid, nix::unistd::getuid().as_raw());
    assert!(record.t_run > 0.0, "{record:?}");
    let unknown = FluxExtras.job(&JobRef("f234".to_owned()), &Machine).expect_err("no such job");
    assert!(unknown.to_string().contains("f234"), "{unknown}");
    let own = Pid::new(std::process::id().cast_signed()).expect("a pid");
    assert!(FluxExtras.job_of_attach(own, &Machine).is_err());
    true
}

#[test]
fn the_record_of_a_job_and_the_job_of_a_launcher_are_there_for_tools() {
    if check_extras_here() {
        return;
    }
    on_flux(2, |cluster| {
        let mut launcher = cluster.run("flux", ["run", "-N2", "-n4", "/bin/sleep", "801"], &[]);
        assert!(becomes_true(SOON, || cluster.find("/bin/sleep 801").len() == 4));
        let pid = program(launcher.pid()).expect("flux run");
        let seen = cluster.bed.login().user_processes();
        let number = seen.iter().find(|process| process.pid == pid).expect("flux run").number.to_string();
        let job = last_job(cluster);
        let variables = [(OF_JOB, job.as_str()), (OF_LAUNCHER, number.as_str())];
        let own = std::env::current_exe().expect("this test program");
        let name = "the_record_of_a_job_and_the_job_of_a_launcher_are_there_for_tools";
        let done = cluster.run(own, ["--exact", name, "--nocapture"], &variables).wait(SOON);
        assert_eq!(done.code(), 0, "{done:?}");
        assert!(done.stdout.iter().any(|line| line.contains("1 passed")), "{done:?}");
        cancel_all(cluster);
        launcher.exited(SOON);
    });
}

#[test]
fn what_cannot_be_attached_to_is_refused_in_fluxs_words() {
    on_flux(1, |cluster| {
        cluster.said("flux", ["run", "-n1", "true"]);
        let ended = last_job(cluster);
        let check = |target: &str, kind: &str, words: &str| {
            let done = cluster.gantry(["--json", "attach", "--wlm", "flux", target]).wait(SOON);
            let error = error_of(&done);
            assert_eq!(error["kind"], kind, "{error}");
            assert!(error.to_string().contains(words), "{error}");
        };
        check(&ended, "gone", "Flux reports INACTIVE");
        check("f234", "not-found", "f234");
        check("what", "invalid", "is no id of a job of Flux");
        cluster.said("flux", ["queue", "stop", "--quiet"]);
        let waits = cluster.said("flux", ["submit", "-n1", "true"]);
        check(waits.trim(), "not-found", "is in state SCHED");
        cluster.said("flux", ["queue", "start", "--quiet"]);
        cancel_all(cluster);
    });
}

#[test]
fn a_batch_job_is_attached_to_when_a_job_runs_inside_of_it() {
    on_flux(2, |cluster| {
        let folder =
            gantry_tests::target_dir().join("test-programs").join(format!("flux-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let script = folder.join("runs");
        write_script(&script, "flux run -N2 -n4 sleep 700; sleep 701");
        let script = script.display().to_string();
        let daemon = ["--daemon", "/bin/sleep 2000", "--", "--output=/dev/null"];
        let args = [&daemon[..], &["-N2", "-n4", &script]].concat();
        let job = attached_and_left(submit(cluster, "flux", &args), 2 * SOON);
        assert_eq!(cluster.find("sleep 700").len(), 4);
        // The name of the instance stands for the job in it, which has a name of its own.
        let inner = attach(cluster, &job, 4);
        assert!(inner.starts_with(&format!("{job}/f")), "{inner}");
        assert_eq!(attach(cluster, &inner, 4), inner);
        cancel_all(cluster);
        drop(fs::remove_dir_all(&folder));
    });
}

#[test]
fn within_an_allocation_gantry_launches_on_its_nodes() {
    on_flux(2, |cluster| {
        let gantry = gantry_tests::binaries().gantry.display().to_string();
        // The one in the environment is on the login node only.
        let runtime = format!("GANTRY_RUNTIME_DIR={HOME}/gantry-runtime");
        let launch = ["env", &runtime, &gantry, "launch", "--", "-N2", "-n4", "/bin/echo", "here"];
        let done = cluster.run("flux", [&["alloc", "-N2"][..], &launch].concat(), &[]).wait(4 * SOON);
        assert_eq!(done.code(), 0, "{done:?}");
        assert_eq!(done.stdout.iter().filter(|line| line.trim() == "here").count(), 4, "{done:?}");
        assert!(becomes_true(2 * SOON, || jobs(cluster).is_empty()), "{}", jobs(cluster));
    });
}

#[test]
fn a_submitted_job_that_nobody_waits_for_is_cancelled() {
    on_flux(1, |cluster| {
        cluster.said("flux", ["queue", "stop", "--quiet"]);
        let args = ["--", "-n1", "--output=/dev/null", "--wrap", "flux", "run", "true"];
        let mut run = submit(cluster, "flux", &args);
        run.next_event("submitted", SOON);
        assert!(!jobs(cluster).is_empty());
        proc::send(program(run.pid()).expect("the tool"), Signal::SIGKILL);
        run.exited(SOON);
        assert!(becomes_true(SOON, || jobs(cluster).is_empty()), "{}", jobs(cluster));
        cluster.said("flux", ["queue", "start", "--quiet"]);
    });
}
