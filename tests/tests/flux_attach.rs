//! Attaching to jobs of a real Flux, by every form of an id and into instances; and batch jobs.

use std::fs;

use gantry_tests::flux::{app_of, jobs, last_job, on_flux, set_queue};
use gantry_tests::slurm::{Cluster, error_of};
use gantry_tests::submit::{attached_and_left, submit, write_script};
use gantry_tests::testbed::flux::installation_for_all;
use gantry_tests::testbed::{HOME, program};
use gantry_tests::{SOON, becomes_true, proc, require};
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
        check(&ended, "gone", "has ended: exit code 0");
        cluster.said("flux", ["run", "-n2", "./nowhere"]);
        check(&last_job(cluster), "gone", "./nowhere: No such file or directory");
        cluster.said("flux", ["run", "-N1000", "true"]);
        check(&last_job(cluster), "gone", "exception of type alloc: unsatisfiable request");
        check("f234", "not-found", "f234");
        check("what", "invalid", "is no id of a job of Flux");
        set_queue(cluster, "stop");
        let waits = cluster.said("flux", ["submit", "-n1", "true"]);
        check(waits.trim(), "not-found", "is in state SCHED");
        set_queue(cluster, "start");
        cancel_all(cluster);
    });
}

/// Nodes and tasks of jobs. The last two are not on the first node.
const SHAPES: [[&str; 3]; 7] = [
    ["-N1", "-n1", "host:n[001-004]"],
    ["-N2", "-n2", "host:n[001-004]"],
    ["-N2", "-n4", "host:n[001-004]"],
    ["-N4", "-n8", "host:n[001-004]"],
    ["-N4", "-n7", "host:n[001-004]"],
    ["-N2", "-n2", "host:n[002,004]"],
    ["-N1", "-n3", "host:n003"],
];

#[test]
fn ranks_that_flux_holds_for_a_debugger_are_held_and_released_in_jobs_of_any_shape() {
    on_flux(4, |cluster| {
        for [nodes, tasks, on] in SHAPES {
            let requires = format!("--requires={on}");
            let said = cluster.said(
                "flux",
                ["submit", nodes, tasks, &requires, "-o", "stop-tasks-in-exec", "/bin/sleep", "802"],
            );
            let job = said.trim();
            cluster.said("flux", ["job", "wait-event", "--timeout=20s", "-p", "exec", job, "shell.start"]);
            let ranks = tasks[2..].parse().expect("a number");
            let mut run = cluster.gantry(["--json", "attach", "--wait", job, "--daemon", "/bin/sleep 2000"]);
            let attached = run.next_event("attached", 2 * SOON);
            assert_eq!(attached["ranks"].as_array().map(Vec::len), Some(ranks), "{attached}");
            cluster.assert_held("/bin/sleep 802", ranks);
            let hosts: usize = nodes[2..].parse().expect("a number");
            assert!(becomes_true(SOON, || cluster.find("sleep 2000").len() == hosts), "{nodes} {tasks}");
            assert_eq!(cluster.said("flux", ["job", "hostpids", job]).trim(), app_of(cluster).1.join(","));
            let app = attached["app"].as_str().expect("an app");
            let released = cluster.ask(&["release", app]);
            assert_eq!(released.code(), 0, "{released:?}");
            let awake =
                || cluster.find("/bin/sleep 802").iter().all(|(_, it)| proc::why_not_held(it.pid).is_some());
            assert!(becomes_true(SOON, awake), "{:?}", cluster.find("/bin/sleep 802"));
            cancel_all(cluster);
            run.exited(2 * SOON);
        }
    });
}

#[test]
fn a_daemon_that_ignores_the_end_of_its_job_ends_with_it() {
    on_flux(2, |cluster| {
        let job = begin(cluster, "3");
        let daemon = "/bin/sh -c \"trap '' TERM; sleep 2001; true\"";
        let mut run = cluster.gantry(["--json", "attach", "--wait", &job, "--daemon", daemon]);
        run.next_event("attached", 2 * SOON);
        assert!(becomes_true(SOON, || cluster.find("sleep 2001").len() == 2));
        run.exited(2 * SOON);
        assert!(becomes_true(SOON, || cluster.find("sleep 2001").is_empty()));
        assert!(becomes_true(2 * SOON, || jobs(cluster).is_empty()), "{}", jobs(cluster));
    });
}

/// A user beside the ordinary one.
const OTHER: u32 = 65534;

#[test]
fn a_job_of_another_user_is_refused_and_nothing_runs_beside_it() {
    drop(require!(installation_for_all()));
    on_flux(1, |cluster| {
        let as_other = |args: &[&str]| {
            let mut command = cluster.bed.login().root_command("setpriv").expect("the login node");
            command.args([format!("--reuid={OTHER}"), "--clear-groups".to_owned()]);
            let output = command.args(["timeout", "40", "flux"]).args(args).output().expect("flux");
            assert!(output.status.success(), "{output:?}");
            String::from_utf8_lossy(&output.stdout).trim().to_owned()
        };
        let job = as_other(&["submit", "-N1", "/bin/sleep", "803"]);
        as_other(&["job", "wait-event", "--timeout=20s", &job, "start"]);
        for command in [&["attach", "--daemon", "/bin/sleep 2002"][..], &["stack"], &["gdb", "--batch"]] {
            let done = cluster.gantry([&["--json"], command, &[job.as_str()]].concat()).wait(SOON);
            let error = error_of(&done);
            assert_eq!(error["kind"], "no-access", "{error}");
            assert!(error.to_string().contains("belongs to user 65534"), "{error}");
        }
        assert!(cluster.find("sleep 2002").is_empty());
        as_other(&["cancel", &job]);
        as_other(&["job", "wait-event", "--timeout=20s", &job, "clean"]);
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
fn an_allocation_is_attached_to_from_outside_when_a_job_runs_in_it() {
    on_flux(2, |cluster| {
        let said = cluster.said("flux", ["alloc", "-N2", "--bg"]);
        let allocation = said.trim().replace('ƒ', "f");
        let in_it = |words: &[&str]| {
            let args = [&["proxy", allocation.as_str(), "flux"], words].concat();
            let done = cluster.run("flux", args, &[]).wait(2 * SOON);
            assert_eq!(done.code(), 0, "{done:?}");
            done.stdout.concat().trim().replace('ƒ', "f")
        };
        let job = in_it(&["submit", "-N2", "-n4", "/bin/sleep", "804"]);
        assert_eq!(attach(cluster, &allocation, 4), format!("{allocation}/{job}"));
        assert_eq!(cluster.find("sleep 804").len(), 4, "attaching changes nothing");
        // A broker whose own jobs run when it is told to end leaves its folder behind.
        in_it(&["cancel", &job]);
        in_it(&["job", "wait-event", "--quiet", "--timeout=20s", &job, "clean"]);
        in_it(&["shutdown", "--background", "--quiet"]);
        assert!(becomes_true(4 * SOON, || jobs(cluster).is_empty()), "{}", jobs(cluster));
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
        set_queue(cluster, "stop");
        let args = ["--", "-n1", "--output=/dev/null", "--wrap", "flux", "run", "true"];
        let mut run = submit(cluster, "flux", &args);
        run.next_event("submitted", SOON);
        assert!(!jobs(cluster).is_empty());
        proc::send(program(run.pid()).expect("the tool"), Signal::SIGKILL);
        run.exited(SOON);
        assert!(becomes_true(SOON, || jobs(cluster).is_empty()), "{}", jobs(cluster));
        set_queue(cluster, "start");
    });
}
