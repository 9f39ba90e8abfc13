//! Faults of an app in a job of a real PBS: a mom, an agent, the job, the script. Each fault must be reported as
//! such, and nothing may be left on any host.

use gantry_tests::pbs::{STARTS, Script, ask_there, jobs, on_pbs, said_by};
use gantry_tests::slurm::{Cluster, cause_of, error_of};
use gantry_tests::testbed::config::HOME;
use gantry_tests::testbed::{Process, program};
use gantry_tests::{Run, SOON, binaries, eventually, proc, programs};
use nix::sys::signal::Signal;

/// Two slots on each of two hosts.
const FOUR: [&str; 5] = ["--", "-l", "select=2:ncpus=2:mpiprocs=2", "-l", "place=scatter"];

/// Starts a held launch on the login node and waits until its ranks are held.
#[track_caller]
fn held(cluster: &Cluster, seconds: &str) -> Run {
    let mut run =
        cluster.launch(&[&["--wlm", "pbs", "--hold"], &FOUR[..], &["/bin/sleep", seconds]].concat());
    run.next_event("held", STARTS);
    cluster.assert_held(&format!("/bin/sleep {seconds}"), 4);
    run
}

fn agent_on(cluster: &Cluster, node: u16) -> Process {
    let all = cluster.bed.node(node).user_processes();
    let agent = all.iter().find(|it| it.line.ends_with("gantry-agent serve told pbs")).cloned();
    agent.unwrap_or_else(|| panic!("no agent: {all:?}"))
}

#[track_caller]
fn assert_nothing_left(cluster: &Cluster, seconds: &str) {
    for line in [&format!("/bin/sleep {seconds}"), "gantry-agent serve told pbs", "gantry-guard start pbs"] {
        eventually(3 * SOON, "nothing is left", || cluster.find(line).is_empty());
    }
    eventually(3 * SOON, "the job has ended", || jobs(&cluster.bed).is_empty());
}

#[test]
fn a_mom_that_is_killed_takes_its_host_and_the_others_are_cleaned() {
    on_pbs(|cluster| {
        let mut run = held(cluster, "901");
        cluster.bed.node(2).kill_daemon("pbs_mom").expect("it runs");
        // Agents have their own links, so the app continues until it is ended.
        proc::send(program(run.pid()).expect("the tool"), Signal::SIGTERM);
        run.exited(3 * SOON);
        for line in ["/bin/sleep 901", "gantry-agent serve told pbs"] {
            eventually(3 * SOON, "nothing is left", || cluster.find(line).is_empty());
        }
        drop(said_by(&cluster.bed, &["sh", "-c", "qdel -W force $(qselect)"]));
        cluster.bed.node(2).power_off().expect("it was on");
        cluster.bed.node(2).power_on().expect("it was off");
        eventually(6 * SOON, "the node is back", || cluster.bed.wait_idle(SOON).is_ok());
        assert_nothing_left(cluster, "901");
    });
}

/// The agent's link shows that a whole node is gone. Its mom reports nothing.
#[test]
fn a_host_that_goes_while_ranks_are_held_is_told_by_its_name() {
    on_pbs(|cluster| {
        let mut run = held(cluster, "902");
        cluster.bed.node(2).power_off().expect("it was on");
        let told = run.next_event("nodes_lost", 3 * SOON);
        cluster.ask(&["kill", told["app"].as_str().expect("an id")]);
        let done = run.wait(3 * SOON);
        drop(said_by(&cluster.bed, &["sh", "-c", "qdel -W force $(qselect)"]));
        cluster.bed.node(2).power_on().expect("it was off");
        let told = told.to_string();
        assert!(told.contains("n002") && told.contains("its link was cut"), "{told}");
        let cause = cause_of(&done);
        assert_eq!(cause["cause"], "node_failed", "{cause}");
        assert!(cause["message"].as_str().is_some_and(|it| it.contains("node n002 is ")), "{cause}");
        eventually(6 * SOON, "the node is back", || cluster.bed.wait_idle(SOON).is_ok());
        assert_nothing_left(cluster, "902");
    });
}

/// A temporary change of the second node, made by a root shell there.
struct Changed<'a> {
    cluster: &'a Cluster,
    undo: String,
}

impl<'a> Changed<'a> {
    #[track_caller]
    fn on_second(cluster: &'a Cluster, make: &str, undo: &str) -> Self {
        let made = run_on_second(cluster, make);
        assert!(made.status.success(), "{make}: {made:?}");
        Self { cluster, undo: undo.to_owned() }
    }
}

impl Drop for Changed<'_> {
    fn drop(&mut self) {
        let undone = run_on_second(self.cluster, &self.undo);
        // An earlier failure is more important.
        assert!(undone.status.success() || std::thread::panicking(), "{undone:?}");
    }
}

fn run_on_second(cluster: &Cluster, script: &str) -> std::process::Output {
    let mut shell = cluster.bed.node(2).root_command("sh").expect("a node");
    shell.args(["-ec", script]).output().expect("a shell")
}

#[test]
fn agents_that_cannot_be_executed_on_a_host_say_why() {
    on_pbs(|cluster| {
        let there = binaries().dir.display().to_string();
        let undo = format!("umount {there}");
        let check = |make: &str, kind: &str, words: &str| {
            let _changed = Changed::on_second(cluster, make, &undo);
            let mut run = cluster
                .launch(&[&["--wlm", "pbs", "--send-agent=never"], &FOUR[..], &["/bin/true"]].concat());
            let error = error_of(&run.wait(STARTS));
            let text = error.to_string();
            assert!(error["kind"] == kind && text.contains("n002: ") && text.contains(words), "{text}");
        };
        let agent = format!("there is no {there}/gantry-agent");
        check(&format!("mount -t tmpfs none {there}"), "not-found", &agent);
        let noexec = format!("mount --bind {there} {there}; mount -o remount,bind,noexec {there}");
        check(&noexec, "no-access", "by how its file system is mounted");
    });
}

/// The testbed's leak check finds leftovers of a sent agent.
#[test]
fn a_host_that_does_not_see_gantry_is_sent_the_agent_when_asked() {
    on_pbs(|cluster| {
        let there = binaries().dir.display().to_string();
        let _changed =
            Changed::on_second(cluster, &format!("mount -t tmpfs none {there}"), &format!("umount {there}"));
        let launch = "gantry launch --json --hold --send-agent -- /bin/sleep 905";
        let script = Script::submit_on(&cluster.bed, "select=2:ncpus=2:mpiprocs=2", launch);
        let held = script.event("held");
        let ranks = held["ranks"].as_array().expect("ranks");
        let hosts: Vec<_> = ranks.iter().filter_map(|rank| rank["host"].as_str()).collect();
        assert_eq!(hosts, ["n001", "n001", "n002", "n002"], "{held}");
        let agent = agent_on(cluster, 2);
        assert!(agent.line.starts_with("/var/tmp/pbs."), "{agent:?}");
        ask_there(&cluster.bed, ["kill", held["app"].as_str().expect("an id")]);
        assert_eq!(script.wait().0, 128 + 9);
        assert_nothing_left(cluster, "905");
    });
}

/// PBS discards the output of an agent that runs as a task, so the agent must report in another way.
#[test]
fn an_agent_of_another_release_leaves_word_of_that() {
    on_pbs(|cluster| {
        let (release, other) = (env!("CARGO_PKG_VERSION"), "9.9.9");
        assert_eq!(release.len(), other.len(), "one is put in the other's place");
        let (own, changed) = (binaries().agent.display().to_string(), format!("{HOME}/other-agent"));
        let changing = format!("s/{}/{other}/g", release.replace('.', "[.]"));
        let make = format!(
            "LC_ALL=C sed '{changing}' {own} >{changed}; chmod 755 {changed}; mount --bind {changed} {own}"
        );
        let _changed = Changed::on_second(cluster, &make, &format!("umount {own}; rm {changed}"));
        let expected = format!("n002: the frontend is version {release}, this agent is {other}");
        let script = Script::submit(&cluster.bed, "gantry launch --json -- --ppn 1 true; exit 0");
        let (_, text) = script.wait();
        let inside = script.events().into_iter().find(|event| event["event"] == "error");
        let inside = inside.unwrap_or_else(|| panic!("no error in {text}"));
        let outside = cluster.launch(&[&["--wlm", "pbs"], &FOUR[..], &["/bin/true"]].concat()).wait(STARTS);
        for error in [inside, error_of(&outside)] {
            assert_eq!(error["kind"], "unsupported", "{error}");
            assert!(error["message"].as_str().is_some_and(|it| it.contains(&expected)), "{error}");
        }
    });
}

#[test]
fn a_script_that_ends_while_ranks_are_held_takes_them_along() {
    on_pbs(|cluster| {
        let program = programs::get("exit_with").display().to_string();
        let script = "gantry launch --json --hold -- --nodes 2 --ppn 1";
        let script = format!("{script} {program} 7 & until [ -e $HOME/go ]; do sleep 0.1; done; exit 3");
        let go = cluster.bed.login().path(std::path::Path::new(HOME).join("go")).expect("the login node");
        drop(std::fs::remove_file(&go));
        let script = Script::submit(&cluster.bed, &script);
        script.event("held");
        std::fs::write(&go, "").expect("a file");
        assert_eq!(script.wait().0, 3);
        eventually(2 * SOON, "no rank is left", || cluster.find("exit_with 7").is_empty());
        std::fs::remove_file(&go).expect("it is there");
    });
}

/// In `qsub -I` at a terminal, gantry must behave as in a script.
#[test]
fn an_interactive_job_holds_and_ends_ranks_on_its_hosts() {
    on_pbs(|cluster| {
        let mut command = cluster.bed.login().command_of(&cluster.world, "qsub").expect("the login node");
        command.args(["-I", "-l", "select=2:ncpus=2:mpiprocs=2", "-l", "place=scatter"]);
        let mut terminal = cluster.world.terminal_of(command);
        terminal.wait_text("ready", STARTS);
        let gantry = binaries().gantry.display().to_string();
        let runtime = "GANTRY_RUNTIME_DIR=/run/home/tester/gantry-runtime";
        terminal.type_text(&format!(
            "{runtime} {gantry} launch -- sh -c 'echo rank $GANTRY_RANK on $(hostname)'; echo code=$?\n"
        ));
        for rank in ["rank 0 on n001", "rank 1 on n001", "rank 2 on n002", "rank 3 on n002", "code=0"] {
            terminal.wait_text(rank, STARTS);
        }
        terminal.type_text(&format!("{runtime} {gantry} launch --hold -- /bin/sleep 904; echo ended=$?\n"));
        terminal.wait_text("press Enter to release", STARTS);
        let ranks: Vec<_> =
            cluster.find("/bin/sleep 904").into_iter().filter(|it| it.1.line.starts_with("/bin/")).collect();
        assert_eq!(ranks.len(), 4, "{ranks:?}");
        for (node, process) in &ranks {
            assert_eq!(proc::why_not_held(process.pid), None, "{node}: {process:?}");
        }
        terminal.type_text("\n");
        terminal.wait_text("released", SOON);
        ranks.iter().for_each(|(_, process)| proc::send(process.pid, Signal::SIGTERM));
        terminal.wait_text("rank 0: killed by SIGTERM", SOON);
        // gantry may still read earlier input.
        terminal.wait_text("ended=1", SOON);
        terminal.type_text("exit\n");
        terminal.wait(STARTS);
        assert_nothing_left(cluster, "904");
    });
}
