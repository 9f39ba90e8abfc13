//! Attaching to jobs of a real PBS with a user's own script. From the login node, ssh reaches the job's first host
//! and PBS tasks reach the others. Also from within the job. The job must be unchanged.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;

use gantry_tests::capi::{prefix, program as c_program};
use gantry_tests::pbs::{STARTS, Script, jobs, on_pbs, said_by};
use gantry_tests::slurm::{Cluster, cause_of, error_of};
use gantry_tests::testbed::pbs::installation;
use gantry_tests::testbed::{Process, program};
use gantry_tests::{Run, SOON, binaries, eventually, proc, record_skip, tool};
use nix::sys::signal::Signal;

/// The nodes of all ranks: two ranks on each of three hosts.
const ALL: [&str; 6] = ["n001", "n001", "n002", "n002", "n003", "n003"];

fn attach(cluster: &Cluster, options: &[&str], target: &str) -> Run {
    cluster.gantry([&["--json", "attach", "--wlm", "pbs"], options, &[target]].concat())
}

/// The node and process of each rank, sorted by node. A rank is a `sleep` with this argument.
fn ranks_of(cluster: &Cluster, seconds: u32) -> Vec<(String, Process)> {
    let mut ranks = cluster.find(&format!("/bin/sleep {seconds}"));
    ranks.retain(|(_, process)| process.line.starts_with("/bin/sleep "));
    ranks.sort_by_key(|(node, process)| (node.clone(), process.pid));
    ranks
}

/// A job with `sleep`s as ranks, once they run.
#[track_caller]
fn running(cluster: &Cluster, script: &str, seconds: u32, nodes: &[&str]) -> Script {
    let script = Script::submit(&cluster.bed, script);
    eventually(STARTS, "ranks", || {
        ranks_of(cluster, seconds).len() == nodes.len() || script.code().is_some()
    });
    let there: Vec<String> = ranks_of(cluster, seconds).into_iter().map(|(node, _)| node).collect();
    assert_eq!(there, nodes, "{}", script.text());
    script
}

#[track_caller]
fn assert_hosts(attached: &serde_json::Value, nodes: &[&str]) {
    let ranks = attached["ranks"].as_array().expect("ranks");
    let hosts: Vec<_> = ranks.iter().filter_map(|rank| rank["host"].as_str()).collect();
    assert_eq!(hosts, nodes, "{attached}");
}

/// Attaches with a daemon on each node and detaches. The ranks must be unchanged.
#[track_caller]
fn attach_and_leave(cluster: &Cluster, target: &str, seconds: u32, nodes: &[&str]) {
    let before = ranks_of(cluster, seconds);
    let mut run = attach(cluster, &["--daemon", "/bin/sleep 2000"], target);
    let attached = run.next_event("attached", STARTS);
    assert_hosts(&attached, nodes);
    let pids = attached["ranks"].as_array().into_iter().flatten().filter_map(|rank| rank["pid"].as_i64());
    let pids: std::collections::BTreeSet<i64> = pids.collect();
    assert!(before.iter().all(|(_, it)| pids.contains(&i64::from(it.number))), "{attached} {before:?}");
    let hosts: std::collections::BTreeSet<&&str> = nodes.iter().collect();
    for _ in &hosts {
        run.next_event("daemon_started", SOON);
    }
    assert_eq!(cluster.find("sleep 2000").len(), hosts.len());
    proc::send(program(run.pid()).expect("the tool"), Signal::SIGINT);
    run.exited(SOON);
    eventually(SOON, "daemons and agents are gone", || {
        ["sleep 2000", "gantry-agent serve told pbs"].iter().all(|line| cluster.find(line).is_empty())
    });
    assert_eq!(format!("{:?}", ranks_of(cluster, seconds)), format!("{before:?}"));
}

/// Deletes a job and waits until it is gone.
#[track_caller]
fn delete(cluster: &Cluster, script: &Script) {
    assert_eq!(said_by(&cluster.bed, &["qdel", &script.id]), "");
    eventually(2 * SOON, "the job has ended", || jobs(&cluster.bed).is_empty());
}

#[test]
fn ranks_of_the_jobs_own_mpiexec_are_found_in_its_table() {
    on_pbs(|cluster| {
        if let Err(why) = tool("mpiexec.hydra") {
            return record_skip(&why);
        }
        let script = running(cluster, "mpiexec.hydra -n 6 /bin/sleep 1000", 1000, &ALL);
        let number = script.id.split('.').next().expect("a number");
        attach_and_leave(cluster, number, 1000, &ALL);
        // A second attach works as well.
        attach_and_leave(cluster, &script.id, 1000, &ALL);
        delete(cluster, &script);
        // The processes of the launcher's ssh are in no session of the job, so PBS does not end them.
        for (_, process) in ranks_of(cluster, 1000) {
            proc::send(process.pid, Signal::SIGKILL);
        }
        eventually(SOON, "no rank is left", || ranks_of(cluster, 1000).is_empty());
    });
}

#[test]
fn tasks_of_the_job_are_its_ranks_and_its_end_is_told() {
    on_pbs(|cluster| {
        let pbsdsh = installation().expect("PBS").join("bin/pbsdsh");
        let script = running(cluster, &format!("{} -- /bin/sleep 1001", pbsdsh.display()), 1001, &ALL);
        attach_and_leave(cluster, &script.id, 1001, &ALL);
        let mut run = attach(cluster, &[], &script.id);
        run.next_event("attached", STARTS);
        delete(cluster, &script);
        let done = run.wait(2 * SOON);
        let cause = cause_of(&done);
        assert_eq!(cause["cause"], "cancelled", "{cause}");
    });
}

#[test]
fn tools_in_c_attach_by_the_table_of_pbs() {
    on_pbs(|cluster| {
        let pbsdsh = installation().expect("PBS").join("bin/pbsdsh");
        let nodes = ["n001", "n002", "n003"];
        let hosts = format!("for n in 0 2 4; do {} -n $n -- /bin/sleep 1007 & done; wait", pbsdsh.display());
        let script = running(cluster, &hosts, 1007, &nodes);
        let before = ranks_of(cluster, 1007);
        let variables = [("CTI_INSTALL_DIR", prefix().to_str().expect("a path")), ("CTI_WLM_IMPL", "pbs")];
        let suite = c_program("pbs", "fe", &[]);
        let done = cluster.run(&suite, ["attaches", &script.id], &variables).wait(SOON * 3);
        assert_eq!(done.code(), 0, "{}\n{}", done.stdout.join("\n"), done.stderr.join("\n"));
        assert_eq!(format!("{:?}", ranks_of(cluster, 1007)), format!("{before:?}"), "left as found");
        delete(cluster, &script);
    });
}

#[test]
fn a_scripts_programs_are_attached_to_from_outside_and_from_within() {
    on_pbs(|cluster| {
        let here = "/bin/sleep 1002 & gantry attach --json --timeout 30 $PBS_JOBID; wait; exit 0";
        let script = running(cluster, here, 1002, &["n001"]);
        let attached = script.event("attached");
        assert_hosts(&attached, &["n001"]);
        let mut run = attach(cluster, &[], &script.id);
        assert_hosts(&run.next_event("attached", STARTS), &["n001"]);
        for (_, process) in ranks_of(cluster, 1002) {
            proc::send(process.pid, Signal::SIGTERM);
        }
        run.exited(SOON);
        let (code, text) = script.wait();
        assert_eq!(code, 0, "{text}");
    });
}

#[test]
fn ranks_that_gantry_has_launched_are_found_by_their_job() {
    on_pbs(|cluster| {
        let args = ["--wlm", "pbs", "--", "-l", "select=2:ncpus=2:mpiprocs=2", "-l", "place=scatter"];
        let mut launched = cluster.launch(&[&args[..], &["/bin/sleep", "1003"]].concat());
        launched.next_event("started", STARTS);
        let listed = cluster.ask(&["ps", "--json"]).stdout.concat();
        let job = listed.split("\"job\":\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a job");
        let mut run = attach(cluster, &[], job);
        assert_hosts(&run.next_event("attached", STARTS), &ALL[..4]);
        proc::send(program(run.pid()).expect("the tool"), Signal::SIGINT);
        run.exited(SOON);
        assert_eq!(ranks_of(cluster, 1003).len(), 4);
        proc::send(program(launched.pid()).expect("the tool"), Signal::SIGTERM);
        launched.exited(SOON);
    });
}

#[test]
fn a_job_that_waits_is_waited_for() {
    on_pbs(|cluster| {
        let path = cluster.bed.login().path(Path::new(gantry_tests::testbed::config::HOME).join("waits.sh"));
        let path = path.expect("the login node");
        fs::write(&path, "/bin/sleep 1004\n").expect("a script");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("permissions");
        let words = ["qsub", "-f", "-h", "-j", "oe", "-o", "/dev/null", "/run/home/tester/waits.sh"];
        let job = said_by(&cluster.bed, &words).trim().to_owned();
        let error = error_of(&attach(cluster, &[], &job).wait(SOON));
        assert!(error.to_string().contains("is held by a user"), "{error}");
        assert!(error.to_string().contains("--wait"), "{error}");
        let mut run = attach(cluster, &["--wait", "--timeout", "60"], &job);
        assert_eq!(said_by(&cluster.bed, &["qrls", &job]), "");
        assert_hosts(&run.next_event("attached", STARTS), &["n001"]);
        assert_eq!(said_by(&cluster.bed, &["qdel", &job]), "");
        run.exited(2 * SOON);
        eventually(SOON, "the job is gone", || jobs(&cluster.bed).is_empty());
        let error = error_of(&attach(cluster, &["--wait"], &job).wait(SOON));
        assert_eq!(error["kind"], "gone", "{error}");
    });
}

#[test]
fn invalid_targets_have_their_own_errors() {
    on_pbs(|cluster| {
        let error = error_of(&attach(cluster, &[], "99999").wait(SOON));
        assert_eq!(error["kind"], "not-found", "{error}");
        assert!(error.to_string().contains("Unknown Job Id"), "{error}");
        let script = running(cluster, "/bin/sleep 1005", 1005, &["n001"]);
        // Only the job's owner can read the data that is needed to act on the job's behalf.
        let node = cluster.bed.node(1);
        let session = node.user_processes().into_iter().find(|it| it.line == "-bash").expect("a script");
        let guard = binaries().gantry.with_file_name("gantry-guard");
        let mut command = node.root_command("setpriv").expect("a node");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(guard);
        command.args(["in", "pbs", &script.id, &session.number.to_string(), "look"]).stdin(Stdio::null());
        let output = command.output().expect("setpriv");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("belongs to another user"), "{output:?}");
        // A host that refuses logins cannot be queried.
        node.kill_daemon("sshd").expect("it runs");
        let error = error_of(&attach(cluster, &[], &script.id).wait(SOON));
        node.power_off().expect("it was on");
        node.power_on().expect("it was off");
        assert_eq!(error["kind"], "lost", "{error}");
        assert!(error.to_string().contains("n001") && error.to_string().contains("refused"), "{error}");
        drop(said_by(&cluster.bed, &["qdel", "-W", "force", &script.id]));
        eventually(3 * SOON, "the node is back", || {
            jobs(&cluster.bed).is_empty() && cluster.bed.wait_idle(SOON).is_ok()
        });
    });
}
